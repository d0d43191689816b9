r"""Strength of an edge, the Frobenius norm of its block: its interval, and how much would be found.

The edge test does not reject a block b when
\((\hat a - b)^\top V^{-1} (\hat a - b) \le c\). The interval is the range of \(\lVert b\rVert\)
over that ellipsoid, so it covers the true strength at least as often as its level says, and it
begins at 0 exactly when the test of that level finds no edge.

In V's eigenbasis (variances \(s_i\), estimate \(z_i\)) the farthest and the nearest point are
\(b_i = \mu z_i / (\mu - s_i)\) with \(\mu > \max s\) and \(b_i = \mu z_i / (\mu + s_i)\), with μ
the root of \(\sum s_i z_i^2 / (\mu \mp s_i)^2 = c\), which is monotone in μ.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

LARGEST = 1e5
"""Non-centrality beyond which the search for a detectable strength gives up."""
HALVINGS = 80
SMALLEST = 1e-100
"""Keeps divisions by a distance of zero finite; what they multiply is zero there."""


def strength_intervals(
    blocks: Float[np.ndarray, "*pair entry"],
    covs: Float[np.ndarray, "*pair entry entry"],
    critical: Float[np.ndarray, "*pair"],
) -> tuple[Float[np.ndarray, "*pair"], Float[np.ndarray, "*pair"]]:
    """Smallest and largest norm within each ellipsoid; NaN where V is not positive definite.

    The entries â and their covariances V are zero on padding; `critical` is c.
    """
    known = np.isfinite(critical) & np.isfinite(covs).all(axis=(-2, -1))
    V = np.where(known[..., None, None], covs, 0.0)
    s, basis = np.linalg.eigh(V)
    tiny = 1e-13 * np.abs(s).max(axis=-1, keepdims=True)
    is_padding = np.einsum("...kk->...k", V) == 0
    known &= (s > tiny).sum(axis=-1) == (~is_padding).sum(axis=-1)
    s = np.where(s > tiny, s, 0.0)
    z = np.where(s > 0, np.einsum("...k,...ki->...i", blocks, basis), 0.0)
    c = np.where(known, critical, 1.0)
    low, high = _nearest(z, s, c), _farthest(z, s, c)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def _nearest(
    z: Float[np.ndarray, "*pair entry"],
    s: Float[np.ndarray, "*pair entry"],
    c: Float[np.ndarray, "*pair"],
) -> Float[np.ndarray, "*pair"]:
    """Norm of the nearest point; 0 when the origin lies inside."""
    safe = np.where(s > 0, s, 1.0)
    is_outside = np.where(s > 0, z**2 / safe, 0.0).sum(axis=-1) > c
    mu = _multiplier(z, s, c, s)[..., None]
    nearest = np.linalg.norm(z * mu / np.maximum(mu + s, SMALLEST), axis=-1)
    return np.where(is_outside, nearest, 0.0)


def _farthest(
    z: Float[np.ndarray, "*pair entry"],
    s: Float[np.ndarray, "*pair entry"],
    c: Float[np.ndarray, "*pair"],
) -> Float[np.ndarray, "*pair"]:
    """Norm of the farthest point; what the bound leaves over lies along the widest axis."""
    widest = s.max(axis=-1)
    below = widest[..., None] - s
    beyond = _multiplier(z, s, c, below)  # μ − max s
    distance = np.maximum(beyond[..., None] + below, SMALLEST)
    used = (s * (z / distance) ** 2).sum(axis=-1)
    point = z * (beyond + widest)[..., None] / distance
    left_over = np.maximum(c - used, 0.0) * widest
    return np.asarray(np.sqrt((point**2).sum(axis=-1) + left_over))


def _multiplier(
    z: Float[np.ndarray, "*pair entry"],
    s: Float[np.ndarray, "*pair entry"],
    c: Float[np.ndarray, "*pair"],
    offset: Float[np.ndarray, "*pair entry"],
) -> Float[np.ndarray, "*pair"]:
    """The x with Σ s z² / (x + offset)² = c, by halving."""
    lower, upper = np.zeros_like(c), np.sqrt((s * z**2).sum(axis=-1) / c)
    for _ in range(HALVINGS):
        middle = (lower + upper) / 2
        reach = (s * (z / np.maximum(middle[..., None] + offset, SMALLEST)) ** 2).sum(axis=-1)
        lower, upper = np.where(reach > c, middle, lower), np.where(reach > c, upper, middle)
    return upper


def detectable_strength(
    cov: Float[np.ndarray, "entry entry"],
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
        alpha: level of the single test, before any correction.
        target: the power wanted.
        size: number of entries, when `cov` is padded.
    """
    if alpha >= target:  # found that often without any influence
        return 0.0
    k = len(cov) if size is None else size
    needed = _noncentrality(k, float(f"{df_denominator:.2g}"), alpha, target)
    return float(np.sqrt(needed * np.linalg.eigvalsh(cov)[-1]))


def power_at(strength: float, detectable: float, k: int, nu: float, alpha: float) -> float:
    """Power for a strength, given the one that is found with probability 0.8."""
    needed = _noncentrality(k, float(f"{nu:.2g}"), alpha, 0.8)
    return power(needed * (strength / detectable) ** 2, k, nu, alpha)


def power(noncentrality: float, k: int, nu: float, alpha: float) -> float:
    """Chance that a Wald test of k entries with that non-centrality finds an edge."""
    if noncentrality == 0:  # scipy's ncf.sf is negative there
        return alpha
    critical = stats.f.isf(alpha, k, nu)
    return float(np.clip(np.nan_to_num(stats.ncf.sf(critical, k, nu, noncentrality)), 0.0, 1.0))


@lru_cache(maxsize=4096)
def _noncentrality(k: int, nu: float, alpha: float, target: float) -> float:
    high = 10.0
    while power(high, k, nu, alpha) < target:
        high *= 2
        if high > LARGEST:  # a level or so few degrees of freedom that nothing would be found
            return np.inf
    solution = optimize.root_scalar(
        lambda d: power(d, k, nu, alpha) - target, bracket=(1e-9, high), method="brentq"
    )
    return float(solution.root)
