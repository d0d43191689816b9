"""What the server's part of training works on: what it knows of the clients, and their messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Rows(NamedTuple):
    """What the server knows of the clients before the first round.

    Attributes:
        names: sorted.
        transitions: A_mm.
        state_gains: of their hellos.
        num_pairs: training steps (t, t+1) per pass.
        segment_starts: time steps that do not follow the one before; None: only the first.
    """

    names: tuple[str, ...]
    transitions: tuple[np.ndarray, ...]
    state_gains: np.ndarray
    num_pairs: int
    segment_starts: np.ndarray | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        """States per client."""
        return tuple(len(A) for A in self.transitions)

    @property
    def starts(self) -> np.ndarray:
        """A flag per training step: it does not follow the one before."""
        if self.segment_starts is None:
            return np.arange(self.num_pairs) == 0
        return np.asarray(self.segment_starts)[: self.num_pairs]


class RoundMessages(NamedTuple):
    """All clients' messages of one round, in the order of the names.

    Attributes:
        filtered: h_c per client, (time, p).
        augmented: h_a per client.
        observed: flag per client and time step.
        reports: change and size of θy per client when a pass has ended.
    """

    filtered: Sequence[np.ndarray]
    augmented: Sequence[np.ndarray]
    observed: Sequence[np.ndarray]
    reports: Sequence[tuple[float, float]] | None
