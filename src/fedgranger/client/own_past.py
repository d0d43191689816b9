r"""How far back a client's own past matters to it: the order of its autoregression.

A client decides it from its own states alone. Every further lag costs it p² numbers instead of the
P² that one common order for all clients would, so slow plants get the lags they need: with too few
of them residuals stay predictable, and whatever moves slowly elsewhere seems to predict them.
"""

from __future__ import annotations

import numpy as np

from fedgranger.linalg.triangle import triangle
from fedgranger.linalg.unbroken_steps import unbroken_steps

LARGEST_ORDER = 30
ROWS_PER_NUMBER = 5
"""At least so many rows for each coefficient of an equation."""
STEPS_AT_ONCE = 4096
"""Rows whose lags are in memory at once."""
ROUNDING = 1e-24
"""A smaller share of a state's energy is no remainder but rounding."""


def own_order(
    states: np.ndarray, observed: np.ndarray, starts: np.ndarray, largest: int = LARGEST_ORDER
) -> int:
    r"""Order with the smallest Bayesian information criterion, all orders on the same rows.

    $$\mathrm{BIC}(L) = \log\det\hat\Sigma_L + \frac{\log n}{n}\,p\,(1 + L p)$$

    Args:
        states: (time, state).
        observed: (time,), the sample is there.
        starts: (time,), the step does not follow its predecessor.
        largest: the largest order that is tried.
    """
    p = states.shape[1]
    unbroken = unbroken_steps(np.zeros(1, dtype=np.int64), observed[:, None], starts)[:, 0]
    while largest > 1 and (unbroken > largest).sum() < ROWS_PER_NUMBER * (1 + largest * p):
        largest -= 1
    rows = np.flatnonzero(unbroken > largest)
    if len(rows) <= 1 + p:
        return 1
    R, n = np.zeros((0, 1 + (largest + 1) * p)), len(rows)
    for t in np.array_split(rows, -(-n // STEPS_AT_ONCE)):
        lagged = [states[t - k] for k in range(1, largest + 1)]
        R = triangle(np.vstack([R, np.hstack([np.ones((len(t), 1)), *lagged, states[t]])]))
    target = R[:, -p:]
    scores = []
    for order in range(1, largest + 1):
        rest = target[1 + order * p :]  # what the first columns leave of the states
        sign, log_det = np.linalg.slogdet(rest.T @ rest / n)
        is_rounding = bool(((rest**2).sum(axis=0) <= ROUNDING * (target**2).sum(axis=0)).any())
        if sign <= 0 or is_rounding:
            break
        scores.append(log_det + np.log(n) / n * p * (1 + order * p))
    return int(np.argmin(scores)) + 1 if scores else 1
