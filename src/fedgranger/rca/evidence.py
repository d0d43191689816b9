"""What the clients' messages show about some steps of new data: the server's part.

Nothing here knows a client's code or data; `new_data` has the part that reads data in one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedgranger.inference.reference import Reference, examine_states
from fedgranger.linalg.smoothing import MEMORY, smooth


class Report(Protocol):
    """One client's `messages.MonitorMessage`, as any kind of array."""

    @property
    def states(self) -> Any:
        """(time, states); zero where not observed."""
        ...

    @property
    def surprise(self) -> Any:
        """(time,); NaN for a step without a predecessor."""
        ...

    @property
    def is_observed(self) -> Any:
        """(time,)."""
        ...


class Reports(NamedTuple):
    """The messages of all clients about the same steps, in the order of the reference.

    Attributes:
        states: (time, P).
        surprise: (time, client); NaN where unknown.
        observed: (time, client).
    """

    states: np.ndarray
    surprise: np.ndarray
    observed: np.ndarray

    def after(self, past: Reports | None) -> Reports:
        """The same, with some steps before them."""
        if past is None:
            return self
        return Reports(*(np.concatenate(pair) for pair in zip(past, self, strict=True)))

    def last(self) -> Reports:
        """The last step alone."""
        return Reports(*(part[-1:] for part in self))


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
    """

    clients: tuple[str, ...]
    surprise: np.ndarray
    own: np.ndarray
    cross: np.ndarray
    deviation: np.ndarray
    without: np.ndarray
    threshold: np.ndarray

    def steps(self, chosen: slice | np.ndarray) -> Evidence:
        """The chosen steps only."""
        return Evidence(
            self.clients,
            self.surprise[chosen],
            self.own[chosen],
            self.cross[chosen],
            self.deviation[chosen],
            self.without[chosen],
            self.threshold,
        )

    def smoothed(self, start: np.ndarray | float = 1.0) -> np.ndarray:
        """Smoothed surprise per step and client, to be compared with `threshold`."""
        return smooth(self.surprise, start, MEMORY)

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.surprise)


def stack_reports(reference: Reference, messages: Mapping[str, Report]) -> Reports:
    """Put the messages side by side; a client that sent none was not observed."""
    num_steps = len(next(iter(messages.values())).is_observed)
    states, surprise, observed = [], [], []
    for name, dim in zip(reference.names, reference.dims, strict=True):
        message = messages.get(name)
        if message is None:
            states.append(np.zeros((num_steps, dim)))
            surprise.append(np.full(num_steps, np.nan))
            observed.append(np.zeros(num_steps, dtype=np.bool_))
        else:
            states.append(np.asarray(message.states))
            surprise.append(np.asarray(message.surprise))
            observed.append(np.asarray(message.is_observed))
    return Reports(
        np.concatenate(states, axis=1), np.stack(surprise, axis=1), np.stack(observed, axis=1)
    )


def combine(
    reference: Reference, reports: Reports, thresholds: Mapping[str, float], starts: np.ndarray
) -> Evidence:
    """Compare the messages with what is expected; needs each client's threshold, one number."""
    found = examine_states(reference, reports.states, reports.observed, starts)
    limit = np.array([thresholds.get(name, np.inf) for name in reference.names])
    return Evidence(reference.names, reports.surprise, *found, limit)
