"""A run's data as the rows of the covariance recursion: in simulation, all in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Int

from fedgranger.client.state_noise import state_readout
from fedgranger.config import RunConfig
from fedgranger.linalg.blocks import pad_stack
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.linalg.time_weights import tracked_means
from fedgranger.runtime.inprocess import window_arrays
from fedgranger.runtime.setup import Setup
from fedgranger.uncertainty.inputs import (
    MeasurementNoise,
    Row,
    RowParams,
    RowWindow,
    measurement_noise,
    row_window,
)
from fedgranger.uncertainty.recursion import RowsState, prior_state

SMALLEST_RESIDUAL = 1e-12
"""Share of a sensor's power that its state must leave for its noise to be tracked."""


def run_noise(
    setup: Setup, covs: Mapping[str, np.ndarray | float] | None = None
) -> MeasurementNoise:
    """Measurement noise of a run's clients; default every model's own R."""
    if covs is None:
        covs = {client.name: client.model.measurement_cov for client in setup.client_data}
    dims = [client.model.num_sensors for client in setup.client_data]
    return measurement_noise(covs, setup.names, dims, len(setup.client_data[0].values))


def tracked_noise(setup: Setup) -> dict[str, np.ndarray]:
    r"""R of every client as it is at each time, \(V_t = D_t^{1/2} R\, D_t^{1/2}\).

    \(D_t\) has per sensor the tracked mean square (`linalg.time_weights`) of what the state of the
    time step does not explain, \(y - C s\), relative to that of the whole record; with a span that
    tends to infinity it is 1.
    """
    out = {}
    for client in setup.client_data:
        C, R = client.model.observation_matrix, client.model.measurement_cov
        values, seen = client.scaled(0, len(client.values)), client.is_observed
        squares = (values - values @ (C @ state_readout(C, R)[0]).T) ** 2
        mean, size = squares[seen].mean(axis=0), (values[seen] ** 2).mean(axis=0)
        squares[~seen] = mean
        known = mean > SMALLEST_RESIDUAL * size
        scale = np.ones_like(squares)
        tracked = tracked_means(squares, setup.weighting, mean)
        scale[:, known] = tracked[:, known] / mean[known]
        is_diagonal = not (R - np.diag(np.diag(R))).any()
        root = np.sqrt(scale)
        own = scale * np.diag(R) if is_diagonal else root[:, :, None] * R * root[:, None]
        out[client.name] = own
    return out


def row_params(setup: Setup, config: RunConfig, noise: MeasurementNoise) -> RowParams:
    """Constants of all rows, padded; measurements in the noise's eigenbasis."""
    p, d = setup.padded_dims
    server, clients = setup.params.server, setup.params.clients
    rotated = [
        basis.T @ client.model.predicted_observation
        for basis, client in zip(noise.bases, setup.client_data, strict=True)
    ]
    M = len(setup.client_data)
    coupling = np.take_along_axis(np.asarray(server.coupling), _other_columns(setup), axis=1)
    return RowParams(
        server.self_transition,
        jax_array(pad_stack(rotated, (d, p))),
        clients.local_step_size,
        clients.feedback_step_size,
        server.step_size,
        jax_array(np.full(M, config.augmentation_ridge)),
        jax_array(np.full(M, config.granger_ridge)),
        jax_array(coupling),
    )


def row_windows(
    setup: Setup,
    noise: MeasurementNoise,
    first_round: int,
    num_rounds: int,
    rows: Int[np.ndarray, " row"],
) -> RowWindow:
    """Inputs of consecutive rounds for some rows, leading axes (round, row)."""
    p, d = setup.padded_dims
    M, W = len(setup.client_data), setup.window
    windows = window_arrays(setup, first_round, num_rounds)
    states = windows.filtered_states  # (round, client, window, p)
    stacked = states.transpose(0, 2, 1, 3).reshape(num_rounds, W, M * p)
    bases = pad_stack([noise.bases[m] for m in rows], (d, d))
    start, stop = first_round * W, (first_round + num_rounds) * W
    full = noise.is_full
    covs = np.zeros((num_rounds * W, len(rows), *((d, d) if full else (d,))))
    for k, m in enumerate(rows.tolist()):
        part = noise.between(m, start, min(stop, len(setup.client_data[m].values)), full=full)
        covs[(slice(0, len(part)), k, *(slice(0, size) for size in part.shape[1:]))] = part
    others = _other_columns(setup)[rows]
    return _row_windows(
        windows.measurements[:, rows] @ bases,
        np.stack([stacked[..., columns] for columns in others], axis=1),
        windows.local_targets[:, rows],
        np.swapaxes(covs.reshape(num_rounds, W, len(rows), *covs.shape[2:]), 1, 2),
        windows.has_next[:, rows],
        windows.is_observed[:, rows],
        np.take_along_axis(np.asarray(setup.params.server.coupling)[rows], others, axis=1),
    )


