"""Linear maps of matrices in the form SciPy's iterative solvers take."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
from scipy.sparse.linalg import LinearOperator, aslinearoperator


def matrix_operator(
    shape: tuple[int, int], act: Callable[[np.ndarray], np.ndarray]
) -> LinearOperator:
    """Turn a linear map of matrices of that shape into one of flattened matrices."""
    n = shape[0] * shape[1]

    def matvec(flat: np.ndarray) -> np.ndarray:
        return act(flat.reshape(shape)).reshape(flat.shape)

    return aslinearoperator(SimpleNamespace(shape=(n, n), matvec=matvec, dtype=np.float64))
