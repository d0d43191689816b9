"""Lagged columns of all clients on any clocks, made once for the data and all its copies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from fedgranger.inference.lag_bases import LagBasis, lag_bases, lag_chunks, steps_at_once
from fedgranger.inference.states import StateSource

KEPT_VALUES = 24_000_000
"""So many values of lagged columns are kept for all copies, of more they are made again."""


class ColumnChunk(NamedTuple):
    """Consecutive time steps.

    Attributes:
        first: position in time of the first one.
        past: unbroken observed steps that end one step before.
        now: those that end there.
        columns: (time, column) of every client, its basis' orthonormal columns.
        innovations: (time, p) of every client, what its own past does not predict, whitened.
    """

    first: int
    past: Int[np.ndarray, "time client"]
    now: Int[np.ndarray, "time client"]
    columns: list[np.ndarray]
    innovations: list[np.ndarray]


class LagColumns:
    """The columns that regressions at given lags need.

    Shifting a client's clock moves its columns in time and changes nothing else, so a copy's are
    parts of those that are kept.
    """

    def __init__(self, source: StateSource, cause_lags: Int[np.ndarray, "effect cause"]) -> None:
        others = np.where(np.eye(len(cause_lags), dtype=np.bool_), 0, cause_lags + 1)
        depths = np.maximum(source.own_lags, others.max(axis=0))
        self.bases: list[LagBasis] = lag_bases(source, depths)
        self.depth, self._num_steps = int(depths.max()), source.num_steps
        self._kept: ColumnChunk | None = None
        if source.num_steps * sum(len(basis.lag) for basis in self.bases) <= KEPT_VALUES:
            self._kept = _joined(list(self._read(source)))

    def chunks(
        self, source: StateSource, shifts: Int[np.ndarray, " client"] | None = None
    ) -> Iterator[ColumnChunk]:
        """Go through all time steps of the states once, or of a copy with these clock shifts."""
        if source.num_steps != self._num_steps:
            raise RuntimeError("the columns belong to other data")
        if self._kept is None:
            yield from self._read(source)
            return
        kept, T = self._kept, self._num_steps
        shifts = np.zeros(len(self.bases), dtype=np.int64) if shifts is None else shifts
        steps = steps_at_once(self.depth, source.total_dim)
        cuts = {0, T, *range(0, T, steps), *(int(shift) % T for shift in shifts)}
        for start, stop in itertools.pairwise(sorted(cuts)):  # nobody's record ends in between
            places = [int(start - shift) % T for shift in shifts]
            clocks = [slice(place, place + stop - start) for place in places]
            yield ColumnChunk(
                start,
                np.stack([kept.past[clock, m] for m, clock in enumerate(clocks)], axis=1),
                np.stack([kept.now[clock, m] for m, clock in enumerate(clocks)], axis=1),
                [own[clock] for own, clock in zip(kept.columns, clocks, strict=True)],
                [own[clock] for own, clock in zip(kept.innovations, clocks, strict=True)],
            )

    def _read(self, source: StateSource) -> Iterator[ColumnChunk]:
        for chunk in lag_chunks(source, self.depth):
            columns = [basis.columns(chunk) for basis in self.bases]
            pairs = zip(self.bases, columns, strict=True)
            innovations = [basis.innovations(chunk, own) for basis, own in pairs]
            unbroken = chunk.unbroken
            yield ColumnChunk(chunk.first, unbroken[:-1], unbroken[1:], columns, innovations)


def _joined(parts: list[ColumnChunk]) -> ColumnChunk:
    return ColumnChunk(
        0,
        np.concatenate([part.past for part in parts]),
        np.concatenate([part.now for part in parts]),
        [np.concatenate(own) for own in zip(*(part.columns for part in parts), strict=True)],
        [np.concatenate(own) for own in zip(*(part.innovations for part in parts), strict=True)],
    )
