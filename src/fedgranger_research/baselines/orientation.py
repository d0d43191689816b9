"""Directions for a skeleton: v-structures, Meek's rules, and the rest so that no cycle appears.

`mark[j, i]` and not `mark[i, j]` is j → i; both is an edge without direction. A direction that
would close a cycle is not given, so the directed part is acyclic throughout.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool

Marks = Bool[np.ndarray, "variable variable"]


def orient(mark: Marks, separates: Callable[[int, int], np.ndarray]) -> Marks:
    """Orient a graph whose edges may have directions already (from time order).

    Args:
        mark: the graph.
        separates: of two variables without an edge, the set that separated them.

    Returns:
        A directed acyclic graph with the same edges, `[cause, effect]`.
    """
    mark = mark.copy()
    _orient_colliders(mark, separates)
    while apply_meek(mark):
        pass
    return _extend(mark)


def _joined(mark: Marks) -> Marks:
    return mark | mark.T


def _direct(mark: Marks, cause: int, effect: int) -> bool:
    """Give an edge without direction this one, unless a directed path leads back."""
    if not (mark[cause, effect] and mark[effect, cause]):
        return False
    directed = mark & ~mark.T
    reached, frontier = np.zeros(len(mark), dtype=bool), np.array([effect])
    while len(frontier):
        reached[frontier] = True
        frontier = np.flatnonzero(directed[frontier].any(axis=0) & ~reached)
    if reached[cause]:
        return False
    mark[effect, cause] = False
    return True


def _orient_colliders(mark: Marks, separates: Callable[[int, int], np.ndarray]) -> None:
    """Make it i → k ← j where i and j have no edge and k is not in the set that separated them."""
    joined = _joined(mark)
    for k in range(len(mark)):
        near = np.flatnonzero(joined[k])
        for a, i in enumerate(near):
            for j in near[a + 1 :]:
                into = mark[i, k] and mark[j, k]
                if into and not joined[i, j] and k not in separates(int(i), int(j)):
                    _direct(mark, int(i), k)
                    _direct(mark, int(j), k)


def apply_meek(mark: Marks) -> bool:
    """Meek's four rules (1995) once over all edges without direction; whether one applied."""
    changed = False
    for a, b in np.argwhere(mark & mark.T):
        directed, joined, open_ = mark & ~mark.T, _joined(mark), mark & mark.T
        if not open_[a, b]:
            continue
        into_b = directed[:, b]
        apart_from_b = directed[:, a] & ~joined[:, b]
        between = directed[a] & into_b
        pairs = np.flatnonzero(open_[a] & into_b)
        kite = any(not joined[c, d] for c in pairs for d in pairs if c != d)
        # a — c, c → d, d → b, with c and b apart, a and d joined
        long_way = bool((open_[a] & ~joined[:, b] & (directed @ (into_b & joined[a]))).any())
        if apart_from_b.any() or between.any() or kite or long_way:
            changed |= _direct(mark, int(a), int(b))
    return changed


def _extend(mark: Marks) -> Marks:
    """Direct what is left along an order of the variables, found from its end (Dor & Tarsi 1992).

    A variable can be last when it causes none of those left; among these one is preferred whose
    undirected neighbours are joined to all its neighbours: no new v-structure appears then.
    """
    out, left = mark.copy(), np.ones(len(mark), dtype=bool)
    while left.any():
        directed, joined = mark & ~mark.T, _joined(mark)
        sinks = [int(x) for x in np.flatnonzero(left) if not (directed[x] & left).any()]
        last = next((x for x in sinks if _closes(x, mark, joined, left)), sinks[0])
        out[last, left] = False
        left[last] = False
    return out


def _closes(x: int, mark: Marks, joined: Marks, left: np.ndarray) -> bool:
    near = np.flatnonzero(joined[x] & left)
    undirected = [y for y in near if mark[x, y] and mark[y, x]]
    return all(joined[y, z] for y in undirected for z in near if z != y)
