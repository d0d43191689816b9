"""Clock shifts: copies of the very recordings in which no link is true.

Every client's states are shifted in time by an amount of its own (circularly, by whole
periods where one is known). That breaks every link between clients and leaves each one's dynamics,
bursts and tails.

Limits: shifts need rough stationarity; a cycle that clients share is a common cause that only whole
periods and its removal take care of.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fedgranger.inference.states import CHUNK_STEPS, StateChunk, StateSource
from fedgranger.linalg.blocks import client_slices

WHOLE_PERIODS = 10
LEAST_DISTANCE = 0.1
"""Shifted clocks differ by this share of the record at least, or by 1/(2M) with many clients."""
KEPT_BYTES = 256 * 2**20
"""States up to this size stay in memory; larger ones lie in a file without a name."""


class StateTable(NamedTuple):
    """The states of a source with access to any stretch of time; a memory map when large.

    Attributes:
        source: reads from the table, in the same chunks as before.
    """

    source: StateSource
    states: Float[np.ndarray, "time state"]
    observed: Bool[np.ndarray, "time client"]
    starts: Bool[np.ndarray, " time"]

    def shifted(
        self, shifts: Int[np.ndarray, " client"], num_steps: int | None = None
    ) -> StateSource:
        """The first `num_steps` steps with client m's clock shifted forward by `shifts[m]`.

        A break in one client's record, and the place where its end meets its beginning, starts a
        new segment for all of them; whose break it is can be told by `own_starts`.
        """
        T = len(self.starts) if num_steps is None else num_steps
        slices = client_slices(self.source.dims)

        def part(time: np.ndarray) -> StateChunk:
            places = [(time - shift) % T for shift in shifts]
            own = zip(places, slices, strict=True)
            observed = [self.observed[place, m] for m, place in enumerate(places)]
            breaks = np.stack([self.starts[place] | (place == 0) for place in places], axis=1)
            return StateChunk(
                np.concatenate([self.states[place, part] for place, part in own], axis=1),
                np.stack(observed, axis=1),
                np.logical_or.reduce(breaks, axis=1),
                breaks,
            )

        def chunks() -> Iterator[StateChunk]:
            for start in range(0, T, CHUNK_STEPS):
                yield part(np.arange(start, min(start + CHUNK_STEPS, T)))

        return self.source._replace(
            chunks=chunks, num_steps=T, before=lambda steps: part(np.arange(-steps, 0))
        )

    def stretch(self, first: int, end: int) -> StateSource:
        """The steps from `first` up to `end`, as a record of its own."""
        starts = self.starts[first:end].copy()
        starts[:1] = True

        def chunks() -> Iterator[StateChunk]:
            for start in range(first, end, CHUNK_STEPS):
                rows = slice(start, min(start + CHUNK_STEPS, end))
                own = slice(rows.start - first, rows.stop - first)
                yield StateChunk(self.states[rows], self.observed[rows], starts[own])

        times = None if self.source.times is None else self.source.times[first:end]
        return self.source._replace(
            chunks=chunks, num_steps=end - first, before=None, regime_start=0, times=times
        )


def tabulate(source: StateSource) -> StateTable:
    """Read a source once, into memory or into a temporary file."""
    states = large_zeros((source.num_steps, source.total_dim))
    observed = np.zeros((source.num_steps, len(source.dims)), dtype=np.bool_)
    starts, ends = np.zeros(source.num_steps, dtype=np.bool_), [0]
    for chunk in source.chunks():
        rows = slice(ends[-1], ends[-1] + len(chunk.starts))
        states[rows], observed[rows], starts[rows] = chunk[:3]
        ends.append(rows.stop)

    def chunks() -> Iterator[StateChunk]:
        for first, end in itertools.pairwise(ends):
            yield StateChunk(states[first:end], observed[first:end], starts[first:end])

    return StateTable(source._replace(chunks=chunks), states, observed, starts)


def large_zeros(shape: tuple[int, int]) -> Float[np.ndarray, "time state"]:
    """An array of zeros in memory, or in a file without a name when it is large."""
    if 8 * shape[0] * shape[1] <= KEPT_BYTES:
        return np.zeros(shape)
    with tempfile.TemporaryFile() as file:  # its memory map keeps it
        return np.memmap(file, np.float64, "w+", shape=shape)


def draw_shifts(
    num_clients: int, num_steps: int, copies: int, seed: int, period: int = 1
) -> Int[np.ndarray, "copy client"]:
    """Shifts of all clients per copy, whole multiples of `period`.

    Around the circle of `num_steps` (a multiple of `period`) any two clocks are apart by a tenth of
    it, or by half of an equal share when there are many.
    """
    rng = np.random.default_rng([seed, num_clients, num_steps])
    slots = num_steps // period
    least = min(LEAST_DISTANCE, 0.5 / num_clients)
    out = np.empty((copies, num_clients), dtype=np.int64)
    for copy in range(copies):
        distances = least + (1 - num_clients * least) * rng.dirichlet(np.ones(num_clients))
        place = np.floor((np.cumsum(distances) - distances[0]) * slots).astype(np.int64)
        out[copy] = rng.permutation(place) * period
    return out


def draw_lone_shifts(
    num_steps: int, copies: int, seed: int, period: int = 1
) -> Int[np.ndarray, " copy"]:
    """Shifts of one clock against all others, whole multiples of `period`, spread over the record.

    One in each of equal parts of the circle of `num_steps`, without its first and last tenth.
    """
    rng = np.random.default_rng([seed, num_steps])
    share = (np.arange(copies) + rng.random(copies)) / copies
    place = LEAST_DISTANCE + (1 - 2 * LEAST_DISTANCE) * share
    return np.floor(place * (num_steps // period)).astype(np.int64) * period


def common_period(periods: tuple[int, ...], num_steps: int) -> int:
    """Steps after which all cycles repeat, as far as the record holds ten of them; 1: none."""
    found = 1
    for period in sorted(set(periods)):
        both = math.lcm(found, period)
        found = both if both <= num_steps // WHOLE_PERIODS else found
    return found


class CopyKind(NamedTuple):
    """Copies in which some clients share one clock, and the pairs that are tested on them."""

    together: Bool[np.ndarray, " client"]
    pairs: Bool[np.ndarray, "effect cause"]


def kinds_of_copies(driven: Bool[np.ndarray, "effect cause"], most: int) -> list[CopyKind]:
    """For every pair the copies in which it has no link but its effect's other links hold.

    For n -> m the clients that drive m stay with m, except n. Where that takes more than `most`
    kinds of copies, pairs that seem linked are tested with all clocks apart; and if these are still
    too many, all pairs are. Links that are broken widen a statistic's law: p-values err upwards.
    `driven` are the pairs that seem to be links.
    """
    M = len(driven)
    kinds: dict[bytes, CopyKind] = {}
    for detail in ("every pair", "absent links", "none"):
        kinds = {}
        for m, n in zip(*np.nonzero(~np.eye(M, dtype=np.bool_)), strict=True):
            together = driven[m] & (detail != "none")
            if detail == "absent links" and driven[m, n]:
                together = np.zeros(M, dtype=np.bool_)
            together[n], together[m] = False, True
            if together.sum() == 1:
                together[m] = False
            kind = CopyKind(together, np.zeros((M, M), dtype=np.bool_))
            kinds.setdefault(together.tobytes(), kind).pairs[m, n] = True
        if len(kinds) <= most:
            break
    return list(kinds.values())


def keep_together(
    shifts: Int[np.ndarray, "copy client"], kind: CopyKind
) -> Int[np.ndarray, "copy client"]:
    """The same shifts with one clock for those that stay together."""
    out = shifts.copy()
    if kind.together.any():
        out[:, kind.together] = out[:, [int(np.argmax(kind.together))]]
    return out
