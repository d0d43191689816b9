"""What the server asks in a round and for the tests, and how the answers are put together."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedgranger.data.time_axis import TimeGrid
from fedgranger.federation.agreed_options import FederationOptions
from fedgranger.federation.codec import Packet
from fedgranger.inference.states import CHUNK_STEPS, StateChunk, StateSource
from fedgranger.server.trainer import RoundMessages, Trainer

Answers = dict[str, Packet]


class Request(NamedTuple):
    """What to ask of every client.

    Attributes:
        kind: of the request.
        round_index: the round it belongs to, for the ledger.
        values: its scalars, per client.
        arrays: its arrays, per client.
        shapes: (time steps, states) that each client's answer must have, where known.
    """

    kind: str
    round_index: int
    values: Mapping[str, Mapping[str, Any]]
    arrays: Mapping[str, Mapping[str, np.ndarray]]
    shapes: Mapping[str, tuple[int, int]] = {}


def train(
    names: tuple[str, ...],
    dims: tuple[int, ...],
    epoch: int,
    start: int,
    trainer: Trainer,
    trace: list[list[float]],
    keep: Callable[[int, Trainer, list], None],
) -> Generator[Request, Answers, int]:
    """Rounds until the trainer has enough; return how many."""
    filtered: Sequence[np.ndarray] | None = None
    gradients: list[np.ndarray] | None = None
    round_index, is_restart = start, True
    while True:
        asks = _step_asks(names, dims, epoch, round_index, gradients, trainer, is_restart)
        received: list[Answers] = []
        for ask, piece in asks:
            answers = yield ask
            if piece >= 0:
                received.append(answers)
        messages = _messages(names, received, filtered)
        if trainer.sends_filtered_once:
            filtered = messages.filtered
        keep(round_index, trainer, trace)
        gradients = trainer.absorb(round_index, messages)
        if gradients is None or round_index % trainer.trace_stride == 0:
            trace.append([float(round_index), *map(float, trainer.losses)])
        if gradients is None:
            return round_index
        round_index, is_restart = round_index + 1, False


def _step_asks(
    names: tuple[str, ...],
    dims: tuple[int, ...],
    epoch: int,
    round_index: int,
    gradients: list[np.ndarray] | None,
    trainer: Trainer,
    is_restart: bool,
) -> Iterator[tuple[Request, int]]:
    """Gradients of the round before go down in pieces; with the last, states begin to come up."""
    spans = trainer.spans(round_index)
    nothing = {name: np.zeros((0, 0)) for name in names}
    learned = [] if gradients is None else trainer.spans(round_index - 1)
    offsets = np.concatenate([[0], np.cumsum(learned)]).astype(int)
    filtered = is_restart or not trainer.sends_filtered_once
    downs: list[dict[str, np.ndarray]] = []
    if gradients is not None:
        downs = [
            {name: gradients[m][offsets[k] : offsets[k + 1]] for m, name in enumerate(names)}
            for k in range(len(learned))
        ]

    def ask(learn: int, want: int, arrays: dict[str, np.ndarray]) -> tuple[Request, int]:
        values = {
            "epoch": epoch,
            "round": round_index,
            "learn_piece": learn,
            "learn_pieces": len(downs),
            "want_piece": want,
            "want_filtered": filtered,
        }
        by_client = {name: {"gradients": arrays[name]} for name in names}
        steps = spans[max(want, 0)]
        shapes = {name: (steps, dim) for name, dim in zip(names, dims, strict=True)}
        return Request("step", round_index, dict.fromkeys(names, values), by_client, shapes), want

    for k, arrays in enumerate(downs[:-1]):
        yield ask(k, -1, arrays)
    yield ask(len(downs) - 1, 0, downs[-1] if downs else nothing)
    for piece in range(1, len(spans)):
        yield ask(-1, piece, nothing)


def _messages(
    names: tuple[str, ...], received: list[Answers], filtered: Sequence[np.ndarray] | None
) -> RoundMessages:
    """Join the pieces; `filtered` are the filtered states when they came in an earlier round."""

    def joined(field: str) -> list[np.ndarray]:
        return [np.concatenate([part[name].arrays[field] for part in received]) for name in names]

    if filtered is None:
        filtered = joined("filtered_states")
    first = [received[0][name].values for name in names]
    reports = None
    if all(values["has_report"] for values in first):
        reports = [(float(values["change"]), float(values["size"])) for values in first]
    return RoundMessages(filtered, joined("augmented_states"), joined("is_observed"), reports)


def request_models(
    names: tuple[str, ...], dims: tuple[int, ...], epoch: int
) -> Generator[Request, Answers, Answers]:
    """What FedGC's rounds need to know of every client before the first."""
    shapes = {name: (dim, dim) for name, dim in zip(names, dims, strict=True)}
    return (yield request_all(names, "train", {"epoch": epoch})._replace(shapes=shapes))


def collect_states(
    names: tuple[str, ...],
    epoch: int,
    hellos: Answers,
    grid: TimeGrid,
    options: FederationOptions,
) -> Generator[Request, Answers, StateSource]:
    """Every client's least-squares states, once."""
    covs = tuple(np.asarray(hellos[name].arrays["error_cov"]) for name in names)
    dims = tuple(len(cov) for cov in covs)
    pieces: list[Answers] = []
    for piece, begin in enumerate(range(0, grid.num_steps, options.message_steps)):
        ask = request_all(names, "upload", {"epoch": epoch, "piece": piece})
        steps = min(options.message_steps, grid.num_steps - begin)
        shapes = {name: (steps, dim) for name, dim in zip(names, dims, strict=True)}
        pieces.append((yield ask._replace(shapes=shapes)))
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

    own_lags = tuple(int(hellos[name].values["own_lags"]) for name in names)
    periods = tuple(int(step) for name in names for step in hellos[name].arrays["periods"])
    return StateSource(names, dims, covs, chunks, grid.num_steps, own_lags, periods)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def request_all(names: tuple[str, ...], kind: str, values: Mapping[str, Any]) -> Request:
    """The same question to every client."""
    return request_each(kind, dict.fromkeys(names, values))


def request_each(kind: str, values: Mapping[str, Mapping[str, Any]]) -> Request:
    """A question of its own to every client."""
    round_index = int(next(iter(values.values())).get("round", -1))
    return Request(kind, round_index, values, {name: {} for name in values})
