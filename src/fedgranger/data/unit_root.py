r"""Does a sensor wander without ever coming back? The augmented Dickey-Fuller regression.

$$\Delta x_t = a + \beta x_{t-1} + \sum_{k=1}^{p} \gamma_k \Delta x_{t-k} + e_t$$

A random walk, an integrating level or the reading of a meter has \(\beta = 0\); a sensor that comes
back to its mean has \(\beta < 0\), and

$$\hat c = -T \beta / (1 - \textstyle\sum_k \gamma_k)$$

shows how many of its time constants the record holds. The number of lags p is chosen by the
Bayesian information criterion; p-values are of `linalg.dickey_fuller`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.linalg.dickey_fuller import dickey_fuller_p_value

LEAST_ROWS = 100
"""Shorter records cannot separate a slow sensor from one that wanders."""
MOST_POINTS = 2500
"""Of a longer record every second, third, ... row is used: the time it spans is what counts."""


class UnitRoot(NamedTuple):
    """What the regression shows of one sensor.

    Attributes:
        p_value: of the null hypothesis that the sensor wanders; small: it comes back.
        time_constants: ĉ, how many of its time constants the record holds; NaN when unknown.
        change_correlation: of consecutive changes; -0.5 when they are mere measurement noise.
    """

    p_value: float
    time_constants: float
    change_correlation: float


def unit_root_test(series: np.ndarray) -> UnitRoot | None:
    """Test one sensor's samples in time order; None without `LEAST_ROWS` or hardly any change.

    Missing ones (NaN) are passed over, since a random walk with samples left out is still one.

    Example:
        >>> steps = np.random.default_rng(0).standard_normal(1000)
        >>> comes_back, wanders = unit_root_test(steps), unit_root_test(np.cumsum(steps))
        >>> bool(comes_back.p_value < 0.01 < wanders.p_value)
        True
    """
    series = series[~np.isnan(series)]
    if len(series) < LEAST_ROWS:
        return None
    change = np.diff(series)
    change = change - change.mean()
    energy = float(change @ change)
    if not 0 < energy < np.inf:
        return None
    series = series[:: -(-len(series) // MOST_POINTS)]
    columns, target = _regression(series, int(12 * (len(series) / 100) ** 0.25))
    triangle = np.asarray(np.linalg.qr(np.column_stack([columns, target]), mode="r"))
    size = np.abs(np.diag(triangle))
    if size.min() <= 1e-12 * size.max():  # an exact recursion: nothing to estimate an error from
        return None
    num_rows, width = columns.shape
    remaining = np.cumsum(triangle[:, -1][::-1] ** 2)[::-1]  # RSS with the first k columns
    used = np.arange(2, width + 1)
    best = int(used[np.argmin(num_rows * np.log(remaining[used]) + used * np.log(num_rows))])
    inverse = np.linalg.inv(triangle[:best, :best])
    beta, *gammas = (inverse @ triangle[:best, -1])[1:]
    error = np.sqrt(remaining[best] / (num_rows - best)) * np.linalg.norm(inverse[1])
    memory = 1 - sum(gammas)
    return UnitRoot(
        dickey_fuller_p_value(float(beta / error)),
        float(-num_rows * beta / memory) if memory > 0 else np.nan,
        float(change[1:] @ change[:-1] / energy),
    )


def _regression(series: np.ndarray, lags: int) -> tuple[np.ndarray, np.ndarray]:
    """Regressors (1, x, Δx lagged) and Δx, x standardised for accuracy."""
    series = (series - series.mean()) / series.std()
    change = np.diff(series)
    past = [change[lags - k : len(change) - k] for k in range(1, lags + 1)]
    columns = np.column_stack([np.ones(len(change) - lags), series[lags:-1], *past])
    return columns, change[lags:]
