r"""Second moments of a row's random gain: \(\Sigma \mapsto E[\delta K\, \Sigma\, \delta K]\).

In the scaled coordinates of `statistics` the gain of a round is \(K = \mathrm{ridge} + C\),
\(C = \sum_t L_t N_t L_t^\top\) symmetric. \(E[C\Sigma C]\) is applied through its factors and never
formed; for windows of several steps the round's own update (`spread`) does it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgranger.uncertainty.gains import gains
from fedgranger.uncertainty.inputs import RowParams, RowWindow
from fedgranger.uncertainty.spread import spread
from fedgranger.uncertainty.statistics import RowStatistics, collect
from fedgranger.uncertainty.terms import RowCov

__all__ = ["Map", "gain_noise"]

Map = Callable[[np.ndarray], np.ndarray]
MAX_ROUNDS = 1024
MAX_LONG_ROUNDS = 512


def gain_noise(params: RowParams, windows: RowWindow, averages: RowStatistics) -> Map:
    """Measure on (a sample of) the rounds of one row."""
    is_long = windows.measurements.shape[1] > 1
    is_long = is_long or bool(np.asarray(windows.noise).any())
    active = np.flatnonzero(np.asarray(windows.is_active) > 0)
    keep = _sample(active, MAX_LONG_ROUNDS if is_long else MAX_ROUNDS)
    chosen = jax.tree.map(lambda leaf: leaf[keep], windows)
    return (_by_rounds if is_long else _by_factors)(params, chosen, averages.shape)


def _sample(rounds: np.ndarray, limit: int) -> np.ndarray:
    if len(rounds) <= limit:
        return rounds
    return rounds[np.linspace(0, len(rounds) - 1, limit).round().astype(int)]


def _by_factors(params: RowParams, windows: RowWindow, shape: tuple[int, int, int]) -> Map:
    p, d, _ = shape
    split = p * d
    wp, wo = np.asarray(windows.paired_weights[:, 0]), np.asarray(windows.observed_weights[:, 0])
    sides = tuple(np.asarray(x[:, 0]) * wo[:, None] for x in (windows.measurements, windows.causes))
    A, CA = np.asarray(params.self_transition), np.asarray(params.predicted_observation)
    eta1, eta2 = float(params.local_step_size), float(params.feedback_step_size)
    gamma = float(params.server_step_size)
    between = -2 * np.sqrt(eta2 * gamma) * A.T
    feedback = np.block([[2 * eta2 * A.T @ A, between], [between.T, 2 * gamma * np.eye(p)]])
    own = np.zeros((2 * p, 2 * p))
    own[:p, :p] = 2 * eta1 * CA.T @ CA
    N = wo[:, None, None] * feedback + wp[:, None, None] * own  # weights are 0 or 1 here
    # the mean is that of the same rounds, so that the difference is a variance
    mean = np.empty((p * (d + sides[1].shape[1]),) * 2)
    for a, rows, left, b, columns, right in _blocks(split, sides):
        part = N[:, a * p : (a + 1) * p, b * p : (b + 1) * p] / len(N)
        mean[rows, columns] = _weighted(part, left, right)

    def apply(sigma: np.ndarray) -> np.ndarray:
        inside = np.empty_like(N)
        for a, rows, left, b, columns, right in _blocks(split, sides):
            block = sigma[rows, columns].reshape(p, left.shape[1], p, right.shape[1])
            half = np.tensordot(left, block, (1, 1))  # (time, i, k, l)
            part = (half * right[:, None, None, :]).sum(axis=3)
            inside[:, a * p : (a + 1) * p, b * p : (b + 1) * p] = part
        pulled = N @ inside @ N / len(N)
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


def _by_rounds(params: RowParams, windows: RowWindow, shape: tuple[int, int, int]) -> Map:
    own = collect(params, windows)
    p, d, q = shape
    split, n = p * d, p * (d + q)
    outer = np.outer(own.scale, own.scale)
    contraction = np.eye(n) - own.gain

    def apply(sigma: np.ndarray) -> np.ndarray:
        plain = sigma / outer
        cov = RowCov(
            jnp.asarray(plain[:split, :split].reshape(p, d, p, d)),
            jnp.asarray(plain[:split, split:].reshape(p, d, p, q)),
            jnp.asarray(plain[split:, split:].reshape(1, p, q, p, q)),
        )
        top, cross, low = (np.asarray(part) for part in _average(params, windows, cov))
        full = np.empty((n, n))
        full[:split, :split] = top.reshape(split, split)
        full[:split, split:] = cross.reshape(split, -1)
        full[split:, :split] = full[:split, split:].T
        full[split:, split:] = low.reshape(n - split, n - split)
        return full * outer - contraction @ sigma @ contraction

    return apply


@jax.jit
def _average(params: RowParams, windows: RowWindow, cov: RowCov) -> RowCov:
    """Mean over rounds of F Σ Fᵀ."""

    def one(total: RowCov, window: RowWindow) -> tuple[RowCov, None]:
        new = spread(gains(params, window), window, cov)
        return RowCov(*(a + b for a, b in zip(total, new, strict=True))), None

    start = RowCov(*(jnp.zeros_like(part) for part in cov))
    total = lax.scan(one, start, windows)[0]
    count = windows.measurements.shape[0]
    return RowCov(*(part / count for part in total))
