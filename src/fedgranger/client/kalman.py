r"""Steady-state Kalman filter of one client, and its data filtered once and cut into windows.

$$h^{t|t-1} = A h^{t-1}, \qquad h^t = h^{t|t-1} + K (y^t - C h^{t|t-1})$$

with the stationary gain \(K = P C^\top (C P C^\top + R)^{-1}\) and P the solution of the discrete
Riccati equation. A missing row is a predict-only step; a segment start restarts at the mean. A row
of which some sensors are missing (`present_sensors`) is brought in by its least-squares state and
with the gain of its own error, P being the stationary one at every step:

$$h^t = h^{t|t-1} + K_t (s_t - h^{t|t-1}), \qquad K_t = P (P + E_t)^{-1}.$$
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from fedgranger.client.params import LocalModel
from fedgranger.client.present_sensors import FilledRows, fill_rows, sensor_model
from fedgranger.client.state_noise import state_readout
from fedgranger.data.client_data import ClientData
from fedgranger.errors import ModelError
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.linalg.psd import symmetrise
from fedgranger.linalg.spectral import WindowMoments, window_moments

CHUNK_STEPS = 65_536


class SteadyGain(NamedTuple):
    """Stationary gain K and the covariance of the state before a measurement."""

    gain: np.ndarray
    predicted_cov: np.ndarray


class FilterParams(eqx.Module):
    """Constants of the filter: A, K C and K."""

    self_transition: Float[Array, "state_dim state_dim"]
    observed_gain: Float[Array, "state_dim state_dim"]
    gain: Float[Array, "state_dim obs_dim"]


def steady_gain(model: LocalModel) -> SteadyGain:
    """Solve the Riccati equation for the stationary Kalman gain.

    The least-squares state (p numbers) is a sufficient statistic of the d measurements, so the
    equation is solved with C = I and R = E: it stays p x p and well posed when R is tiny. With
    E = 0 the state is seen exactly.
    """
    A, Q = model.self_transition, model.process_cov
    W, E = state_readout(model.observation_matrix, model.measurement_cov)
    identity = np.eye(model.state_dim)
    if not E.any():
        return SteadyGain(W, Q)
    try:
        P = symmetrise(scipy.linalg.solve_discrete_are(A.T, identity, Q, E))
    except (np.linalg.LinAlgError, ValueError) as error:
        raise ModelError(
            f"the Riccati equation of the local model has no stabilising solution ({error}); "
            "check process_cov and measurement_cov or use fewer states"
        ) from None
    K = scipy.linalg.solve(P + E, P, assume_a="pos").T
    return SteadyGain(K @ W, P)


def filter_params(model: LocalModel) -> FilterParams:
    """Collect what the recursion needs."""
    K = steady_gain(model).gain
    return FilterParams(
        jax_array(model.self_transition),
        jax_array(K @ model.observation_matrix),
        jax_array(K),
    )


@jax.jit
def run(
    params: FilterParams,
    initial: Float[Array, " state_dim"],
    measurements: Float[Array, "time obs_dim"],
    is_observed: Bool[Array, " time"],
    is_start: Bool[Array, " time"],
) -> Float[Array, "time state_dim"]:
    """Filter a stretch of measurements, starting from the last state of the stretch before."""

    def advance(previous: Array, inputs: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        gained, is_observed, is_start = inputs
        predicted = jnp.where(is_start, 0.0, params.self_transition @ previous)
        corrected = predicted + gained - params.observed_gain @ predicted
        state = jnp.where(is_observed, corrected, predicted)
        return state, state

    gained = measurements @ params.gain.T  # K y, for all steps at once
    _, states = lax.scan(advance, initial, (gained, is_observed, is_start))
    return states


@jax.jit
def run_varying(
    self_transition: Float[Array, "state_dim state_dim"],
    gains: Float[Array, "num_patterns state_dim state_dim"],
    initial: Float[Array, " state_dim"],
    states: Float[Array, "time state_dim"],
    pattern: Int[Array, " time"],
    is_observed: Bool[Array, " time"],
    is_start: Bool[Array, " time"],
) -> Float[Array, "time state_dim"]:
    """The same from least-squares states, every step with the gain of the sensors it has."""

    def advance(previous: Array, inputs: tuple[Array, ...]) -> tuple[Array, Array]:
        seen, which, is_observed, is_start = inputs
        predicted = jnp.where(is_start, 0.0, self_transition @ previous)
        corrected = predicted + gains[which] @ (seen - predicted)
        state = jnp.where(is_observed, corrected, predicted)
        return state, state

    _, filtered = lax.scan(advance, initial, (states, pattern, is_observed, is_start))
    return filtered


class WindowArrays(NamedTuple):
    """The fields of `augment.ClientWindow` for a stretch of time steps, as NumPy arrays."""

    measurements: np.ndarray
    filtered_states: np.ndarray
    local_targets: np.ndarray
    local_energies: np.ndarray
    is_observed: np.ndarray
    has_next: np.ndarray


class FilteredData(NamedTuple):
    """Private data of one client, ready for training.

    Attributes:
        values: raw measurements (time, sensor); rows that lack sensors are filled by the others.
        filtered_states: h_c for every time step.
        is_observed: the row is complete or filled; others count as missing.
        has_next: the row and its successor are observed and consecutive.
    """

    name: str
    model: LocalModel
    values: np.ndarray
    filtered_states: np.ndarray
    is_observed: np.ndarray
    has_next: np.ndarray

    def scaled(self, start: int, stop: int) -> np.ndarray:
        """Measurements in the model's units, zero where missing."""
        rows = slice(start, stop)
        return np.where(self.is_observed[rows, None], self.model.scaled(self.values[rows]), 0.0)

    def steps(self, start: int, stop: int) -> WindowArrays:
        """Return the learner's inputs for the time steps `start:stop` (stop at most T - 1)."""
        h_c, paired = self.filtered_states[start:stop], self.has_next[start:stop]
        y = self.scaled(start, stop + 1)
        CA = self.model.predicted_observation
        innovation = np.where(paired[:, None], y[1:] - h_c @ CA.T, 0.0)
        return WindowArrays(
            y[:-1],
            h_c,
            innovation @ CA,
            (innovation**2).sum(axis=1),
            self.is_observed[start:stop],
            paired,
        )


