r"""Steady-state Kalman filter of one client.

$$h^{t|t-1} = A h^{t-1}, \qquad h^t = h^{t|t-1} + K (y^t - C h^{t|t-1})$$

with the stationary gain \(K = P C^\top (C P C^\top + R)^{-1}\) and P the solution of the discrete
Riccati equation. A missing sample is a predict-only step; a segment start restarts at the mean.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import lax
from jaxtyping import Array, Bool, Float

from fedgranger.client.params import LocalModel
from fedgranger.client.state_noise import state_readout
from fedgranger.errors import ModelError
from fedgranger.linalg.psd import symmetrise


class SteadyGain(NamedTuple):
    """Stationary gain K and the state covariances before and after a measurement."""

    gain: np.ndarray
    predicted_cov: np.ndarray
    filtered_cov: np.ndarray


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
        return SteadyGain(W, Q, np.zeros_like(Q))
    try:
        P = symmetrise(scipy.linalg.solve_discrete_are(A.T, identity, Q, E))
    except (np.linalg.LinAlgError, ValueError) as error:
        raise ModelError(
            f"the Riccati equation of the local model has no stabilising solution ({error}); "
            "check process_cov and measurement_cov or use fewer states"
        ) from None
    K = scipy.linalg.solve(P + E, P, assume_a="pos").T
    return SteadyGain(K @ W, P, symmetrise(P - K @ P))


def filter_params(model: LocalModel) -> FilterParams:
    """Collect what the recursion needs."""
    K = steady_gain(model).gain
    return FilterParams(
        jnp.asarray(model.self_transition),
        jnp.asarray(K @ model.observation_matrix),
        jnp.asarray(K),
    )


def step(
    params: FilterParams,
    previous: Float[Array, " state_dim"],
    gained: Float[Array, " state_dim"],
    is_observed: Bool[Array, ""],
    is_start: Bool[Array, ""],
) -> Float[Array, " state_dim"]:
    """Advance the filtered state; `gained` is K y, computed for all steps at once."""
    predicted = jnp.where(is_start, 0.0, params.self_transition @ previous)
    corrected = predicted + gained - params.observed_gain @ predicted
    return jnp.where(is_observed, corrected, predicted)


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
        state = step(params, previous, *inputs)
        return state, state

    gained = measurements @ params.gain.T
    _, states = lax.scan(advance, initial, (gained, is_observed, is_start))
    return states
