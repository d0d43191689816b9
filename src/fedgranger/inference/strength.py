r"""Interval for the strength of an edge, the Frobenius norm of its block.

The edge test does not reject a block b when
\((\hat a - b)^\top V^{-1} (\hat a - b) \le c\). The interval is the range of \(\lVert b\rVert\)
over that ellipsoid, so it covers the true strength at least as often as its level says, and it
begins at 0 exactly when the test of that level finds no edge.

In V's eigenbasis (variances \(s_i\), estimate \(z_i\)) the farthest and the nearest point are
\(b_i = \mu z_i / (\mu - s_i)\) with \(\mu > \max s\) and \(b_i = \mu z_i / (\mu + s_i)\), with μ
the root of \(\sum s_i z_i^2 / (\mu \mp s_i)^2 = c\), which is monotone in μ.
"""

from __future__ import annotations

import numpy as np

__all__ = ["strength_intervals"]

HALVINGS = 80
SMALLEST = 1e-100
"""Keeps divisions by a distance of zero finite; what they multiply is zero there."""


def strength_intervals(
    blocks: np.ndarray, covs: np.ndarray, critical: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest norm within each ellipsoid; NaN where V is not positive definite.

    Args:
        blocks: entries â, (..., K), zero on padding.
        covs: covariances V, (..., K, K), zero on padding.
        critical: c, (...).
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


def _nearest(z: np.ndarray, s: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Norm of the nearest point; 0 when the origin lies inside."""
    safe = np.where(s > 0, s, 1.0)
    is_outside = np.where(s > 0, z**2 / safe, 0.0).sum(axis=-1) > c
    lower, upper = np.zeros_like(c), np.sqrt((s * z**2).sum(axis=-1) / c)
    for _ in range(HALVINGS):
        mu = (lower + upper) / 2
        reach = (s * (z / np.maximum(mu[..., None] + s, SMALLEST)) ** 2).sum(axis=-1)
        lower, upper = np.where(reach > c, mu, lower), np.where(reach > c, upper, mu)
    mu = upper[..., None]
    nearest = np.linalg.norm(z * mu / np.maximum(mu + s, SMALLEST), axis=-1)
    return np.where(is_outside, nearest, 0.0)


def _farthest(z: np.ndarray, s: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Norm of the farthest point; what the bound leaves over lies along the widest axis."""
    widest = s.max(axis=-1)
    gap = np.zeros_like(c)  # μ − max s
    room = np.sqrt((s * z**2).sum(axis=-1) / c)
    for _ in range(HALVINGS):
        middle = (gap + room) / 2
        distance = np.maximum(middle[..., None] + (widest[..., None] - s), SMALLEST)
        reach = (s * (z / distance) ** 2).sum(axis=-1)
        gap, room = np.where(reach > c, middle, gap), np.where(reach > c, room, middle)
    distance = np.maximum(room[..., None] + (widest[..., None] - s), SMALLEST)
    used = (s * (z / distance) ** 2).sum(axis=-1)
    point = z * (room + widest)[..., None] / distance
    left_over = np.maximum(c - used, 0.0) * widest
    return np.sqrt((point**2).sum(axis=-1) + left_over)