def measured_moments(data: FilteredData, window: int) -> WindowMoments:
    """Moments of the scaled measurements over the steps that training uses."""
    num_pairs = len(data.values) - 1
    return window_moments(data.scaled(0, num_pairs), data.is_observed[:-1], window)


def state_moments(data: FilteredData, window: int) -> WindowMoments:
    """Moments of the filtered states over the steps that training uses."""
    states = data.filtered_states[:-1]
    return window_moments(states, np.ones(len(states), dtype=np.bool_), window)


def filter_data(client: ClientData, model: LocalModel, segment_starts: np.ndarray) -> FilteredData:
    """Filter a client's data in chunks of bounded size."""
    rows = fill_rows(client, sensor_model(model))
    there, num_steps = rows.data.row_observed, len(client.values)
    states = np.empty((num_steps, model.state_dim))
    has_next = np.zeros(num_steps, dtype=np.bool_)
    has_next[:-1] = there[:-1] & there[1:] & ~segment_starts[1:]
    data = FilteredData(client.name, model, rows.data.values, states, there, has_next)
    advance = _chunk_filter(model, rows)
    last = jax_array(np.zeros(model.state_dim))
    for start in range(0, num_steps, CHUNK_STEPS):
        at = slice(start, start + CHUNK_STEPS)
        flags = jax_array(there[at]), jax_array(segment_starts[at])
        states[at] = np.asarray(advance(last, at, data.scaled(at.start, at.stop), *flags))
        last = jax_array(states[at][-1])
    return data


def _chunk_filter(model: LocalModel, rows: FilledRows) -> Callable[..., Array]:
    """How a stretch is filtered: with one gain, or with the gains of the sensors that are there."""
    if not rows.num_filled:
        params = filter_params(model)

        def steady(
            last: Array, _: slice, y: np.ndarray, is_observed: Array, starts: Array
        ) -> Array:
            return run(params, last, jax_array(y), is_observed, starts)

        return steady
    W, E = state_readout(model.observation_matrix, model.measurement_cov)
    A, gains = jax_array(model.self_transition), jax_array(state_gains(model, E, rows.error_covs))

    def varying(last: Array, at: slice, y: np.ndarray, is_observed: Array, starts: Array) -> Array:
        which = jax_array(rows.pattern[at] + 1)
        return run_varying(A, gains, last, jax_array(y @ W.T), which, is_observed, starts)

    return varying


def state_gains(model: LocalModel, error_cov: np.ndarray, error_covs: np.ndarray) -> np.ndarray:
    """K = P (P + E)⁻¹ of a complete row, then of every set of present sensors."""
    covs = np.concatenate([error_cov[None], error_covs])
    if not error_cov.any():
        return np.broadcast_to(np.eye(model.state_dim), covs.shape).copy()
    P = steady_gain(model).predicted_cov
    return np.linalg.solve(P + covs, np.broadcast_to(P, covs.shape)).transpose(0, 2, 1)
