"""Norms of errors over time, and their exponential smoothing with gaps."""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter

MEMORY = 5.0
"""Steps over which surprise is smoothed before it is compared with a client's normal range."""

LARGEST = 1e30
"""Errors are cut off here, far beyond any range, so that their squares stay finite."""


def smooth(values: np.ndarray, start: np.ndarray | float, memory: float) -> np.ndarray:
    """Smoothed values (time, series): a share 1/memory of each new one, nothing where it is NaN.

    `start` are the smoothed values before the first step.

    Example:
        >>> smooth(np.array([[3.0], [np.nan], [3.0]]), 1.0, memory=2.0).ravel().tolist()
        [2.0, 2.0, 2.5]
    """
    first = np.broadcast_to(np.asarray(start, dtype=np.float64), values.shape[1:])
    keep, out = 1 - 1 / memory, np.empty(values.shape)
    for k, series in enumerate(values.T):
        known = ~np.isnan(series)
        smoothed, _ = lfilter([1 / memory], [1.0, -keep], series[known], zi=[keep * first[k]])
        out[:, k] = np.concatenate([first[k : k + 1], smoothed])[np.cumsum(known)]
    return out


def squared_norms(errors: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """eᵀ W e of every row; NaN where an error is NaN.

    Example:
        >>> squared_norms(np.array([[3.0, 4.0]]), np.eye(2)).tolist()
        [25.0]
    """
    bounded = np.clip(errors, -LARGEST, LARGEST)
    return np.einsum("ti,ij,tj->t", bounded, weight, bounded, optimize=True)
