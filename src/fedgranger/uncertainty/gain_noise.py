r"""The second moment of a row's gain: \(\Sigma \mapsto E[\delta K\, \Sigma\, \delta K]\).

It is applied through the factors of \(\sum_t L_t N_t L_t^\top\) (`update_moments`), and for windows
of several steps or noisy regressors through the round's own update (`covariance_update`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.uncertainty.covariance_terms import RowCov
from fedgranger.uncertainty.covariance_update import next_cov, update_terms
from fedgranger.uncertainty.inputs import RowParams, RowWindow, round_gains
from fedgranger.uncertainty.update_moments import (
    UpdateMoments,
    join_cov,
    round_shares,
    split_cov,
    update_moments,
)

CovMap = Callable[[np.ndarray], np.ndarray]
"""A linear map of covariance matrices."""
MAX_ROUNDS = 1024
MAX_LONG_ROUNDS = 512


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
