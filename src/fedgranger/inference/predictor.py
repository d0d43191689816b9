r"""What the next states are expected to be, from those measured before: for forecasts, no test.

A vector autoregression by least squares,

$$\hat s(t{+}1) = c + \sum_{l=1}^{L} B_l\, s(t{+}1{-}l),$$

with the L of Akaike's corrected criterion. A test's own coefficients predict worse: those of the
latent influence are of true states, and measured ones are noisy; those of the readings have as many
lags of a cause as are tested. Noise that clients added is taken out: new data have none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float

from fedgranger.inference.state_moments import StateMoments, accumulate
from fedgranger.inference.states import StateSource, complete_rows
from fedgranger.linalg.psd import symmetrise

RIDGE = 1e-10
"""Of every variance, so that states that depend on each other share their coefficients."""
FEWEST_ROWS = 2
"""Per coefficient of an equation."""
MOST_COLUMNS = 1000
"""States times lags: many clients with long pasts of their own would take more time than tests."""


class Predictor(NamedTuple):
    """c and B = [B¹ … Bᴸ]; c is NaN for states that are not predicted."""

    constant: Float[np.ndarray, " state"]
    transition: Float[np.ndarray, "state lagged"]


def find_predictor(source: StateSource, most_lags: int) -> Predictor | None:
    """Least squares over the time steps at which no client is missing; None with too few."""
    source, P = complete_rows(source), source.total_dim
    most = max(1, min(max(most_lags, *source.own_lags), MOST_COLUMNS // P))
    try:
        lags = _choose_lags(source, most)
        if lags is None:
            return None
        moments = accumulate(source, lags)  # of the rows that lack only lags before these, too
        factor = _factor(source, moments, lags)
    except np.linalg.LinAlgError:  # noise was added, and hides the states
        return None
    B = scipy.linalg.cho_solve((factor, True), moments.lag_cov.T).T
    return Predictor(moments.mean - B.reshape(P, lags, P).sum(axis=1) @ moments.mean, B)


def _choose_lags(source: StateSource, most: int) -> int | None:
    """The clients' own lags are tried, fewer with too few rows, and twice as many while all help.

    None with too few rows for one lag.
    """
    tried = min(int(max(1, *source.own_lags)), most)
    best = _best_lags(source, tried)
    while best is None and tried > 1:
        tried = most = tried // 2
        best = _best_lags(source, tried)
    while best == tried < most:
        tried = min(2 * tried, most)
        best = _best_lags(source, tried) or best
    return best


def _best_lags(source: StateSource, tried: int) -> int | None:
    """Up to so many, by the criterion; None with too few rows for them."""
    moments = accumulate(source, tried)
    if moments.num_pairs < FEWEST_ROWS * tried * source.total_dim:
        return None
    return 1 + int(np.argmin(_criterion(source, moments, tried)))


def _criterion(source: StateSource, moments: StateMoments, lags: int) -> list[float]:
    """Akaike's corrected criterion of every number of lags, over the same rows.

    The first columns of a factor are the factor of fewer lags.
    """
    P, n = source.total_dim, moments.effective_pairs
    explained = scipy.linalg.solve_triangular(
        _factor(source, moments, lags), moments.lag_cov.T, lower=True
    )
    left, scores = _ridged(moments.after_cov) - source.added_cov, []
    for lag in range(lags):
        part = explained[lag * P : (lag + 1) * P]
        left = symmetrise(left - part.T @ part)
        sign, size = np.linalg.slogdet(left)
        free = max(n - (lag + 2) * P - 1, 1.0)
        scores.append(size + 2 * (lag + 1) * P**2 / free if sign > 0 else np.inf)
    return scores


def _factor(
    source: StateSource, moments: StateMoments, lags: int
) -> Float[np.ndarray, "lagged lagged"]:
    """Lower Cholesky factor of the covariance of the lagged states."""
    G = _ridged(moments.before_cov) - np.kron(np.eye(lags), source.added_cov)
    return np.linalg.cholesky(symmetrise(G))


def _ridged(cov: Float[np.ndarray, "_ _"]) -> Float[np.ndarray, "_ _"]:
    return cov + RIDGE * np.diag(np.diag(cov))
