r"""Cause and effect of an edge over time: a stretch of the record in which the cause moves most.

Each side is one combination of its client's states, of about unit variance: the cause's follows the
edge's strongest shock b, \(b^\top S^{-1} s / \sqrt{b^\top S^{-1} b}\) with S the covariance of its
states, the effect's is what that shock moves (`EdgeResponse.directions`). A picture, not evidence:
one stretch of many is shown, chosen because much happens in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fedgranger.inference.drift import time_text
from fedgranger.inference.edge_response import EdgeResponse
from fedgranger.inference.states import StateSource

STRETCH = 120
"""Time steps that are shown."""


class EdgeMovement(NamedTuple):
    """Both sides of an edge in one stretch, (cause, effect), about their means there.

    Attributes:
        start: time of its first step, as text.
    """

    start: np.ndarray
    values: Float[np.ndarray, "time side"]


def edge_movements(
    source: StateSource,
    responses: dict[tuple[str, str], EdgeResponse],
    state_covs: list[np.ndarray],
) -> dict[tuple[str, str], EdgeMovement]:
    """One stretch per edge; an edge whose clients are never complete for so long has none."""
    if not responses:
        return {}
    mix = _combinations(source, responses, state_covs)
    both = np.array([[source.names.index(name) for name in edge] for edge in responses])
    sums, first = np.zeros((3, -(-source.num_steps // STRETCH), len(responses))), 0
    for chunk in source.chunks():
        cause, effect = (chunk.observed[:, side] for side in both.T)
        values = np.where(cause, chunk.states @ mix[:, :, 0], 0.0)
        block = (first + np.arange(len(values))) // STRETCH
        begins = np.flatnonzero(np.diff(block, prepend=-1))
        parts = np.stack([values, values**2, cause & effect])
        sums[:, block[begins]] += np.add.reduceat(parts, begins, axis=1)
        first += len(values)
    total, square, known = sums
    variance = square / STRETCH - (total / STRETCH) ** 2
    variance[known < STRETCH] = -1.0
    chosen = variance.argmax(axis=0)
    shown = _stretches(source, mix, both, chosen)
    usable = variance.max(axis=0) >= 0
    return {
        edge: EdgeMovement(np.array(time_text(source, int(chosen[k]) * STRETCH)), shown[:, k])
        for k, edge in enumerate(responses)
        if usable[k]
    }


def _combinations(
    source: StateSource,
    responses: dict[tuple[str, str], EdgeResponse],
    state_covs: list[np.ndarray],
) -> Float[np.ndarray, "state edge side"]:
    out = np.zeros((source.total_dim, len(responses), 2))
    for k, ((cause, effect), response) in enumerate(responses.items()):
        readout, shock = response.directions()
        m, n = source.names.index(effect), source.names.index(cause)
        follows = np.linalg.pinv(state_covs[n], hermitian=True) @ shock
        out[source.owner == n, k, 0] = follows / np.sqrt(max(shock @ follows, 1e-300))
        out[source.owner == m, k, 1] = readout
    return out


def _stretches(
    source: StateSource, mix: np.ndarray, both: np.ndarray, chosen: Int[np.ndarray, " edge"]
) -> Float[np.ndarray, "time edge side"]:
    """The chosen stretch of every edge, about the mean of the stretch."""
    out, first = np.zeros((STRETCH, len(both), 2)), 0
    for chunk in source.chunks():
        for k, begin in enumerate((chosen * STRETCH - first).tolist()):
            rows = slice(max(begin, 0), max(begin + STRETCH, 0))
            observed, values = chunk.observed[rows][:, both[k]], chunk.states[rows] @ mix[:, k]
            out[rows.start - begin :, k][: len(values)] = np.where(observed, values, 0.0)
        first += len(chunk.starts)
    return out - out.mean(axis=0)
