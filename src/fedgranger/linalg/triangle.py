"""Least squares of many rows, a stretch of them at a time."""

from __future__ import annotations

import numpy as np
import scipy.linalg


def triangle(rows: np.ndarray) -> np.ndarray:
    """R of X = QR, at most square.

    R has all that least squares on X's columns need, and stacked on further rows, that of all.
    """
    # "raw" gives R as it is; "r" would first fill up rows of zeros
    return np.asarray(scipy.linalg.qr(rows, mode="raw", check_finite=False)[-1])
