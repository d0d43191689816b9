"""How good rankings are: AC@k, Avg@k, MRR, beside chance, a constant guess and bootstrap errors.

Ties are never broken by the order of clients: a score's rank is the expectation over all orders of
its equals. An instance with several roots counts as found when any of them is among the first k;
with ties, the chance that at least one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import NamedTuple

import numpy as np

from fedgranger.errors import DataError

RESAMPLES = 2000


class Instance(NamedTuple):
    """Scores of one anomaly and its true roots (positions)."""

    scores: np.ndarray
    roots: tuple[int, ...]


class Accuracy(NamedTuple):
    """Means over instances.

    Attributes:
        ac: AC@1, AC@2, … up to the number of clients.
        avg: Avg@k = mean of AC@1 … AC@k, the same length.
        mrr: mean reciprocal rank of the best root.
        ac1_interval: 95 % bootstrap interval of AC@1, over instances.
        balanced: AC@1 averaged over root clients first (single-root instances only).
        undefined: share of instances whose scores are all equal.
        num_instances: how many.
    """

    ac: np.ndarray
    avg: np.ndarray
    mrr: float
    ac1_interval: tuple[float, float]
    balanced: float
    undefined: float
    num_instances: int


def hits(instance: Instance) -> np.ndarray:
    """Chance that a root is among the first k, for k = 1 … M, ties in random order."""
    scores, M = instance.scores, len(instance.scores)
    best = scores[list(instance.roots)].max()
    above = int((scores > best).sum())
    equal = int((scores == best).sum())
    roots = int((scores[list(instance.roots)] == best).sum())
    out = np.zeros(M)
    for k in range(1, M + 1):
        places = min(max(k - above, 0), equal)
        out[k - 1] = 1 - comb(equal - roots, places) / comb(equal, places) if places else 0.0
    return out


def chance_hits(num_clients: int, num_roots: int) -> np.ndarray:
    """The same for a random order."""
    return hits(Instance(np.zeros(num_clients), tuple(range(num_roots))))


def evaluate_rankings(instances: Sequence[Instance], seed: int = 0) -> Accuracy:
    """Average over instances, all with the same clients.

    Raises:
        DataError: there is no instance, or one without a root.
    """
    if not instances:
        raise DataError("no anomaly with a known root cause was given; nothing can be scored")
    if any(not instance.roots for instance in instances):
        raise DataError("an anomaly has no known root cause; leave it out")
    table = np.stack([hits(instance) for instance in instances])
    # E[1 / rank] from P(rank = k) = hits(k) − hits(k − 1)
    steps = np.diff(table, prepend=0.0, axis=1)
    reciprocal = (steps / np.arange(1, table.shape[1] + 1)).sum(axis=1)
    ac = table.mean(axis=0)
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, len(table), (RESAMPLES, len(table)))
    low, high = np.quantile(table[:, 0][draws].mean(axis=1), (0.025, 0.975))
    by_root: dict[int, list[float]] = {}
    for instance, found in zip(instances, table[:, 0], strict=True):
        if len(instance.roots) == 1:
            by_root.setdefault(instance.roots[0], []).append(float(found))
    balanced = float(np.mean([np.mean(v) for v in by_root.values()])) if by_root else float("nan")
    return Accuracy(
        ac,
        np.cumsum(ac) / np.arange(1, len(ac) + 1),
        float(reciprocal.mean()),
        (float(low), float(high)),
        balanced,
        float(np.mean([len(set(instance.scores.tolist())) == 1 for instance in instances])),
        len(instances),
    )
