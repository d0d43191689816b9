"""Drive the covariance recursion over a run's data: in simulation, where all data are in one place.

In a deployment nobody holds both a client's measurements and the other clients' states; what each
party can compute by itself is in `uncertainty.deployed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from fedgranger.config import RunConfig, check_choice
from fedgranger.linalg.blocks import pad_stack
from fedgranger.runtime.inprocess import stack_windows
from fedgranger.runtime.propagation_table import collect
from fedgranger.runtime.setup import Setup
from fedgranger.uncertainty.inputs import RowParams, RowWindow, row_window
from fedgranger.uncertainty.noise import Noise, noise_of, noise_stretch
from fedgranger.uncertainty.propagate import RowsState, advance_rounds, look, prior_state
from fedgranger.uncertainty.record import Propagation

__all__ = ["model_noise", "propagate", "row_params", "row_windows", "start_rows"]

CHUNK_BYTES = 64 * 2**20


def model_noise(setup: Setup) -> dict[str, np.ndarray]:
    """Every client's own R, in the units of its scaled measurements."""
    return {stream.name: stream.model.measurement_cov for stream in setup.streams}


def propagate(
    setup: Setup,
    config: RunConfig,
    noise: Mapping[str, np.ndarray | float] | None = None,
    *,
    level: str = "joint",
    split: bool = True,
    num_checkpoints: int = 40,
    report: Callable[[str, int, int], None] = lambda *_: None,
) -> Propagation:
    """Propagate mean and covariance of every row along one pass over the data.

    The panel's values are the means of the measurements; the noise is what would change if they
    were measured again. One pass only: a second one would meet the same noise again.

    Args:
        setup: the run.
        config: its options (priors).
        noise: covariance per client (see `uncertainty.noise.noise_of`); default its model's R.
        level: "joint", or "blockwise" without covariances between causes (assumption A2).
        split: tell the prior's share from the data's.
        num_checkpoints: how often the quantities are recorded, evenly spaced in rounds.
        report: called with (what, done, total).
    """
    check_choice("uncertainty", level, ("joint", "blockwise"))
    dims = [stream.model.num_sensors for stream in setup.streams]
    given = model_noise(setup) if noise is None else noise
    prepared = noise_of(given, setup.names, dims, len(setup.streams[0].values))
    with jax.enable_x64(True):
        params = row_params(setup, config, prepared)
    marks = _checkpoints(setup.num_rounds, num_checkpoints)
    size = _chunk_size(setup, marks)
    everyone = np.arange(len(setup.streams))
    seen = []
    with jax.enable_x64(True):
        state = start_rows(setup, config, level=level, split=split, full=prepared.is_full)
        for first, last in zip([0, *marks[:-1]], marks, strict=True):
            for begin in range(first, last, size):
                stop = min(begin + size, last)
                windows = row_windows(setup, prepared, begin, stop - begin, everyone)
                state = advance_rounds(params, state, windows)
            window = row_windows(setup, prepared, last, 1, everyone)
            window = jax.tree.map(lambda leaf: leaf[0], window)
            seen.append(jax.device_get((look(params, state, window), state.mean)))
            report("uncertainty", last, marks[-1])
    return collect(setup.names, prepared, level, marks, seen)


def row_params(setup: Setup, config: RunConfig, noise: Noise) -> RowParams:
    """Constants of all rows, padded; measurements in the noise's eigenbasis."""
    p, d = setup.padded_dims
    server, clients = setup.params.server, setup.params.clients
    rotated = [
        basis.T @ stream.model.predicted_observation
        for basis, stream in zip(noise.bases, setup.streams, strict=True)
    ]
    M = len(setup.streams)
    coupling = np.asarray(server.coupling)
    return RowParams(
        server.self_transition,
        jnp.asarray(pad_stack(rotated, (d, p))),
        clients.local_step_size,
        clients.feedback_step_size,
        server.step_size,
        jnp.full(M, config.augmentation_ridge),
        jnp.full(M, config.granger_ridge),
        jnp.asarray(np.stack([coupling[m][_others(M, p, m)] for m in range(M)])),
    )


