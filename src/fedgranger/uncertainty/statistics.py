r"""Averages over the rounds of one row that decide where its parameters go and how they spread.

The mean map of a round is \(x^+ = (I - \bar K)x + \bar b\),
\(\bar K = E[\sum_t w_t L_t N L_t^\top] + \mathrm{ridge}\). With Â measured in units of
\(\sqrt{\gamma/\eta_2}\), \(\bar K\) is symmetric and positive semidefinite (`scale`), so one
eigendecomposition serves the fixed point, the stability and the Lyapunov equation.
Parameters are ordered row by row: θ's entries, then Â's.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from fedgranger.errors import UnstableRecursionError
from fedgranger.uncertainty.inputs import RowParams, RowWindow

__all__ = ["RowStatistics", "collect", "flatten", "scores", "unflatten"]


class RowStatistics(NamedTuple):
    """Averages over rounds.

    Attributes:
        gain: K̄ in scaled coordinates, symmetric, n x n.
        drift: b̄ in scaled coordinates.
        scale: what x is multiplied with to get there: 1 for θ, √(η2/γ) for Â.
        measurement_moment: E[yyᵀ] over observed steps, noise included.
        cause_moment: E[ggᵀ] over observed steps.
        measurement_mean: E[y] over observed steps.
        shape: (p, d, q).
        num_rounds: how many rounds were averaged.
    """

    gain: np.ndarray
    drift: np.ndarray
    scale: np.ndarray
    measurement_moment: np.ndarray
    cause_moment: np.ndarray
    measurement_mean: np.ndarray
    shape: tuple[int, int, int]
    num_rounds: int


def collect(params: RowParams, windows: RowWindow) -> RowStatistics:
    """Average over the rounds of one row (leading axis of `windows`).

    Raises:
        UnstableRecursionError: the feedback or the server step size is zero.
    """
    _check_moving(params)
    A, CA = np.asarray(params.self_transition), np.asarray(params.predicted_observation)
    eta1, eta2, gamma = (
        float(params.local_step_size),
        float(params.feedback_step_size),
        float(params.server_step_size),
    )
    active = np.asarray(windows.is_active)
    num_rounds = max(int(active.sum()), 1)
    paired, observed, between, causes, drift, mean = (
        np.asarray(part) / num_rounds for part in _sums(windows)
    )
    (p, d), q = CA.T.shape, causes.shape[0]
    S, G = CA.T @ CA, A.T @ A
    theta = 2 * eta1 * _kron(S, paired) + 2 * eta2 * _kron(G, observed)
    cross = -2 * np.sqrt(eta2 * gamma) * _kron(A.T, between)
    granger = 2 * gamma * _kron(np.eye(p), causes)
    ridge = np.concatenate(
        [
            np.full(p * d, 2 * eta1 * float(params.augmentation_ridge)),
            np.full(p * q, 2 * gamma * float(params.granger_ridge)),
        ]
    )
    gain = np.block([[theta, cross], [cross.T, granger]]) + np.diag(ridge)
    scale = np.concatenate([np.ones(p * d), np.full(p * q, np.sqrt(eta2 / gamma))])
    full_drift = np.concatenate([2 * eta1 * drift.reshape(-1), np.zeros(p * q)])
    return RowStatistics(gain, full_drift, scale, observed, causes, mean, (p, d, q), num_rounds)


def _check_moving(params: RowParams) -> None:
    for name, value in (
        ("feedback_step_size", params.feedback_step_size),
        ("server_step_size", params.server_step_size),
    ):
        if float(value) <= 0:
            raise UnstableRecursionError(
                f"{name} is 0, so client and server are not coupled both ways and the steady state "
                "keeps the prior; use a positive one"
            )


@jax.jit
def _sums(windows: RowWindow) -> tuple[Array, ...]:
    y, g = windows.measurements, windows.causes
    wp, wo = windows.paired_weights, windows.observed_weights
    noise = windows.noise
    eye = jnp.eye(y.shape[-1])[None, None]
    full = noise if noise.ndim == y.ndim + 1 else noise[..., None] * eye
    return (
        jnp.einsum("rt,rtj,rtl->jl", wp, y, y) + jnp.einsum("rt,rtjl->jl", wp, full),
        jnp.einsum("rt,rtj,rtl->jl", wo, y, y) + jnp.einsum("rt,rtjl->jl", wo, full),
        jnp.einsum("rt,rtj,rtl->jl", wo, y, g),
        jnp.einsum("rt,rtj,rtl->jl", wo, g, g),
        jnp.einsum("rt,rti,rtj->ij", wp, windows.local_targets, y),
        jnp.einsum("rt,rtj->j", wo, y),
    )


def scores(
    params: RowParams, windows: RowWindow, theta: np.ndarray, granger: np.ndarray
) -> np.ndarray:
    r"""Update noise \(n = b - Kx\) of every active round at given parameters, (rounds, n).

    θ's part is \(\sum_t w_t e_t y_t^\top\), Â's is \(2\gamma \sum_t w_t r_t g_t^\top\), less ridge.
    """
    found = np.asarray(_scores(params, windows, jnp.asarray(theta), jnp.asarray(granger)))
    return found[np.asarray(windows.is_active) > 0]


@jax.jit
def _scores(params: RowParams, windows: RowWindow, theta: Array, granger: Array) -> Array:
    A, CA = params.self_transition, params.predicted_observation
    y, g = windows.measurements, windows.causes
    wp, wo = windows.paired_weights[..., None], windows.observed_weights[..., None]
    phi, rho = y @ theta.T, g @ granger.T
    own = windows.local_targets - phi @ (CA.T @ CA)
    residual = phi @ A.T - rho
    e = 2 * params.local_step_size * wp * own - 2 * params.feedback_step_size * wo * (residual @ A)
    on_theta = jnp.einsum("rti,rtj->rij", e, y)
    on_theta = on_theta - 2 * params.local_step_size * params.augmentation_ridge * theta[None]
    on_granger = 2 * params.server_step_size * jnp.einsum("rti,rtj->rij", wo * residual, g)
    on_granger = on_granger - 2 * params.server_step_size * params.granger_ridge * granger[None]
    rounds = y.shape[0]
    parts = [on_theta.reshape(rounds, -1), on_granger.reshape(rounds, -1)]
    return jnp.concatenate(parts, axis=1)


def flatten(theta: np.ndarray, granger: np.ndarray) -> np.ndarray:
    """Parameters in the order of this module."""
    return np.concatenate([theta.reshape(-1), granger.reshape(-1)])


def unflatten(x: np.ndarray, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Undo `flatten`."""
    p, d, q = shape
    return x[: p * d].reshape(p, d), x[p * d :].reshape(p, q)


def _kron(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """[(i, j), (k, l)] = left_ik right_jl: the Kronecker product in row-by-row order."""
    return np.kron(left, right)
