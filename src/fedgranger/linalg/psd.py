"""Symmetric positive semidefinite matrices, without hidden repairs, and the triangle of a QR."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

RANK_TOLERANCE = 1e-10
"""Directions with a relative eigenvalue below this count as absent."""


class Projection(NamedTuple):
    """Nearest matrix with eigenvalues above a floor, and the relative size of the change."""

    matrix: np.ndarray
    relative_change: float


def symmetrise(matrix: np.ndarray) -> np.ndarray:
    """Return the symmetric part."""
    return 0.5 * (matrix + matrix.T)


def is_positive_definite(matrix: np.ndarray) -> bool:
    """Whether the smallest eigenvalue exceeds `RANK_TOLERANCE` times the largest."""
    values = np.linalg.eigvalsh(symmetrise(matrix))
    return bool(values[0] > RANK_TOLERANCE * max(values[-1], 0.0) and values[-1] > 0.0)


def inverse_form(vector: np.ndarray, cov: np.ndarray, smallest: float) -> float:
    """aᵀ V⁻¹ a; NaN where V is not regular.

    Judged on correlations, so that units do not matter: the smallest eigenvalue must be more than
    a share `smallest` of the largest.
    """
    scale = np.sqrt(np.maximum(np.diag(cov), 0.0))
    if not (len(scale) and (scale > 0).all() and np.isfinite(cov).all()):
        return np.nan
    values, vectors = np.linalg.eigh(cov / np.outer(scale, scale))
    if values[0] <= smallest * values[-1]:
        return np.nan
    return float(((vectors.T @ (vector / scale)) ** 2 / values).sum())


def project(matrix: np.ndarray, floor: float) -> Projection:
    """Raise eigenvalues below `floor` to it; the change is returned so that it can be reported."""
    matrix = symmetrise(matrix)
    values, vectors = np.linalg.eigh(matrix)
    raised = np.maximum(values, floor)
    change = float(np.linalg.norm(raised - values) / max(np.linalg.norm(values), 1e-300))
    if change == 0.0:
        return Projection(matrix, 0.0)
    return Projection(symmetrise((vectors * raised) @ vectors.T), change)


def largest_pencil_eigenvalue(numerator: np.ndarray, denominator: np.ndarray) -> float:
    """Largest eigenvalue of N x = λ D x on the range of D, for symmetric PSD N and D.

    Directions in which D vanishes have no data and are left out.
    """
    values, vectors = np.linalg.eigh(symmetrise(denominator))
    keep = values > RANK_TOLERANCE * max(values[-1], 0.0)
    if not keep.any():
        return 0.0
    whiten = vectors[:, keep] / np.sqrt(values[keep])
    return float(scipy.linalg.eigvalsh(symmetrise(whiten.T @ numerator @ whiten))[-1])


def factor_of(products: np.ndarray, dependent: float) -> tuple[np.ndarray, np.ndarray]:
    """F with FᵀF = XᵀX, and the columns of X that earlier ones do not explain.

    A column is explained when no more than a share `dependent` of its size is left.
    """
    size = np.sqrt(np.diag(products))
    try:
        factor = scipy.linalg.cholesky(products, check_finite=False)
    except np.linalg.LinAlgError:
        factor = None
    if factor is not None and (np.diag(factor) > dependent * size).all():
        return factor, np.ones(len(size), dtype=np.bool_)
    rest, keep = products.copy(), np.ones(len(size), dtype=np.bool_)
    for j in range(len(size)):  # Cholesky's steps, without those columns
        keep[j] = rest[j, j] > (dependent * size[j]) ** 2
        if keep[j]:
            rest[j:, j:] -= np.outer(rest[j, j:], rest[j, j:] / rest[j, j])
    values, vectors = np.linalg.eigh(products)
    return np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T, keep


def triangle(rows: np.ndarray) -> np.ndarray:
    """R of X = QR, at most square: the factor of XᵀX.

    R has all that least squares on X's columns need, and stacked on further rows, that of all.
    """
    # "raw" gives R as it is; "r" would first fill up rows of zeros
    return np.asarray(scipy.linalg.qr(rows, mode="raw", check_finite=False)[-1])
