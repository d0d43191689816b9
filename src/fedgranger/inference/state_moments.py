r"""First and second moments of the clients' states, from pairs that are complete in two clients.

With samples missing, \(E[s_m^+ s_n^\top]\) is averaged over the pairs in which client m is
observed at t+1 and client n at t, each block by its own weight: every block stays unbiased
however often other clients are absent. Weights of time steps are for data whose statistics drift.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedgranger.inference.states import PairChunk, StateSource, lagged_pairs
from fedgranger.linalg.unbroken_steps import rows_at


class StateMoments(NamedTuple):
    """Moments of centred states; columns are the lagged states of all clients.

    Attributes:
        mean: of each state, over its observed steps.
        before_cov: E[x xᵀ], x the lagged states.
        lag_cov: E[s⁺ xᵀ].
        after_cov: E[s⁺ s⁺ᵀ].
        before_weight: total weight behind each block of `before_cov`.
        lag_weight: the same for `lag_cov`.
        num_pairs: pairs with positive weight.
        total_weight: sum of the weights of all pairs.
        total_square: sum of their squares; (sum)² / (sum of squares) is the effective number.
        total_fourth: sum of their fourth powers: how unevenly a variance estimate counts pairs.
        is_complete: nothing is missing.
    """

    mean: Float[np.ndarray, " state"]
    before_cov: Float[np.ndarray, "lagged lagged"]
    lag_cov: Float[np.ndarray, "state lagged"]
    after_cov: Float[np.ndarray, "state state"]
    before_weight: Float[np.ndarray, "lagged_client lagged_client"]
    lag_weight: Float[np.ndarray, "client lagged_client"]
    num_pairs: int
    total_weight: float
    total_square: float
    total_fourth: float
    is_complete: bool

    @property
    def effective_pairs(self) -> float:
        """(Σw)²/Σw², the number of equally weighted pairs with as much information."""
        return self.total_weight**2 / self.total_square if self.total_square else 0.0

    @property
    def unevenness(self) -> float:
        """N Σw⁴/(Σw²)²: by how much weights raise the relative variance of a variance; 1: none."""
        return self.num_pairs * self.total_fourth / self.total_square**2


class MomentSums(NamedTuple):
    """What moments are quotients of: sums over pairs, so that parts of a record can be taken out.

    The names are those of `StateMoments`; products and weights are not divided yet.
    """

    before: Float[np.ndarray, "lagged lagged"]
    lag: Float[np.ndarray, "state lagged"]
    after: Float[np.ndarray, "state state"]
    before_weight: Float[np.ndarray, "lagged_client lagged_client"]
    lag_weight: Float[np.ndarray, "client lagged_client"]
    after_weight: Float[np.ndarray, "client client"]
    num_pairs: int
    num_incomplete: int
    total_weight: float
    total_square: float
    total_fourth: float

    def plus(self, other: MomentSums, sign: int = 1) -> MomentSums:
        """The sums of both, or with sign −1 of the pairs that the other does not have."""
        return MomentSums._make(a + sign * b for a, b in zip(self, other, strict=True))

    def moments(
        self, mean: Float[np.ndarray, " state"], dims: tuple[int, ...], lags: int
    ) -> StateMoments:
        """The sums over their weights; NaN, which is refused later, without a common pair."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return StateMoments(
                mean,
                self.before / expand(self.before_weight, dims, lags, lags),
                self.lag / expand(self.lag_weight, dims, 1, lags),
                self.after / expand(self.after_weight, dims, 1, 1),
                self.before_weight,
                self.lag_weight,
                self.num_pairs,
                self.total_weight,
                self.total_square,
                self.total_fourth,
                self.num_incomplete == 0,
            )


def accumulate(source: StateSource, lags: int) -> StateMoments:
    """Read the source twice: once for the means, once for the products."""
    mean = weighted_mean(source)
    sums = _no_pairs(source, lags)
    for pairs in lagged_pairs(source, lags, mean):
        sums = sums.plus(_sums(source, pairs))
    return sums.moments(mean, source.dims, lags)


