"""Exponential smoothing with gaps."""

from __future__ import annotations

import numpy as np

__all__ = ["smooth"]


def smooth(values: np.ndarray, start: np.ndarray | float, memory: float) -> np.ndarray:
    """Smoothed values per step: a share 1/memory of each new one, nothing where it is NaN.

    Args:
        values: (time, series).
        start: the smoothed values before the first step.
        memory: steps after which a value has faded to 1/e, about.

    Example:
        >>> smooth(np.array([[3.0], [np.nan], [3.0]]), 1.0, memory=2.0).ravel().tolist()
        [2.0, 2.0, 2.5]
    """
    out = np.empty_like(values)
    now = np.broadcast_to(np.asarray(start, dtype=np.float64), values.shape[1:]).copy()
    for step, row in enumerate(values):
        known = ~np.isnan(row)
        now[known] += (row[known] - now[known]) / memory
        out[step] = now
    return out
