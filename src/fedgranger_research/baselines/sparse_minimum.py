"""Minimise a smooth function plus weighted absolute values, some entries held at zero."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import minimize

OPTIMISER = {"ftol": 1e-12, "gtol": 1e-8}
"""Tighter than SciPy's own, or small cycles stay where they are."""


def minimise_sparse(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: Float[np.ndarray, "cause effect"],
    allowed: Bool[np.ndarray, "cause effect"],
    sparsity: Float[np.ndarray, "cause effect"],
    unit: float = 1.0,
) -> Float[np.ndarray, "cause effect"]:
    r"""Minimise \(f(W) + \sum\lambda_{ji}|W_{ji}|\) by L-BFGS-B, from `start`.

    Positive and negative parts are separate variables that are not negative, so the absolute
    values are linear (as in NOTEARS).

    Args:
        objective: f and its gradient.
        start: where to begin.
        allowed: entries that may differ from zero.
        sparsity: λ.
        unit: multiplies the objective inside, so that tolerances mean the same at any scale.
    """
    lasso, weights = sparsity[allowed], np.zeros_like(start)
    size = len(lasso)

    def split(both: np.ndarray) -> tuple[float, np.ndarray]:
        weights[allowed] = both[:size] - both[size:]
        value, gradient = objective(weights)
        slope = gradient[allowed]
        value += float(lasso @ (both[:size] + both[size:]))
        return unit * value, unit * np.concatenate([slope + lasso, lasso - slope])

    first = start[allowed]
    both = np.concatenate([np.maximum(first, 0.0), np.maximum(-first, 0.0)])
    bounds = [(0.0, None)] * (2 * size)
    found = minimize(split, both, jac=True, method="L-BFGS-B", bounds=bounds, options=OPTIMISER).x
    out = np.zeros_like(start)
    out[allowed] = found[:size] - found[size:]
    return out
