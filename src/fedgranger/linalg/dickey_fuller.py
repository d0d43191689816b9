"""The law of the Dickey-Fuller statistic with a constant.

J. G. MacKinnon, Approximate asymptotic distribution functions for unit-root and cointegration
tests, J. Business & Economic Statistics 12 (1994), table for a constant and one variable.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

LOWEST, SPLIT, HIGHEST = -18.83, -1.61, 2.74
SMALL_P = (2.1659, 1.4412, 0.038269)
LARGE_P = (1.7339, 0.93202, -0.12745, -0.010368)
"""Coefficients of 1, τ, τ², τ³ in the argument of Φ, below and above SPLIT."""


def dickey_fuller_p_value(tau: float) -> float:
    """Chance of a smaller statistic where there is a unit root.

    Example:
        >>> round(dickey_fuller_p_value(-2.86), 3)
        0.05
    """
    if tau > HIGHEST or tau < LOWEST:
        return float(tau > HIGHEST)
    powers = SMALL_P if tau <= SPLIT else LARGE_P
    return float(ndtr(np.polyval(powers[::-1], tau)))
