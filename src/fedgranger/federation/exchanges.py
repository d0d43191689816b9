"""What the server asks of all clients at once, and the states that it collects for the tests."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
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
    starts = grid.segment_starts

    def chunks() -> Iterator[StateChunk]:
        for begin in range(0, grid.num_steps, CHUNK_STEPS):
            rows = slice(begin, begin + CHUNK_STEPS)
            yield StateChunk(
                np.concatenate([part[rows] for part in states], axis=1),
                np.stack([part[rows] > 0 for part in observed], axis=1),
                starts[rows],
            )

    dims = tuple(participants.dims.values())
    covs = tuple(np.asarray(hellos[name].arrays["error_cov"]) for name in names)
    added = tuple(np.asarray(hellos[name].arrays["added_cov"]) for name in names)
    own_lags = tuple(int(hellos[name].values["own_lags"]) for name in names)
    return StateSource(
        names,
        dims,
        covs,
        chunks,
        grid.num_steps,
        own_lags,
        periods=tuple(int(step) for name in names for step in hellos[name].arrays["periods"]),
        declared=tuple(name for name in names if hellos[name].values["is_declared"]),
        noise_shares=tuple(float(hellos[name].values["noise_share"]) for name in names),
        added_covs=added if any(cov.any() for cov in added) else (),
        times=grid_time(grid),
    )


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
