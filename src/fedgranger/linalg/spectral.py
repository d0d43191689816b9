r"""Second and fourth moments that decide which step sizes are stable.

For stochastic gradient steps \(x^+ = (I - \mu \hat X_w) x\), with \(\hat X_w\) the average of
\(x_t x_t^\top\) over a window, the mean square contracts when
\(\mu\,E[\hat X^2] \prec 2\,E[\hat X]\), that is for \(\mu < 2 / \kappa\) with \(\kappa\) the
largest eigenvalue of the pencil \((E[\hat X^2], E[\hat X])\). For one Gaussian sample per window
\(\kappa = \mathrm{tr} R + 2 \lambda_{max}(R)\) at most; for a window over all data it is
\(\lambda_{max}(R)\). Measuring it on the data covers heavy tails and autocorrelation too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.linalg.psd import largest_pencil_eigenvalue

CHUNK_STEPS = 65_536


def spectral_radius(matrix: np.ndarray) -> float:
    """Largest absolute eigenvalue."""
    return float(np.max(np.abs(np.linalg.eigvals(matrix))))


class WindowMoments(NamedTuple):
    r"""\(E[\hat X]\) and \(\kappa\) of the module's text."""

    mean: np.ndarray
    gain: float


def window_moments(samples: np.ndarray, available: np.ndarray, window: int) -> WindowMoments:
    """Measure both on samples of shape (time, dim), in chunks.

    A window averages over its available rows only, the others must be zero; windows without any
    are left out.

    Example:
        >>> samples = np.array([[1.0], [2.0]])
        >>> round(window_moments(samples, np.array([True, True]), 2).gain, 12)  # (1 + 4) / 2
        2.5
    """
    dim = samples.shape[1]
    mean, square, num_windows = np.zeros((dim, dim)), np.zeros((dim, dim)), 0
    chunk = max(1, CHUNK_STEPS // window) * window
    for start in range(0, len(samples), chunk):
        rows, present = samples[start : start + chunk], available[start : start + chunk]
        padding = -len(rows) % window
        x = np.pad(rows, ((0, padding), (0, 0))).reshape(-1, window, dim)
        counts = np.pad(present, (0, padding)).reshape(-1, window).sum(axis=1)
        x, counts = x[counts > 0], counts[counts > 0]
        num_windows += len(counts)
        x = x / np.sqrt(counts)[:, None, None]
        mean += np.einsum("kwi,kwj->ij", x, x, optimize=True)
        if window < dim:  # X̂² = xᵀ(x xᵀ)x: small Gram matrix first
            gram = x @ x.transpose(0, 2, 1)
            square += np.einsum("kwi,kwj->ij", gram @ x, x, optimize=True)
        else:
            moment = x.transpose(0, 2, 1) @ x
            square += np.einsum("kij,kjl->il", moment, moment, optimize=True)
    num_windows = max(num_windows, 1)
    mean, square = mean / num_windows, square / num_windows
    return WindowMoments(mean, largest_pencil_eigenvalue(square, mean))
