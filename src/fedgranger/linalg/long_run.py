"""Long-run covariance of a time series: how many lags, and their weighted sum."""

from __future__ import annotations

import numpy as np

LARGEST_AUTOCORRELATION = 0.97


def newey_west_lag(num_steps: int) -> int:
    """The rule of thumb 4 (n / 100)^(2/9)."""
    return int(4 * (num_steps / 100) ** (2 / 9))


def andrews_bandwidth(autocorrelation: float, num_steps: int) -> float:
    """Andrews' bandwidth of Bartlett's kernel for an AR(1) with this autocorrelation."""
    rho = min(abs(autocorrelation), LARGEST_AUTOCORRELATION)
    alpha = 4 * rho**2 / (1 - rho**2) ** 2
    return 1.1447 * (alpha * num_steps) ** (1 / 3)


def long_run_cov(
    series: np.ndarray, lag: int, *, rates: np.ndarray | None = None, flat_top: bool = False
) -> np.ndarray:
    r"""Return \(c(0) + \sum_h k_h (\Lambda^h c(h) + c(h)^\top\Lambda^h)\) of a centred series.

    Args:
        series: (time, n).
        lag: largest h.
        rates: Λ's diagonal; default ones, the plain long-run covariance.
        flat_top: weights one up to half the lag, then falling to zero (less bias, but not always
            a covariance), instead of Bartlett's.
    """
    centred = series - series.mean(axis=0)
    n = len(centred)
    decay = np.ones(centred.shape[1]) if rates is None else rates
    total = centred.T @ centred / n
    for h in range(1, lag + 1):
        product = centred[:-h].T @ centred[h:] / n  # c_ij(h) = E[x_i,t x_j,t+h]
        weighted = (decay**h)[:, None] * product
        weight = 1 - h / (lag + 1)
        total += (min(1.0, 2 * weight) if flat_top else weight) * (weighted + weighted.T)
    return total
