r"""First and second moments of the clients' states, from pairs that are complete in two clients.

With samples missing, \(E[s_m^+ s_n^\top]\) is averaged over the pairs in which client m is
observed at t+1 and client n at t, each block by its own weight: every block stays unbiased
however often other clients are absent. Weights of time steps are for data whose statistics drift.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedgranger.inference.states import StateSource, lagged_pairs


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


def accumulate(source: StateSource, lags: int) -> StateMoments:
    """Read the source twice: once for the means, once for the products."""
    mean = _weighted_mean(source)
    P, M = source.total_dim, len(source.dims)
    before, lag, after = np.zeros((lags * P, lags * P)), np.zeros((P, lags * P)), np.zeros((P, P))
    before_weight, lag_weight = np.zeros((lags * M, lags * M)), np.zeros((M, lags * M))
    after_weight = np.zeros((M, M))
    num_pairs, total, square, fourth, is_complete = 0, 0.0, 0.0, 0.0, True
    for pairs in lagged_pairs(source, lags, mean):
        w = source.weights(pairs.step)
        x, o = pairs.before, pairs.before_observed.astype(np.float64)
        y, q = pairs.after, pairs.after_observed.astype(np.float64)
        before += (w[:, None] * x).T @ x
        lag += (w[:, None] * y).T @ x
        after += (w[:, None] * y).T @ y
        before_weight += (w[:, None] * o).T @ o
        lag_weight += (w[:, None] * q).T @ o
        after_weight += (w[:, None] * q).T @ q
        num_pairs += int((w > 0).sum())
        total += float(w.sum())
        square += float((w**2).sum())
        fourth += float((w**4).sum())
        is_complete &= bool(pairs.before_observed.all() and pairs.after_observed.all())
    with np.errstate(divide="ignore", invalid="ignore"):  # no common pair: NaN, refused later
        return StateMoments(
            mean,
            before / expand(before_weight, source.dims, lags, lags),
            lag / expand(lag_weight, source.dims, 1, lags),
            after / expand(after_weight, source.dims, 1, 1),
            before_weight,
            lag_weight,
            num_pairs,
            total,
            square,
            fourth,
            is_complete,
        )


def expand(
    per_client: Float[np.ndarray, "_ _"], dims: tuple[int, ...], row_lags: int, col_lags: int
) -> Float[np.ndarray, "_ _"]:
    """Repeat a (client, client) table so that it matches the states' coordinates."""
    return np.repeat(np.repeat(per_client, dims * row_lags, axis=0), dims * col_lags, axis=1)


def _weighted_mean(source: StateSource) -> Float[np.ndarray, " state"]:
    total, weight, start = np.zeros(source.total_dim), np.zeros(len(source.dims)), 0
    for chunk in source.chunks():
        w = source.weights(np.arange(start, start + len(chunk.states)))
        total += w @ chunk.states
        weight += w @ chunk.observed
        start += len(chunk.states)
    return total / np.maximum(np.repeat(weight, source.dims), 1e-300)
