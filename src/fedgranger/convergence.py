r"""When to stop: an estimate of how far the parameters still are from their limit.

A pass over the data is one affine map of the parameters, so the changes \(\Delta_k\) from pass to
pass shrink geometrically in the end. With the measured ratio \(q = \|\Delta_k\|/\|\Delta_{k-1}\|\)
the remaining distance is about \(\|\Delta_k\| q/(1-q)\). A small change alone proves nothing: at
q = 0.999 the distance is a thousand times the change. Nor does one small ratio: the fast modes die
first and leave the slow ones to be seen, so the largest of the last ratios counts.

Sizes are measured where they matter: Â by its Frobenius norm, θ by the root mean square of the
correction θy that it makes, so that directions in which a client's sensors hardly move do not
decide.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

CRITERION = "estimated relative distance of the parameters to their limit"

REST = 1e-12
"""Relative change per pass below which only rounding moves the parameters."""


NUM_RATIOS = 3
"""How many ratios of successive changes must agree that the end is near."""


class Progress(NamedTuple):
    """Changes of the last passes and the estimated relative distance to the limit.

    Attributes:
        changes: shape (pass, θ | Â, client), newest last; NaN for passes not yet made.
        distance: the largest over θ, Â and the clients; infinite while nothing is known.
    """

    changes: Float[np.ndarray, "pass kind client"]
    distance: float


def start(num_clients: int) -> Progress:
    """Before the first pass nothing is known."""
    return Progress(np.full((NUM_RATIOS + 1, 2, num_clients), np.nan), float("inf"))


def update(
    progress: Progress,
    change: Float[np.ndarray, "kind client"],
    size: Float[np.ndarray, "k client"],
) -> Progress:
    """Judge a pass from how far θ and Â moved in it and how large they are."""
    changes = np.concatenate([progress.changes[1:], change[None]])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.max(changes[1:] / changes[:-1], axis=0)  # NaN until there are enough passes
        distance = np.where(ratio < 1, change * ratio / (1 - ratio), np.inf) / size
        relative = np.where(change > 0, change / size, 0.0)
    # At rounding level ratios are noise: the parameters are at rest.
    distance = np.where(relative <= REST, relative, distance)
    return Progress(changes, float(np.max(distance)))


def correction_size(theta: np.ndarray, second_moments: np.ndarray) -> np.ndarray:
    """Root mean square of θy, per client (leading axis)."""
    squares = np.einsum("mpi,mij,mpj->m", theta, second_moments, theta)
    return np.sqrt(np.maximum(squares, 0.0))


def row_size(rows: np.ndarray) -> np.ndarray:
    """Frobenius norm of every row of blocks."""
    return np.linalg.norm(rows, axis=(1, 2))
