"""How strong an influence must be to be found."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import optimize, stats

__all__ = ["detectable_strength", "power", "power_at"]

LARGEST = 1e5
"""Non-centrality beyond which the search for a detectable strength gives up."""


def power(strength: float, cov: np.ndarray, df_denominator: float, alpha: float) -> float:
    """Chance to find a block of that Frobenius norm, in its least favourable direction.

    Args:
        strength: Frobenius norm of the true block.
        cov: covariance of the block's entries.
        df_denominator: ν.
        alpha: level of the single test, before any correction.
    """
    noncentrality = strength**2 / float(np.linalg.eigvalsh(cov)[-1])
    return _power(noncentrality, len(cov), df_denominator, alpha)


def detectable_strength(
    cov: np.ndarray,
    df_denominator: float,
    alpha: float,
    target: float = 0.8,
    size: int | None = None,
) -> float:
    """Strength that is found with probability `target`, in the least favourable direction.

    The degrees of freedom count to two digits: they hardly matter and repeat from edge to edge.

    Args:
        cov: covariance of the block's entries; may be padded with zeros.
        df_denominator: ν.
        alpha: level of the single test.
        target: the power wanted.
        size: number of entries, when `cov` is padded.
    """
    if alpha >= target:  # found that often without any influence
        return 0.0
    k = len(cov) if size is None else size
    needed = _noncentrality(k, float(f"{df_denominator:.2g}"), alpha, target)
    return float(np.sqrt(needed * np.linalg.eigvalsh(cov)[-1]))


def power_at(
    strength: float, detectable: float, k: int, nu: float, alpha: float, target: float = 0.8
) -> float:
    """Power for a strength, given the one that is found with probability `target`."""
    needed = _noncentrality(k, float(f"{nu:.2g}"), alpha, target)
    return _power(needed * (strength / detectable) ** 2, k, nu, alpha)


def _power(noncentrality: float, k: int, nu: float, alpha: float) -> float:
    if noncentrality == 0:  # scipy's ncf.sf is negative there
        return alpha
    critical = stats.f.isf(alpha, k, nu)
    return float(np.clip(np.nan_to_num(stats.ncf.sf(critical, k, nu, noncentrality)), 0.0, 1.0))


@lru_cache(maxsize=4096)
def _noncentrality(k: int, nu: float, alpha: float, target: float) -> float:
    high = 10.0
    while _power(high, k, nu, alpha) < target:
        high *= 2
        if high > LARGEST:  # a level or so few degrees of freedom that nothing would be found
            return np.inf
    solution = optimize.root_scalar(
        lambda d: _power(d, k, nu, alpha) - target, bracket=(1e-9, high), method="brentq"
    )
    return float(solution.root)
