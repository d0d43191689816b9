"""All clients and the server in one process: `lax.scan` over `rounds.step`, in chunks.

`train` is a generator that yields a snapshot and the losses after every chunk. Its caller owns
progress bars, checkpoints and interrupts; a snapshot handed back to `train` continues bit for
bit, because chunks are cut by the configuration and never by time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from fedgranger import convergence
from fedgranger.client.augment import ClientWindow
from fedgranger.client.kalman import WindowArrays
from fedgranger.config import RunConfig
from fedgranger.convergence import Progress
from fedgranger.errors import UnstableRecursionError
from fedgranger.linalg.blocks import pad_stack
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.rounds import RoundParams, RoundState, measure, step
from fedgranger.runtime.setup import Setup, initial_state
from fedgranger.server.loss_trace import TraceRow, rounds_per_row

CACHE_BYTES = 256 * 2**20


class Snapshot(NamedTuple):
    """Everything needed to go on, and nothing else.

    Attributes:
        pass_index: current pass, from 0.
        chunk: next chunk of that pass; 0 right after a pass has ended.
        state: parameters now.
        pass_start: parameters when the current pass began.
        progress: convergence at the end of the last complete pass.
        is_finished: no more chunk is to be run.
    """

    pass_index: int
    chunk: int
    state: RoundState
    pass_start: RoundState
    progress: Progress
    is_finished: bool


def train(
    setup: Setup, config: RunConfig, resume: Snapshot | None = None
) -> Iterator[tuple[Snapshot, TraceRow]]:
    """Run rounds until convergence or the last pass.

    Raises:
        UnstableRecursionError: the parameters stopped being finite.
    """
    size = rounds_per_row(setup.num_rounds, setup.window)
    num_chunks = -(-setup.num_rounds // size)
    p, d = setup.padded_dims
    chunk_bytes = 8 * len(setup.client_data) * (d + 2 * p + 2) * size * setup.window
    read = functools.partial(stack_windows, setup)
    if num_chunks * chunk_bytes < CACHE_BYTES:
        read = functools.cache(read)
    second_moments = pad_stack([client.second_moment for client in setup.clients], (d, d))
    now = resume
    if now is None:
        first, progress = initial_state(setup, config), convergence.start(len(setup.client_data))
        now = Snapshot(0, 0, first, first, progress, False)
    while not now.is_finished:
        state, losses = run_rounds(setup.params, now.state, read(now.chunk * size, size))
        _check_finite(setup, state)
        done = min((now.chunk + 1) * size, setup.num_rounds)
        last_round = now.pass_index * setup.num_rounds + done
        row = TraceRow(now.pass_index, last_round, *(np.asarray(x) for x in losses))
        chunk, pass_index = now.chunk + 1, now.pass_index
        progress, pass_start, is_finished = now.progress, now.pass_start, False
        if chunk >= num_chunks:
            progress = measure(progress, pass_start, state, second_moments)
            chunk, pass_index, pass_start = 0, pass_index + 1, state
            is_finished = progress.distance <= config.tolerance or pass_index >= config.passes
        now = Snapshot(pass_index, chunk, state, pass_start, progress, is_finished)
        yield now, row


@jax.jit
def run_rounds(
    params: RoundParams, state: RoundState, windows: ClientWindow
) -> tuple[RoundState, tuple[Array, Array]]:
    """Scan over rounds (leading axis of `windows`); return mean local and server losses."""
    state, info = lax.scan(lambda now, window: step(params, now, window), state, windows)
    losses = (
        _weighted_mean(info.clients.local_loss, info.clients.num_steps),
        _weighted_mean(info.server.server_loss, info.server.num_steps),
    )
    return state, losses


def stack_windows(setup: Setup, first_round: int, num_rounds: int) -> ClientWindow:
    """Inputs of consecutive rounds, shape (round, client, window, ...)."""
    return ClientWindow(*(jax_array(a) for a in window_arrays(setup, first_round, num_rounds)))


def window_arrays(setup: Setup, first_round: int, num_rounds: int) -> WindowArrays:
    """Gather the same as NumPy arrays.

    Steps past the end of the data are marked as not observed, so they have no weight.
    """
    W = setup.window
    start = first_round * W
    stop = min(start + num_rounds * W, setup.num_pairs)
    p, d = setup.padded_dims
    shape = (num_rounds * W, len(setup.client_data))
    arrays = [
        np.zeros((*shape, d)),
        np.zeros((*shape, p)),
        np.zeros((*shape, p)),
        np.zeros(shape),
        np.zeros(shape, dtype=np.bool_),
        np.zeros(shape, dtype=np.bool_),
    ]
    for m, client in enumerate(setup.client_data):
        for array, part in zip(arrays, client.steps(start, stop), strict=True):
            array[(slice(0, len(part)), m, *(slice(0, size) for size in part.shape[1:]))] = part
    by_round = (np.swapaxes(a.reshape(num_rounds, W, *a.shape[1:]), 1, 2) for a in arrays)
    return WindowArrays(*by_round)


def _weighted_mean(values: Array, weights: Array) -> Array:
    return (values * weights).sum(axis=0) / jnp.maximum(weights.sum(axis=0), 1.0)


def _check_finite(setup: Setup, state: RoundState) -> None:
    finite = np.ones(len(setup.client_data), dtype=np.bool_)
    for leaf in jax.tree.leaves(state):
        finite &= np.isfinite(np.asarray(leaf)).all(axis=(1, 2))
    if finite.all():
        return
    bad = int(np.argmin(finite))
    sizes = setup.client_step_sizes[bad]
    raise UnstableRecursionError(
        f"client '{setup.names[bad]}': training diverged with local_step_size {sizes.local:.3g}, "
        f"feedback_step_size {sizes.feedback:.3g} and server_step_size "
        f"{setup.server_step_sizes[bad].server:.3g}; use smaller ones or 'auto'"
    )
