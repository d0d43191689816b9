"""Weights of time steps, for data whose statistics drift."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedgranger.errors import ConfigError

__all__ = ["WEIGHTINGS", "time_weights"]

WEIGHTINGS = ("none", "ewma", "window")
NEGLIGIBLE = 1e-12


def time_weights(
    weighting: str, span: int | float, num_steps: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from time indices to weights; the last step has weight 1.

    Args:
        weighting: `none`; `ewma`, which halves every `span` steps back; `window`, which keeps the
            last `span` steps only.
        span: half-life or length.
        num_steps: T.
    """
    if weighting == "none":
        return lambda index: np.ones(len(index))
    if weighting not in WEIGHTINGS:
        raise ConfigError(f"weighting is {weighting!r}; choose one of {', '.join(WEIGHTINGS)}")
    if span <= 0:
        raise ConfigError(
            f"weighting_span is {span}; '{weighting}' needs a positive number of steps"
        )
    if weighting == "window":
        return lambda index: (index >= num_steps - span).astype(np.float64)

    def ewma(index: np.ndarray) -> np.ndarray:
        weight = 0.5 ** ((num_steps - 1 - index) / span)
        return np.where(weight > NEGLIGIBLE, weight, 0.0)

    return ewma