def row_windows(
    setup: Setup, noise: Noise, first_round: int, num_rounds: int, rows: np.ndarray
) -> RowWindow:
    """Inputs of consecutive rounds for some rows, leading axes (round, row)."""
    p, d = setup.padded_dims
    M, W = len(setup.streams), setup.window
    windows = stack_windows(setup, first_round, num_rounds)
    states = np.asarray(windows.filtered_states)  # (round, client, window, p)
    stacked = states.transpose(0, 2, 1, 3).reshape(num_rounds, W, M * p)
    bases = pad_stack([noise.bases[m] for m in rows], (d, d))
    measured = np.einsum("rmwd,mde->rmwe", np.asarray(windows.measurements)[:, rows], bases)
    start, stop = first_round * W, (first_round + num_rounds) * W
    full = noise.is_full
    covs = np.zeros((num_rounds * W, len(rows), *((d, d) if full else (d,))))
    for k, m in enumerate(rows.tolist()):
        part = noise_stretch(noise, m, start, min(stop, len(setup.streams[m].values)), full=full)
        covs[(slice(0, len(part)), k, *(slice(0, size) for size in part.shape[1:]))] = part
    by_round = np.swapaxes(covs.reshape(num_rounds, W, len(rows), *covs.shape[2:]), 1, 2)
    coupling = np.asarray(setup.params.server.coupling)
    others = [_others(M, p, m) for m in rows.tolist()]
    return _stacked_windows(
        jnp.asarray(measured),
        jnp.asarray(np.stack([stacked[..., columns] for columns in others], axis=1)),
        windows.local_targets[:, rows],
        jnp.asarray(by_round),
        windows.has_next[:, rows],
        windows.is_observed[:, rows],
        jnp.asarray(
            np.stack([coupling[m][columns] for m, columns in zip(rows, others, strict=True)])
        ),
    )


_stacked_windows = jax.jit(jax.vmap(row_window, in_axes=(0, 0, 0, 0, 0, 0, None)))


def start_rows(
    setup: Setup, config: RunConfig, *, level: str, split: bool, full: bool
) -> RowsState:
    """The priors of all rows."""
    p, d = setup.padded_dims
    M = len(setup.streams)
    real = [np.ones((s.model.state_dim, s.model.num_sensors)) for s in setup.streams]
    theta = pad_stack(real, (p, d))
    columns = np.stack([pad_stack([np.ones(dim)], (p,))[0] for dim in setup.state_dims])
    coupling = np.asarray(setup.params.server.coupling)
    granger = np.stack(
        [
            columns[m][:, None] * (columns.reshape(-1) * coupling[m])[_others(M, p, m)]
            for m in range(M)
        ]
    )
    return prior_state(
        jnp.asarray(config.augmentation_prior_location * theta),
        jnp.asarray(config.granger_prior_location * granger),
        jnp.asarray(config.augmentation_prior_scale**2 * theta),
        jnp.asarray(config.granger_prior_scale**2 * granger),
        groups=1 if level == "joint" else M - 1,
        split=split,
        full_noise=full,
    )


def _others(num_clients: int, p: int, row: int) -> np.ndarray:
    """Columns of the stacked states that belong to the other clients."""
    return np.flatnonzero(np.arange(num_clients * p) // p != row)


def _checkpoints(num_rounds: int, count: int) -> list[int]:
    """Round indices at which to look: evenly spaced, the last round included."""
    marks = np.unique(np.linspace(0, num_rounds - 1, count + 1).round().astype(int))
    return [int(mark) for mark in marks]


def _chunk_size(setup: Setup, marks: list[int]) -> int:
    p, d = setup.padded_dims
    per_round = 8 * 40 * p * (d + p * len(setup.streams)) * setup.window
    return int(max(1, min(max(np.diff([0, *marks]), default=1), CHUNK_BYTES // per_round)))
