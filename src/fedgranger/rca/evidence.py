"""What the clients' messages show about some steps of new data: the server's part.

Nothing here knows a client's code or data; `new_data` has the part that reads data in one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fedgranger.inference.reference import Reference, examine_states
from fedgranger.linalg.smoothing import MEMORY, smooth
from fedgranger.messages import MonitorMessage

PER_STEP = ("surprise", "own", "cross", "deviation", "without")


class Report(NamedTuple):
    """A `MonitorMessage` as NumPy arrays, or those of all clients about the same steps.

    Attributes:
        states: (time, states); zero where not observed.
        surprise: (time,), or (time, client); NaN for a step without a predecessor.
        is_observed: likewise.
    """

    states: np.ndarray
    surprise: np.ndarray
    is_observed: np.ndarray


@dataclass(frozen=True, eq=False)
class Evidence:
    """Per step and client; NaN where a step or its predecessor is missing.

    Attributes:
        clients: names, in the order of the columns.
        surprise: the clients' own, 1 on average in normal operation.
        own: energy of the error that a client's own states leave, the same unit.
        cross: energy of the error that all possible causes leave, in units of its usual one.
        deviation: distance of the states from their mean, over its threshold (the paper's d/τ).
        without: [t, m, n], energy left at m when n's contribution is taken out.
        threshold: upper end of each client's normal range of smoothed surprise.
        times: of the steps, where they are known.
        is_utc: clock times are UTC, because the data named a zone.
    """

    clients: tuple[str, ...]
    surprise: np.ndarray
    own: np.ndarray
    cross: np.ndarray
    deviation: np.ndarray
    without: np.ndarray
    threshold: np.ndarray
    times: np.ndarray | None = None
    is_utc: bool = False

    def steps(self, chosen: slice | np.ndarray) -> Evidence:
        """The chosen steps only."""
        parts = {name: getattr(self, name)[chosen] for name in PER_STEP}
        return replace(self, **parts, times=None if self.times is None else self.times[chosen])

    def when(self, step: int) -> str:
        """The clock time of a step, empty where the steps have none."""
        if self.times is None or self.times.dtype.kind != "M":
            return ""
        return clock_text(self.times[step], is_utc=self.is_utc)

    def smoothed(self, start: np.ndarray | float = 1.0) -> np.ndarray:
        """Smoothed surprise per step and client, to be compared with `threshold`."""
        return smooth(self.surprise, start, MEMORY)

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.surprise)


def clock_text(time: np.datetime64, *, is_utc: bool) -> str:
    """A time stamp to the second, and that it is UTC where that is known.

    Example:
        >>> clock_text(np.datetime64("2026-03-05T07:02:00"), is_utc=True)
        '2026-03-05 07:02:00 UTC'
    """
    return str(time.astype("datetime64[s]")).replace("T", " ") + (" UTC" if is_utc else "")


def stack_reports(reference: Reference, messages: Mapping[str, Report | MonitorMessage]) -> Report:
    """Put the messages side by side; a client that sent none was not observed."""
    num_steps = len(next(iter(messages.values())).is_observed)
    unknown, unobserved = np.full(num_steps, np.nan), np.zeros(num_steps, dtype=np.bool_)
    parts = [
        messages.get(name, Report(np.zeros((num_steps, dim)), unknown, unobserved))
        for name, dim in zip(reference.names, reference.dims, strict=True)
    ]
    return Report(
        np.concatenate([np.asarray(part.states) for part in parts], axis=1),
        np.stack([np.asarray(part.surprise) for part in parts], axis=1),
        np.stack([np.asarray(part.is_observed) for part in parts], axis=1),
    )


def combine(
    reference: Reference,
    reports: Report,
    thresholds: Mapping[str, float],
    starts: np.ndarray,
    times: np.ndarray | None = None,
) -> Evidence:
    """Compare the messages with what is expected; needs each client's threshold, one number."""
    found = examine_states(reference, reports.states, reports.is_observed, starts)
    limit = np.array([thresholds.get(name, np.inf) for name in reference.names])
    return Evidence(reference.names, reports.surprise, *found, limit, times)
