r"""Scores of root causes: one number per client and window, the largest is the suspect.

- `unexplained` (default): how surprised the client is by itself, times the share that the others
  do not explain, \(\log \overline{u_m} + \log\,\mathrm{clip}(\overline{c_m}/\overline{o_m},
  0.2, 1)\), with u the surprise, o and c the energies of the errors that own states and all causes
  leave, in units of their usual energy, means over the first steps of the window. A client that
  only follows others is predicted by them.
- `surprise`: the first term alone.
- `deviation`: mean distance of the states from normal over its threshold; no graph, no direction.
- `paper`: \(\sum_{i \ne j} z_i z_j \lVert A_{ij}\rVert_F\) with \(z = 1\) where the deviation
  exceeds its threshold, mean over the window's steps (the printed indices do not fit together,
  and the paper does not say how an instance of many steps becomes one; docs/root-cause.md). It is
  zero for all clients when no two are ever flagged at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fedgranger.rca.evidence import Evidence

HORIZON = 200
"""Steps after the start of a window that count: later ones show where the anomaly has spread."""
LEAST_UNEXPLAINED = 0.2
"""Others never explain more than all but this share: their prediction errs too."""

Scorer = Callable[[Evidence, np.ndarray], np.ndarray]


def unexplained(evidence: Evidence, strengths: np.ndarray) -> np.ndarray:
    """Surprise that the other clients do not explain."""
    share = np.clip(unexplained_share(evidence), LEAST_UNEXPLAINED, 1.0)
    return surprise(evidence, strengths) + np.log(np.where(np.isnan(share), 1.0, share))


def unexplained_share(evidence: Evidence) -> np.ndarray:
    """Mean c over mean o, of the steps at which both are known; NaN without any."""
    own, cross = evidence.own[:HORIZON], evidence.cross[:HORIZON]
    both = ~np.isnan(own) & ~np.isnan(cross)
    own, cross = np.where(both, own, np.nan), np.where(both, cross, np.nan)
    return mean_known(cross) / np.maximum(mean_known(own), 1e-300)


def surprise(evidence: Evidence, _strengths: np.ndarray) -> np.ndarray:
    """Logarithm of the mean surprise; −∞ for a client that was not observed."""
    mean = mean_known(evidence.surprise[:HORIZON])
    return np.where(np.isnan(mean), -np.inf, np.log(np.maximum(mean, 1e-12)))


def deviation(evidence: Evidence, _strengths: np.ndarray) -> np.ndarray:
    """Mean distance from normal; larger than 1 is out of range."""
    mean = mean_known(evidence.deviation)
    return np.where(np.isnan(mean), 0.0, mean)


def paper(evidence: Evidence, strengths: np.ndarray) -> np.ndarray:
    """The paper's score, mean over steps; [i, j] = strength of j's influence on i."""
    flagged = (evidence.deviation > 1).astype(np.float64)  # NaN is not flagged
    others = strengths * (1 - np.eye(len(strengths)))
    return (flagged * (flagged @ others)).mean(axis=0)


SCORERS: Mapping[str, Scorer] = {
    "unexplained": unexplained,
    "surprise": surprise,
    "deviation": deviation,
    "paper": paper,
}


def is_defined(scores: np.ndarray) -> bool:
    """Whether the scores rank at all: those of observed clients are not all equal."""
    known = scores[np.isfinite(scores)]
    return len(known) > 0 and bool(np.ptp(known) > 0 or len(known) < len(scores))


def mean_known(values: np.ndarray) -> np.ndarray:
    """Mean over steps of what is known; NaN for a client of whom nothing is."""
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


WHOLE_WINDOW = ("deviation", "paper")
"""Scorers that use every step of a window, however long."""
