r"""How far a message moves when one client's data change: its l2 sensitivity.

Measurements are clipped to a norm of at most B, so a changed one moves by at most 2 B. Who is a
neighbour of whom, and what "one client's data" means, is in `Neighbours`. Proofs:
docs/theory/privacy.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedgranger.errors import ConfigError
from fedgranger.privacy.filter_steps import make_steps
from fedgranger.privacy.worst_window import complete_window, worst_window

KINDS = ("event", "window", "record")
ROUNDING = 1e-9
"""Bounds are made so much larger, which covers every rounding on the way."""


@dataclass(frozen=True)
class Neighbours:
    """Which data sets must not be told apart: those that differ in a stretch of one client.

    Data sets are neighbours if they differ, at one client, in the values of consecutive time
    steps, each arbitrary. Which steps were observed is the same: it is taken as known.

    Attributes:
        kind: "event" (one time step), "window" (`steps` of them) or "record" (all).
        steps: how many steps of a window may differ; without meaning for the others.
    """

    kind: str
    steps: int = 1

    def __post_init__(self) -> None:
        """Refuse relations that are none."""
        if self.kind not in KINDS:
            raise ConfigError(f"neighbours are '{self.kind}'; choose one of {', '.join(KINDS)}")
        if self.steps < 1:
            raise ConfigError(f"neighbours differ in {self.steps} steps; it must be 1 or more")

    def length(self, num_steps: int) -> int:
        """How many time steps of a record of `num_steps` may differ."""
        longest = {"event": 1, "window": self.steps, "record": num_steps}[self.kind]
        return min(longest, num_steps)

    def words(self) -> str:
        """The relation in one sentence."""
        stretch = {
            "event": "at one time step",
            "window": f"in {self.steps} consecutive time steps",
            "record": "in its whole record",
        }[self.kind]
        return (
            f"two records that differ in what one client measured {stretch} "
            "(when it measured is known)"
        )


class Filter(NamedTuple):
    r"""A linear filter of clipped measurements, as `fedgranger.client.kalman` runs it.

    $$h^t = (I - K C)\,A\,h^{t-1} + G\,y^t \text{ (observed)}, \qquad
      h^t = A\,h^{t-1} \text{ (missing)}$$

    and at the first step of a segment what was before is zero: \(h^t = G y^t\), or 0.

    Attributes:
        transition: A.
        correction: I - K C.
        gain: G, the gain in the coordinates in which measurements are clipped.
    """

    transition: np.ndarray
    correction: np.ndarray
    gain: np.ndarray


def memoryless(bound: float, neighbours: Neighbours, num_steps: int) -> float:
    r"""Sensitivity of rows that are each a function of one time step, clipped to norm B.

    $$\Delta = 2 B \sqrt{w}$$

    Example:
        >>> memoryless(0.5, Neighbours("window", 4), 100)
        2.0
    """
    return 2.0 * _checked_bound(bound) * math.sqrt(neighbours.length(num_steps))


def filtered(
    filter: Filter,
    bound: float,
    neighbours: Neighbours,
    observed: np.ndarray,
    starts: np.ndarray,
) -> float:
    r"""Upper bound of the sensitivity of a filter's whole trajectory \((h^1, \dots, h^T)\).

    $$\Delta = 2 B \max_{\text{windows}} \max_{\|u_t\| \le 1} \|R u\|$$

    with R the map from the measurements of a window to the trajectory. Exact for one time step;
    for more, the certified bound of `filter_bounds`, over every window of the record with its
    own missing steps and segments. Infinite when the numbers overflow, which takes an unstable
    filter and a long gap.

    Args:
        filter: what happens at a step.
        bound: B, to which measurements are clipped.
        neighbours: how many steps may change.
        observed: whether a measurement enters at a step.
        starts: whether a segment starts there; the first step always does.
    """
    _check(filter, observed, starts)
    num_steps = len(observed)
    if not observed.any() or not filter.gain.any():
        return 0.0
    steps = make_steps(*filter, observed, starts)
    length = neighbours.length(num_steps)
    with np.errstate(over="ignore", invalid="ignore"):
        if observed.all() and length <= (longest := _longest_segment(starts)):
            squared = complete_window(steps, length, longest)
        else:
            squared = worst_window(steps, length)
    return 2.0 * _checked_bound(bound) * math.sqrt(squared) * (1.0 + ROUNDING)


def _longest_segment(starts: np.ndarray) -> int:
    begins = np.union1d([0], np.flatnonzero(starts))
    return int(np.diff(begins, append=len(starts)).max())


def _checked_bound(bound: float) -> float:
    if not 0.0 <= bound < math.inf:
        raise ConfigError(f"the bound for clipping is {bound}; give a number that is not negative")
    return float(bound)


def _check(given: Filter, observed: np.ndarray, starts: np.ndarray) -> None:
    """Refuse what is no filter, or no record."""
    p = len(given.transition)
    shapes = (given.transition.shape, given.correction.shape, given.gain.shape[:1])
    if shapes != ((p, p), (p, p), (p,)) or given.gain.ndim != 2:
        raise ConfigError("the filter's matrices do not fit together; give (p, p), (p, p), (p, k)")
    if not all(np.isfinite(matrix).all() for matrix in given):
        raise ConfigError("the filter's matrices have entries that are not finite")
    if observed.shape != starts.shape or observed.ndim != 1:
        raise ConfigError("observed and starts must say yes or no for the same time steps")
    if observed.dtype != np.bool_ or starts.dtype != np.bool_:
        raise ConfigError("observed and starts must be arrays of yes and no")
