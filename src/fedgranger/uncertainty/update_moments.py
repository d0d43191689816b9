r"""Moments, over the rounds of one row, of its random update \(x^+ = (I - K)x + b\).

The mean map is \(x^+ = (I - \bar K)x + \bar b\),
\(\bar K = E[\sum_t w_t L_t N L_t^\top] + \mathrm{ridge}\). With Â measured in units of
\(\sqrt{\gamma/\eta_2}\), \(\bar K\) is symmetric and positive semidefinite (`scale`), so one
eigendecomposition serves the fixed point, the stability and the Lyapunov equation.
Parameters are ordered row by row: θ's entries, then Â's.

The gain's second moment, \(\Sigma \mapsto E[\delta K\, \Sigma\, \delta K]\), is applied through the
factors of \(\sum_t L_t N_t L_t^\top\), and for windows of several steps or noisy regressors
through the round's own update (`covariance_update`).

On data that drift the averages are those of one time: every round has a weight
(`linalg.time_weights`), and E[yyᵀ], E[ygᵀ] and E[ggᵀ] are the tracked moments of the paper's
appendix ("Relaxing Stationary Assumptions"). Equal weights are the stationary case.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Num

from fedgranger.errors import UnstableRecursionError
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.uncertainty.covariance_update import next_cov, update_terms
from fedgranger.uncertainty.inputs import RowParams, RowWindow
from fedgranger.uncertainty.round_terms import RowCov, round_gains

CovMap = Callable[[np.ndarray], np.ndarray]
"""A linear map of covariance matrices."""
MAX_ROUNDS = 1024
MAX_LONG_ROUNDS = 512


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


def gain_noise(
    params: RowParams,
    windows: RowWindow,
    moments: UpdateMoments,
    weights: Float[np.ndarray, " round"] | None = None,
) -> CovMap:
    """Σ ↦ E[δK Σ δK] in scaled coordinates, measured on (a sample of) the rounds of one row."""
    is_long = windows.measurements.shape[1] > 1
    is_long = is_long or bool(np.asarray(windows.noise).any())
    shares = round_shares(windows, weights)
    active = np.flatnonzero((np.asarray(windows.is_active) > 0) & (shares > 0))
    limit = MAX_LONG_ROUNDS if is_long else MAX_ROUNDS
    keep = active
    if len(active) > limit:
        keep = active[np.linspace(0, len(active) - 1, limit).round().astype(int)]
    chosen = jax.tree.map(lambda leaf: np.asarray(leaf)[keep], windows)
    shares = shares[keep] / shares[keep].mean()
    return (_by_rounds if is_long else _by_factors)(params, chosen, moments.shape, shares)


def _by_factors(
    params: RowParams, windows: RowWindow, shape: tuple[int, int, int], shares: np.ndarray
) -> CovMap:
    p, d, _ = shape
    split = p * d
    wp, wo = np.asarray(windows.paired_weights[:, 0]), np.asarray(windows.observed_weights[:, 0])
    sides = tuple(np.asarray(x[:, 0]) * wo[:, None] for x in (windows.measurements, windows.causes))
    A, CA = np.asarray(params.self_transition), np.asarray(params.predicted_observation)
    eta1, eta2, gamma = params.step_sizes
    between = -2 * np.sqrt(eta2 * gamma) * A.T
    feedback = np.block([[2 * eta2 * A.T @ A, between], [between.T, 2 * gamma * np.eye(p)]])
    own = np.zeros((2 * p, 2 * p))
    own[:p, :p] = 2 * eta1 * CA.T @ CA
    N = wo[:, None, None] * feedback + wp[:, None, None] * own  # weights are 0 or 1 here
    share = shares[:, None, None] / len(N)
    # the mean is that of the same rounds, so that the difference is a variance
    mean = np.empty((p * (d + sides[1].shape[1]),) * 2)
    for a, rows, left, b, columns, right in _blocks(split, sides):
        part = share * N[:, a * p : (a + 1) * p, b * p : (b + 1) * p]
        mean[rows, columns] = _weighted(part, left, right)

    def apply(sigma: np.ndarray) -> np.ndarray:
        inside = np.empty_like(N)
        for a, rows, left, b, columns, right in _blocks(split, sides):
            block = sigma[rows, columns].reshape(p, left.shape[1], p, right.shape[1])
            half = np.tensordot(left, block, (1, 1))  # (time, i, k, l)
            part = (half * right[:, None, None, :]).sum(axis=3)
            inside[:, a * p : (a + 1) * p, b * p : (b + 1) * p] = part
        pulled = share * (N @ inside @ N)
        out = -mean @ sigma @ mean
        for a, rows, left, b, columns, right in _blocks(split, sides):
            part = pulled[:, a * p : (a + 1) * p, b * p : (b + 1) * p]
            out[rows, columns] += _weighted(part, left, right)
        return out

    return apply


def _blocks(split: int, sides: tuple[np.ndarray, ...]) -> Iterator[tuple]:
    """The four blocks (θ or Â) x (θ or Â) with their regressors."""
    places = (slice(0, split), slice(split, None))
    for a, b in itertools.product((0, 1), (0, 1)):
        yield a, places[a], sides[a], b, places[b], sides[b]


def _weighted(weights: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Σ_t weights_t,ik left_tj right_tl as a matrix [(i, j), (k, l)]."""
    p = weights.shape[1]
    rows = [[(left * weights[:, i, k, None]).T @ right for k in range(p)] for i in range(p)]
    return np.block(rows)


def _by_rounds(
    params: RowParams, windows: RowWindow, shape: tuple[int, int, int], shares: np.ndarray
) -> CovMap:
    windows, share = jax.device_put(windows), jax_array(shares)
    own = update_moments(params, windows, shares)
    outer = np.outer(own.scale, own.scale)
    contraction = np.eye(len(outer)) - own.gain

    def apply(sigma: np.ndarray) -> np.ndarray:
        theta, cross, granger = map(jax_array, split_cov(sigma / outer, shape))
        found = _average(params, windows, RowCov(theta, cross, granger[None]), share)
        theta, cross, granger = (np.asarray(part) for part in found)
        return join_cov(theta, cross, granger[0]) * outer - contraction @ sigma @ contraction

    return apply


@jax.jit
def _average(
    params: RowParams, windows: RowWindow, cov: RowCov, shares: Float[Array, " round"]
) -> RowCov:
    """Mean over rounds of F Σ Fᵀ, by their weights."""

    def one(total: RowCov, inputs: tuple[RowWindow, Array]) -> tuple[RowCov, None]:
        window, share = inputs
        gain = round_gains(params, window)
        new = next_cov(gain, window, cov, update_terms(gain, window, cov))
        return RowCov(*(a + share * b for a, b in zip(total, new, strict=True))), None

    start = RowCov(*(jnp.zeros_like(part) for part in cov))
    total = lax.scan(one, start, (windows, shares))[0]
    count = windows.measurements.shape[0]
    return RowCov(*(part / count for part in total))