_row_windows = jax.jit(jax.vmap(row_window, in_axes=(0, 0, 0, 0, 0, 0, None)))


def prior_rows(
    setup: Setup, config: RunConfig, *, level: str, split: bool, full_noise: bool
) -> RowsState:
    """The priors of all rows; see `prior_state`."""
    M, (p, d) = len(setup.client_data), setup.padded_dims
    real = [np.ones((s.model.state_dim, s.model.num_sensors)) for s in setup.client_data]
    theta = pad_stack(real, (p, d))
    states = pad_stack([np.ones(dim) for dim in setup.state_dims], (p,))
    columns = states.reshape(-1) * np.asarray(setup.params.server.coupling)
    columns = np.take_along_axis(columns, _other_columns(setup), axis=1)
    granger = states[:, :, None] * columns[:, None]
    return prior_state(
        jax_array(config.augmentation_prior_location * theta),
        jax_array(config.granger_prior_location * granger),
        jax_array(config.augmentation_prior_scale**2 * theta),
        jax_array(config.granger_prior_scale**2 * granger),
        groups=1 if level == "joint" else M - 1,
        split=split,
        full_noise=full_noise,
    )


def single_row(
    setup: Setup,
    config: RunConfig,
    row: int,
    *,
    rounds: int = 65_536,
    noise: MeasurementNoise | None = None,
) -> Row:
    """Constants and rounds (at most so many) of one row, without padding and absent couplings.

    `noise` is drawn once and added to the measurements.
    """
    p, _ = setup.padded_dims
    model = setup.client_data[row].model
    own, sensors = model.state_dim, model.num_sensors
    no_noise = run_noise(setup, dict.fromkeys(setup.names, 0.0))
    params = jax.tree.map(lambda leaf: leaf[row], row_params(setup, config, no_noise))
    rounds = min(setup.num_rounds, rounds)
    windows = row_windows(setup, no_noise, 0, rounds, np.array([row]))
    windows = jax.tree.map(lambda leaf: leaf[:, 0], windows)
    measured = np.asarray(windows.measurements[..., :sensors])
    if noise is not None:
        stop = min(rounds * setup.window, len(setup.client_data[row].values))
        drawn = np.zeros((rounds * setup.window, sensors))
        drawn[:stop] = noise.draw(row, stop)
        present = np.asarray(windows.observed_weights)[..., None] > 0
        measured = measured + np.where(present, drawn.reshape(measured.shape), 0.0)
    clients, state = np.divmod(_other_columns(setup)[row], p)
    real = (state < np.array(setup.state_dims)[clients]) & (np.asarray(params.coupling) > 0)
    columns = np.flatnonzero(real)
    params = replace(
        params,
        self_transition=params.self_transition[:own, :own],
        predicted_observation=params.predicted_observation[:sensors, :own],
        coupling=jax_array(np.ones(len(columns))),
    )
    windows = replace(
        windows,
        measurements=jax_array(measured),
        causes=windows.causes[..., columns],
        local_targets=windows.local_targets[..., :own],
        noise=windows.noise[..., :sensors],
    )
    return Row(params, windows, clients[columns])


def _other_columns(setup: Setup) -> Int[np.ndarray, "row q"]:
    """For every row, the columns of the stacked states that belong to the other clients."""
    M, (p, _) = len(setup.client_data), setup.padded_dims
    client = np.arange(M * p) // p
    return np.stack([np.flatnonzero(client != m) for m in range(M)])
