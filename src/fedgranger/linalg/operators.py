"""Linear maps of matrices in the form SciPy's iterative solvers take."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, aslinearoperator


def matrix_operator(
    shape: tuple[int, int], act: Callable[[np.ndarray], np.ndarray]
) -> LinearOperator:
    """Turn a linear map of matrices of that shape into one of flattened matrices."""
    n = shape[0] * shape[1]
    return aslinearoperator(
        _Flat((n, n), lambda flat: act(flat.reshape(shape)).reshape(flat.shape))
    )


class _Flat(NamedTuple):
    shape: tuple[int, int]
    matvec: Callable[[np.ndarray], np.ndarray]
    dtype: type = np.float64
