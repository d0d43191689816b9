"""The textbook comparison: a vector autoregression whose order the BIC chooses, Wald F tests.

What `statsmodels.tsa.api.VAR(...).fit(maxlags, ic="bic")` and its `test_causality(kind="f")`
compute, for blocks of states, with gaps in the data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg
import scipy.stats

MAX_LAGS = 12
ROWS_PER_COEFFICIENT = 3


def var_p_values(
    states: np.ndarray, dims: Sequence[int], usable: np.ndarray, max_lags: int = MAX_LAGS
) -> np.ndarray:
    """p-value of every ordered pair, [effect, cause]; NaN within clients and where there is none.

    Args:
        states: (time, P), the clients' states side by side.
        dims: states per client.
        usable: (time, 2) bool: the step is complete; the step follows its predecessor.
        max_lags: largest order.
    """
    M, P = len(dims), states.shape[1]
    out = np.full((M, M), np.nan)
    order = var_order(states, usable, max_lags)
    if order is None:
        return out
    X, Y = _design(states, usable, order)
    residual_df = len(Y) - X.shape[1]
    q, r = np.linalg.qr(X)
    if residual_df <= P or not _has_full_rank(r):
        return out
    B = scipy.linalg.solve_triangular(r, q.T @ Y)
    residuals = Y - X @ B
    inverse = scipy.linalg.solve_triangular(r, np.eye(len(r)))
    XX_inv, residual_cov = inverse @ inverse.T, residuals.T @ residuals / residual_df
    owner = np.repeat(np.arange(M), dims)
    for cause in range(M):
        columns = 1 + np.flatnonzero(np.tile(owner == cause, order))
        V = XX_inv[np.ix_(columns, columns)]
        for effect in range(M):
            if effect == cause:
                continue
            rows = np.flatnonzero(owner == effect)
            b, S = B[np.ix_(columns, rows)], residual_cov[np.ix_(rows, rows)]
            statistic = float(np.trace(np.linalg.solve(S, b.T @ np.linalg.solve(V, b)))) / b.size
            out[effect, cause] = scipy.stats.f.sf(statistic, b.size, P * residual_df)
    return out


def var_order(states: np.ndarray, usable: np.ndarray, max_lags: int = MAX_LAGS) -> int | None:
    """The order with the smallest BIC, all orders on the same rows; None without enough rows."""
    P = states.shape[1]
    for most in range(min(max_lags, len(states) // P), 0, -1):
        X, Y = _design(states, usable, most)
        if len(Y) >= ROWS_PER_COEFFICIENT * X.shape[1]:
            break
    else:
        return None
    q, _ = np.linalg.qr(X)  # columns come lag after lag, so one factor serves every order
    explained = q.T @ Y
    total, n = Y.T @ Y, len(Y)
    scores = []
    for order in range(1, most + 1):
        part = explained[: 1 + P * order]
        sign, log_det = np.linalg.slogdet((total - part.T @ part) / n)
        if sign <= 0:
            return None
        scores.append(log_det + np.log(n) / n * P * (1 + P * order))
    return int(np.argmin(scores)) + 1


def _design(states: np.ndarray, usable: np.ndarray, lags: int) -> tuple[np.ndarray, np.ndarray]:
    """1 and the lagged states; the states that follow. Only rows with a whole past."""
    complete, follows = usable.T
    T = len(states)
    keep = complete[lags:].copy()
    for k in range(lags):
        keep &= complete[k : T - lags + k] & follows[k + 1 : T - lags + k + 1]
    rows = np.flatnonzero(keep) + lags
    scaled = (states - states[complete].mean(axis=0)) / _spread(states[complete])
    past = [scaled[rows - k] for k in range(1, lags + 1)]
    return np.concatenate([np.ones((len(rows), 1)), *past], axis=1), scaled[rows]


def _spread(states: np.ndarray) -> np.ndarray:
    spread = states.std(axis=0)
    return np.where(spread > 0, spread, 1.0)


def _has_full_rank(r: np.ndarray) -> bool:
    diagonal = np.abs(np.diag(r))
    return bool(diagonal.min() > 1e-10 * diagonal.max())
