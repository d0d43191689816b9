r"""Moments, over the rounds of one row, of its random update \(x^+ = (I - K)x + b\).

The mean map is \(x^+ = (I - \bar K)x + \bar b\),
\(\bar K = E[\sum_t w_t L_t N L_t^\top] + \mathrm{ridge}\). With Â measured in units of
\(\sqrt{\gamma/\eta_2}\), \(\bar K\) is symmetric and positive semidefinite (`scale`), so one
eigendecomposition serves the fixed point, the stability and the Lyapunov equation.
Parameters are ordered row by row: θ's entries, then Â's.

On data that drift the averages are those of one time: every round has a weight
(`linalg.time_weights`), and E[yyᵀ], E[ygᵀ] and E[ggᵀ] are the tracked moments of the paper's
appendix ("Relaxing Stationary Assumptions"). Equal weights are the stationary case.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from fedgranger.errors import UnstableRecursionError
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.uncertainty.inputs import RowParams, RowWindow


class UpdateMoments(NamedTuple):
    """Averages over rounds.

    Attributes:
        gain: K̄ in scaled coordinates, symmetric, n x n.
        drift: b̄ in scaled coordinates.
        scale: what x is multiplied with to get there: 1 for θ, √(η2/γ) for Â.
        shape: (p, d, q).
        num_rounds: how many rounds were averaged.
    """

    gain: Float[np.ndarray, "n n"]
    drift: Float[np.ndarray, " n"]
    scale: Float[np.ndarray, " n"]
    shape: tuple[int, int, int]
    num_rounds: int


def update_moments(
    params: RowParams, windows: RowWindow, weights: Float[np.ndarray, " round"] | None = None
) -> UpdateMoments:
    """Average over the rounds of one row (leading axis of `windows`), by their weights.

    Raises:
        UnstableRecursionError: the feedback or the server step size is zero.
    """
    for name in ("feedback_step_size", "server_step_size"):
        if float(getattr(params, name)) <= 0:
            raise UnstableRecursionError(
                f"{name} is 0, so client and server are not coupled both ways and the steady state "
                "keeps the prior; use a positive one"
            )
    A, CA = np.asarray(params.self_transition), np.asarray(params.predicted_observation)
    eta1, eta2, gamma = params.step_sizes
    active = np.asarray(windows.is_active)
    shares = round_shares(windows, weights)
    num_rounds = max(int((active * shares > 0).sum()), 1)
    paired, observed, between, causes, drift = (
        np.asarray(part) / max(int(active.sum()), 1) for part in _sums(windows, jax_array(shares))
    )
    (p, d), q = CA.T.shape, causes.shape[0]
    S, G = CA.T @ CA, A.T @ A
    theta = 2 * eta1 * np.kron(S, paired) + 2 * eta2 * np.kron(G, observed)
    cross = -2 * np.sqrt(eta2 * gamma) * np.kron(A.T, between)
    granger = 2 * gamma * np.kron(np.eye(p), causes)
    ridge = np.concatenate(
        [
            np.full(p * d, 2 * eta1 * float(params.augmentation_ridge)),
            np.full(p * q, 2 * gamma * float(params.granger_ridge)),
        ]
    )
    gain = np.block([[theta, cross], [cross.T, granger]]) + np.diag(ridge)
    scale = np.concatenate([np.ones(p * d), np.full(p * q, np.sqrt(eta2 / gamma))])
    full_drift = np.concatenate([2 * eta1 * drift.reshape(-1), np.zeros(p * q)])
    return UpdateMoments(gain, full_drift, scale, (p, d, q), num_rounds)


def round_shares(
    windows: RowWindow, weights: Float[np.ndarray, " round"] | None
) -> Float[np.ndarray, " round"]:
    """Weights of the rounds with mean one over those that have any sample."""
    active = np.asarray(windows.is_active)
    if weights is None:
        return np.ones(len(active))
    total = float((weights * active).sum())
    return weights * (max(int(active.sum()), 1) / total if total else 0.0)


@jax.jit
def _sums(windows: RowWindow, shares: Float[Array, " round"]) -> tuple[Array, ...]:
    y, g = windows.measurements, windows.causes
    wp = windows.paired_weights * shares[:, None]
    wo = windows.observed_weights * shares[:, None]
    noise = windows.noise
    eye = jnp.eye(y.shape[-1])[None, None]
    full = noise if noise.ndim == y.ndim + 1 else noise[..., None] * eye
    return (
        jnp.einsum("rt,rtj,rtl->jl", wp, y, y) + jnp.einsum("rt,rtjl->jl", wp, full),
        jnp.einsum("rt,rtj,rtl->jl", wo, y, y) + jnp.einsum("rt,rtjl->jl", wo, full),
        jnp.einsum("rt,rtj,rtl->jl", wo, y, g),
        jnp.einsum("rt,rtj,rtl->jl", wo, g, g),
        jnp.einsum("rt,rti,rtj->ij", wp, windows.local_targets, y),
    )


def scores(
    params: RowParams,
    windows: RowWindow,
    theta: Float[np.ndarray, "p d"],
    granger: Float[np.ndarray, "p q"],
) -> Float[np.ndarray, "round n"]:
    r"""Update noise \(n = b - Kx\) of every active round at given parameters, (rounds, n).

    θ's part is \(\sum_t w_t e_t y_t^\top\), Â's is \(2\gamma \sum_t w_t r_t g_t^\top\), less ridge.
    """
    found = np.asarray(_scores(params, windows, jax_array(theta), jax_array(granger)))
    return found[np.asarray(windows.is_active) > 0]


@jax.jit
def _scores(
    params: RowParams,
    windows: RowWindow,
    theta: Float[Array, "p d"],
    granger: Float[Array, "p q"],
) -> Float[Array, "round n"]:
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


def split_parameters(
    x: Num[np.ndarray, " n"], shape: tuple[int, int, int]
) -> tuple[Num[np.ndarray, "p d"], Num[np.ndarray, "p q"]]:
    """θ and Â from the vector of this module."""
    p, d, q = shape
    return x[: p * d].reshape(p, d), x[p * d :].reshape(p, q)


def split_cov(
    cov: Float[np.ndarray, "n n"], shape: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Blocks θ-θ, θ-Â and Â-Â of a covariance of such vectors, by entries as in `RowCov`."""
    p, d, q = shape
    k = p * d
    return (
        cov[:k, :k].reshape(p, d, p, d),
        cov[:k, k:].reshape(p, d, p, q),
        cov[k:, k:].reshape(p, q, p, q),
    )


def join_cov(theta: np.ndarray, cross: np.ndarray, granger: np.ndarray) -> np.ndarray:
    """Undo `split_cov`."""
    p, d, _, q = cross.shape
    between = cross.reshape(p * d, p * q)
    return np.block(
        [[theta.reshape(p * d, p * d), between], [between.T, granger.reshape(p * q, p * q)]]
    )