def moments_without_blocks(
    source: StateSource, lags: int, num_blocks: int, mean: Float[np.ndarray, " state"]
) -> Iterator[StateMoments]:
    """Moments without each of so many equal stretches of time, reading the source once.

    All are about the mean of the whole record; a pair belongs to the stretch of its time step.
    """
    blocks = [_no_pairs(source, lags)] * num_blocks
    for pairs in lagged_pairs(source, lags, mean):
        block = pairs.step * num_blocks // source.num_steps
        for b in np.unique(block):
            part = PairChunk(*(rows_at(column, np.flatnonzero(block == b)) for column in pairs))
            blocks[b] = blocks[b].plus(_sums(source, part))
    whole = functools.reduce(MomentSums.plus, blocks)
    for block in blocks:
        yield whole.plus(block, -1).moments(mean, source.dims, lags)


def _no_pairs(source: StateSource, lags: int) -> MomentSums:
    P, M = source.total_dim, len(source.dims)
    products = np.zeros((lags * P, lags * P)), np.zeros((P, lags * P)), np.zeros((P, P))
    weights = np.zeros((lags * M, lags * M)), np.zeros((M, lags * M)), np.zeros((M, M))
    return MomentSums(*products, *weights, 0, 0, 0.0, 0.0, 0.0)


def _sums(source: StateSource, pairs: PairChunk) -> MomentSums:
    w = source.weights(pairs.step)
    complete = pairs.before_observed.all(axis=1) & pairs.after_observed.all(axis=1)
    return MomentSums(
        *_products(pairs.before, pairs.after, w),
        *_counts(pairs, w, is_complete=bool(complete.all())),
        int((w > 0).sum()),
        int((~complete).sum()),
        float(w.sum()),
        float((w**2).sum()),
        float((w**4).sum()),
    )


def _products(
    x: Float[np.ndarray, "pair _"], y: Float[np.ndarray, "pair _"], w: Float[np.ndarray, " pair"]
) -> tuple[Float[np.ndarray, "_ _"], Float[np.ndarray, "_ _"], Float[np.ndarray, "_ _"]]:
    """Σ w x xᵀ, Σ w y xᵀ and Σ w y yᵀ; a product with ones is not made."""
    wx, wy = (x, y) if (w == 1).all() else (w[:, None] * x, w[:, None] * y)
    return wx.T @ x, wy.T @ x, wy.T @ y


def _counts(
    pairs: PairChunk, w: Float[np.ndarray, " pair"], *, is_complete: bool
) -> tuple[
    Float[np.ndarray, "lagged_client lagged_client"],
    Float[np.ndarray, "client lagged_client"],
    Float[np.ndarray, "client client"],
]:
    """The same sums of what is observed; complete pairs of equal weight need only be counted."""
    o, q = pairs.before_observed, pairs.after_observed
    if not is_complete or not (w == 1).all():
        return _products(o.astype(np.float64), q.astype(np.float64), w)
    M, wide, num_pairs = q.shape[1], o.shape[1], float(len(w))
    return (
        np.full((wide, wide), num_pairs),
        np.full((M, wide), num_pairs),
        np.full((M, M), num_pairs),
    )


def expand(
    per_client: Float[np.ndarray, "_ _"], dims: tuple[int, ...], row_lags: int, col_lags: int
) -> Float[np.ndarray, "_ _"]:
    """Repeat a (client, client) table so that it matches the states' coordinates."""
    return np.repeat(np.repeat(per_client, dims * row_lags, axis=0), dims * col_lags, axis=1)


def weighted_mean(source: StateSource) -> Float[np.ndarray, " state"]:
    """Mean of each state over its observed steps."""
    total, weight, start = np.zeros(source.total_dim), np.zeros(len(source.dims)), 0
    for chunk in source.chunks():
        w = source.weights(np.arange(start, start + len(chunk.states)))
        total += w @ chunk.states
        weight += w @ chunk.observed
        start += len(chunk.states)
    return total / np.maximum(np.repeat(weight, source.dims), 1e-300)
