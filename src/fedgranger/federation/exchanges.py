"""What the server asks of all clients at once, and the states that it collects for the tests."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedgranger.data.time_axis import TimeGrid, grid_time
from fedgranger.federation.codec import Packet
from fedgranger.federation.time_fields import axis_fields
from fedgranger.inference.states import CHUNK_STEPS, StateChunk, StateSource

Answers = dict[str, Packet]


class Request(NamedTuple):
    """What to ask of every client.

    Attributes:
        kind: of the request.
        values: its scalars, per client.
        arrays: its arrays, per client; none for a client that is not named.
        shapes: (time steps or edges, states) that each client's answer must have, where known.
    """

    kind: str
    values: Mapping[str, Mapping[str, Any]]
    arrays: Mapping[str, Mapping[str, np.ndarray]] = {}
    shapes: Mapping[str, tuple[int, int]] = {}

    @property
    def round_index(self) -> int:
        """The round that it belongs to, for the ledger; -1: none."""
        return int(next(iter(self.values.values())).get("round", -1))


class Participants(NamedTuple):
    """Whom a run or a watch asks once it has begun.

    Attributes:
        dims: states per client, by sorted name.
        epoch: of this start of the server; part of every question.
    """

    dims: Mapping[str, int]
    epoch: int

    def request(
        self, kind: str, values: Mapping[str, Any] | None = None, steps: int | None = None
    ) -> Request:
        """The same question to every client; `steps`: time steps that the answers must have."""
        asked = {"epoch": self.epoch, **(values or {})}
        shapes = {} if steps is None else {name: (steps, dim) for name, dim in self.dims.items()}
        return Request(kind, dict.fromkeys(self.dims, asked), shapes=shapes)


def request_on_grid(
    names: tuple[str, ...], kind: str, grid: TimeGrid, values: Mapping[str, Any]
) -> Request:
    """The same question to every client, with the common time axis."""
    axis, arrays = axis_fields(grid)
    asked = {**values, **axis}
    return Request(kind, dict.fromkeys(names, asked), dict.fromkeys(names, arrays))


def collect_states(
    participants: Participants, hellos: Answers, grid: TimeGrid, message_steps: int
) -> Generator[Request, Answers, StateSource]:
    """Every client's least-squares states, once."""
    names = tuple(participants.dims)
    pieces: list[Answers] = []
    for piece, begin in enumerate(range(0, grid.num_steps, message_steps)):
        steps = min(message_steps, grid.num_steps - begin)
        pieces.append((yield participants.request("upload", {"piece": piece}, steps)))
    states, observed = (
        [_joined([piece[name].arrays[field] for piece in pieces]) for name in names]
        for field in ("states", "is_observed")
    )
    hellos = {name: hellos[name] for name in names}
    return source_of(hellos, states, observed, grid.segment_starts, grid_time(grid))


def source_of(
    hellos: Answers,
    states: Sequence[np.ndarray],
    observed: Sequence[np.ndarray],
    starts: np.ndarray,
    times: np.ndarray | None = None,
) -> StateSource:
    """What the server works on: every client's states side by side, and what it said before them.

    `hellos` in the order of the states; `starts`: time steps that do not follow the one before.
    """

    def chunks() -> Iterator[StateChunk]:
        for begin in range(0, len(starts), CHUNK_STEPS):
            rows = slice(begin, begin + CHUNK_STEPS)
            yield StateChunk(
                np.concatenate([part[rows] for part in states], axis=1),
                np.stack([part[rows] > 0 for part in observed], axis=1),
                starts[rows],
            )

    packets = hellos.values()
    covs, added = (
        tuple(np.asarray(hello.arrays[field]) for hello in packets)
        for field in ("error_cov", "added_cov")
    )
    return StateSource(
        tuple(hellos),
        tuple(map(len, covs)),
        covs,
        chunks,
        len(starts),
        tuple(int(hello.values["own_lags"]) for hello in packets),
        periods=tuple(int(step) for hello in packets for step in hello.arrays["periods"]),
        declared=tuple(name for name, hello in hellos.items() if hello.values["is_declared"]),
        noise_shares=tuple(float(hello.values["noise_share"]) for hello in packets),
        added_covs=added if any(cov.any() for cov in added) else (),
        times=times,
    )


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
