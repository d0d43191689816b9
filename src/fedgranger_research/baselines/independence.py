r"""Which pairs of a client's variables are independent given few others: one layer of PC.

Partial correlations r given a set S of n samples; Fisher's
\(z = \sqrt{n - |S| - 3}\,|\mathrm{artanh}\,r|\) is compared with a normal quantile.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fedgranger_research.baselines.method_protocol import BaselineError

CHUNK = 100_000
"""Partial correlations computed at once."""


class Layer(NamedTuple):
    """What a client found with sets of one size; pairs that were not tested have z = ∞.

    Attributes:
        statistic: smallest z of the pair.
        correlation: |r| of that set.
        separator: that set, places among all variables; −1 where it is smaller.
    """

    statistic: Float[np.ndarray, "variable variable"]
    correlation: Float[np.ndarray, "variable variable"]
    separator: Int[np.ndarray, "variable variable set"]


def run_layer(
    correlations: Float[np.ndarray, "variable variable"],
    num_samples: int,
    skeleton: Bool[np.ndarray, "variable variable"],
    rank: Int[np.ndarray, " variable"],
    set_size: int,
    largest_set: int,
    name: str,
) -> Layer:
    """Test all pairs of the skeleton given all sets of their neighbours of one size.

    Args:
        correlations: of the client's variables.
        num_samples: n.
        skeleton: pairs that are still joined; sets are taken from it as it was sent (PC-stable).
        rank: a variable may separate two others only when its rank is not above both of theirs.
        set_size: |S|.
        largest_set: width of the answer's separators.
        name: of the client, for the sentence when its variables are linearly dependent.
    """
    d = len(correlations)
    statistic, correlation = np.full((d, d), np.inf), np.full((d, d), np.inf)
    separator = np.full((d, d, largest_set), -1)
    tests = _tests(skeleton, rank, set_size)
    if not len(tests):
        return Layer(statistic, correlation, separator)
    r = np.abs(_partial_correlations(correlations, tests, name))
    order = np.lexsort((r, tests[:, 1], tests[:, 0]))
    tests, r = tests[order], r[order]
    first = np.flatnonzero(np.r_[True, (tests[1:, :2] != tests[:-1, :2]).any(axis=1)])
    i, j = tests[first, 0], tests[first, 1]
    smallest = np.minimum(r[first], 1.0 - 1e-15)
    for a, b in ((i, j), (j, i)):
        correlation[a, b] = smallest
        statistic[a, b] = np.sqrt(num_samples - set_size - 3) * np.arctanh(smallest)
        separator[a, b, :set_size] = tests[first, 2:]
    return Layer(statistic, correlation, separator)


def _tests(skeleton: np.ndarray, rank: np.ndarray, set_size: int) -> np.ndarray:
    """Rows of (i, j, set …) with i < j."""
    neighbours = [np.flatnonzero(row) for row in skeleton]
    rows = []
    for i, j in np.argwhere(np.triu(skeleton, 1)):
        latest, sets = max(rank[i], rank[j]), set()
        for end, other in ((i, j), (j, i)):
            near = [k for k in neighbours[end] if k != other and rank[k] <= latest]
            sets.update(combinations(near, set_size))
        rows += [(i, j, *chosen) for chosen in sorted(sets)]
    return np.array(rows, dtype=int).reshape(len(rows), set_size + 2)


def _partial_correlations(R: np.ndarray, tests: np.ndarray, name: str) -> np.ndarray:
    out = np.empty(len(tests))
    for begin in range(0, len(tests), CHUNK):
        part = tests[begin : begin + CHUNK]
        try:
            inverse = np.linalg.inv(R[part[:, :, None], part[:, None, :]])
        except np.linalg.LinAlgError:
            raise BaselineError(
                f"client '{name}': some of its columns are linear combinations of others; remove "
                "columns that say the same"
            ) from None
        scale = np.sqrt(inverse[:, 0, 0] * inverse[:, 1, 1])
        out[begin : begin + CHUNK] = -inverse[:, 0, 1] / scale
    return out
