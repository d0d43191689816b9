r"""Certified bounds of how far changed measurements can move a filter's whole trajectory.

A change u of the measurements, at most 1 in norm at each step, moves the trajectory by R u.
Whatever the prices \(l_t > 0\),

$$\|R u\|^2 \le \textstyle\sum_t l_t \|u_t\|^2 \le \sum_t l_t
  \quad\text{if}\quad R^\top R \preceq \operatorname{blockdiag}(l_t I),$$

and the condition holds if a backward recursion stays positive definite (completing the square,
step by step, in what the rest of the trajectory can gain over what it pays):

$$M_{t-1} = I + \Phi_t^\top \bigl(M_t + M_t G\,(l_t I - G^\top M_t G)^{-1} G^\top M_t\bigr)\Phi_t,
  \qquad l_t I \succ G^\top M_t G.$$

Here a price is a multiple of what it must exceed, \(l_t = \kappa_n \lambda_{\max}(G^\top M_t G)\)
where this is the n-th measurement of the window and of its segment, and
\(\kappa_n = 1 + \beta + \dots + \beta^{n-1}\). The first one pays \(\lambda_{\max}\) itself (no
earlier one needs its M), so one measurement alone is exact; \(\beta\) in (0, 1) is chosen to make
the bound small. Every \(\beta\) gives a valid bound. Proofs, and how close it comes:
docs/theory/privacy.md.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from fedgranger.privacy.filter_steps import Steps, carried_back, energy_after, symmetric

LIMITS = 1.0 + np.exp(np.linspace(-5.0, 12.0, 40))
"""Limits 1 / (1 - beta) of the factors that are tried."""
STEEPNESS = 2.0
"""Above a ceiling a price grows with this power more of what it must exceed."""
FOREVER = 2**60
NUM_BISECTIONS = 24
ROUNDING = 1e-14
"""Added to M, relative to the largest product that is rounded."""
SLACK = 1e-7
"""A matrix that is to be above others is made so much larger."""
HUGE = 1e150
"""Where the recursion has no end."""


def largest_gain(energy: np.ndarray, gain: np.ndarray) -> np.ndarray:
    r"""\(\lambda_{\max}(G^\top X G)\): the squared change by one measurement, for each X."""
    return np.linalg.eigvalsh(gain.T @ energy @ gain)[..., -1]


def window_bounds(
    steps: Steps, begins: np.ndarray, length: int, ends: np.ndarray, limits: np.ndarray
) -> np.ndarray:
    r"""Bound of the squared change for windows that begin at `begins`, each with its own limit.

    `ends` are matrices M of their last steps: at least the energy \(X\) there.
    """
    counts, before_segment = steps.counts()
    M, total = ends, np.zeros(len(begins))
    for t in begins + np.arange(length)[::-1, None]:
        factors = factors_of(counts[t + 1] - np.maximum(counts[begins], before_segment[t]), limits)
        Phi = steps.matrices[steps.kinds[t]]
        prices, M = price_and_step_back(M, steps.gain, Phi, steps.observed[t], factors)
        total += prices
    return total


def common_price(matrix: np.ndarray, gain: np.ndarray) -> float:
    r"""Price of every step when all are alike and observed; infinite for an unstable filter.

    It is the squared H-infinity norm: the smallest price l for which some M has
    \(M \succeq I + \Phi^\top (\dots) \Phi\), because then the recursion never rises above M,
    whatever the number of steps. A Riccati equation gives M; only prices whose M was checked count.
    """
    low = float(largest_gain(energy_after(matrix, FOREVER), gain))
    high = low
    while not _is_price(high, matrix, gain):
        low, high = high, 4.0 * high
        if not high < HUGE:
            return np.inf
    for _ in range(NUM_BISECTIONS):
        middle = np.sqrt(low * high)
        if _is_price(middle, matrix, gain):
            high = middle
        else:
            low = middle
    return high


def _is_price(price: float, matrix: np.ndarray, gain: np.ndarray) -> bool:
    """Whether there is a matrix M that a step back with this price does not raise."""
    identity = np.eye(len(matrix))
    try:
        V = scipy.linalg.solve_discrete_are(
            matrix,
            gain,
            (1.0 + SLACK) * matrix.T @ matrix + SLACK * identity,
            (1.0 + SLACK) * gain.T @ gain - price * np.eye(gain.shape[1]),
            s=(1.0 + SLACK) * matrix.T @ gain,
        )
    except (np.linalg.LinAlgError, ValueError):
        return False
    M = ((1.0 + SLACK) * identity + symmetric(V))[None]
    factors = price / largest_gain(M, gain)
    if not (np.isfinite(M).all() and factors[0] > 1.0 and is_below(identity, M).all()):
        return False
    prices, before = price_and_step_back(M, gain, matrix, np.ones(1, dtype=np.bool_), factors)
    return bool(np.isfinite(prices).all() and is_below(before, M).all())


def factors_of(n: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """1 + beta + ... + beta^(n - 1)."""
    return np.where(n > 1, -limits * np.expm1(n * np.log1p(-1.0 / limits)), 1.0)


def price_and_step_back(
    M: np.ndarray,
    gain: np.ndarray,
    Phi: np.ndarray,
    observed: np.ndarray,
    factors: np.ndarray,
    ceilings: np.ndarray | float = np.inf,
) -> tuple[np.ndarray, np.ndarray]:
    """One step of the recursion, for many matrices M; missing steps have no price.

    A factor of 1 is for the first measurement of a window: nothing before it needs M. Factors of
    gains above a ceiling are larger. Where the recursion has no end the price is infinite.
    """
    p = M.shape[-1]
    MG = M @ gain
    values, vectors = np.linalg.eigh(gain.T @ MG)
    largest = values[:, -1]
    factors = factors * np.where(factors > 1.0, np.maximum(largest / ceilings, 1.0) ** STEEPNESS, 1)
    prices = np.where(observed, factors * largest, 0.0)
    is_used = observed & (factors > 1.0)
    surplus = np.where(is_used[:, None], prices[:, None] - values, np.inf)
    W = MG @ vectors
    raised = M + (W / surplus[:, None, :]) @ np.swapaxes(W, -1, -2)
    size = np.trace(raised, axis1=1, axis2=2) * (Phi**2).sum(axis=(-1, -2))
    is_huge = ~(size < HUGE)
    raised[is_huge] = 0.0
    before = carried_back(raised, Phi)
    size[is_huge] = 0.0
    before += (1.0 + ROUNDING * size)[:, None, None] * np.eye(p)
    return np.where(is_huge, np.inf, prices), before


def is_below(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Whether each matrix lies below the other, in every direction."""
    return np.linalg.eigvalsh(upper - lower)[:, 0] >= 0.0
