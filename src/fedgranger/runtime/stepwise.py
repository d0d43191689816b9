"""The paper's loop with all clients in one process: every round at once, in compiled chunks.

What `server_protocol` would ask round by round is one call here (`protocol.EngineHooks.train`); a
test holds both equal. Checkpoints, progress and interrupts are seen to between chunks.
"""

from __future__ import annotations

import time

import numpy as np

from fedgranger.config import RunConfig
from fedgranger.errors import UnstableRecursionError
from fedgranger.federation.training_rounds import (
    NO_TRAINING,
    Training,
    with_diagonal,
)
from fedgranger.linalg.blocks import pack_square
from fedgranger.runtime.checkpoint import Checkpoints
from fedgranger.runtime.inprocess import Snapshot, train
from fedgranger.runtime.progress import Follower
from fedgranger.runtime.setup import Setup
from fedgranger.server.loss_trace import TraceRow, rounds_per_row, trace_table

LARGEST_GROWTH = 1e3
"""A loss that is so many times its first value never comes back."""


def train_stepwise(
    setup: Setup,
    config: RunConfig,
    checkpoints: Checkpoints,
    follower: Follower,
) -> tuple[Training, dict[str, np.ndarray]]:
    """Train to the end; parameters that run away are a fact of the result, not an error.

    Args:
        setup: the clients and the constants of a round.
        config: the options.
        checkpoints: where to go on from, and where to leave the state now and then.
        follower: follows how far it is, and writes the log of the run.

    Returns:
        How it ended, and θ of every client without the padding (none where training failed).
    """
    try:
        final = _run_chunks(setup, config, checkpoints, follower)
    except UnstableRecursionError as error:
        return NO_TRAINING._replace(failure=str(error)), {}
    trace = trace_table(setup.names, checkpoints.trace)
    rounds = final.pass_index * setup.num_rounds
    padded, dims = np.asarray(final.state.clients.augmentation), setup.state_dims
    augmentations = {
        client.name: padded[m, : dims[m], : client.model.num_sensors]
        for m, client in enumerate(setup.client_data)
    }
    blocks = pack_square(np.asarray(final.state.server.granger_row), dims)
    transitions = (client.model.self_transition for client in setup.client_data)
    granger = with_diagonal(blocks, transitions)
    found = Training(granger, trace, rounds, final.progress.distance)
    return found, augmentations


def _run_chunks(
    setup: Setup,
    config: RunConfig,
    checkpoints: Checkpoints,
    follower: Follower,
) -> Snapshot:
    size = rounds_per_row(setup.num_rounds, setup.window)
    chunks_per_pass = -(-setup.num_rounds // size)
    latest, last_saved = checkpoints.resumed, time.monotonic()
    if latest is not None and latest.is_finished:
        return latest
    try:
        for snapshot, row in train(setup, config, latest):
            latest = snapshot
            checkpoints.trace.append(row)
            _check_losses(setup, checkpoints.trace)
            done = latest.pass_index * chunks_per_pass + latest.chunk
            follower.train(latest, checkpoints.trace, done)
            follower.count("training", done, config.passes * chunks_per_pass)
            if time.monotonic() - last_saved >= checkpoints.seconds:
                checkpoints.save(latest)
                last_saved = time.monotonic()
    except KeyboardInterrupt:
        checkpoints.save(latest)
        raise
    if latest is None:  # train always yields at least once for an unfinished run
        raise RuntimeError("training ended without a single chunk")
    checkpoints.save(latest)
    return latest


def _check_losses(setup: Setup, trace: list[TraceRow]) -> None:
    """Refuse to go on when a loss has grown: descent that works makes it smaller.

    Raises:
        UnstableRecursionError: with the client and the losses.
    """
    first, last = (np.nan_to_num(row.local_loss) + row.server_loss for row in (trace[0], trace[-1]))
    grown = last > LARGEST_GROWTH * first
    if grown.any():
        m = int(np.argmax(grown))
        raise UnstableRecursionError(
            f"client '{setup.names[m]}': its loss grew from {first[m]:.3g} to {last[m]:.3g}; use "
            "smaller step sizes or solver='newton'"
        )
