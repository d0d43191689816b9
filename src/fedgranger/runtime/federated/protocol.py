"""The server's side of a run, told as one story: ask, agree, train, collect, test.

A generator that yields what to ask of every client and is resumed with all their answers. It
knows no engine, no clock and no lost message: `coordinator` takes care of those. Whenever all
clients have confirmed a round, the server's part of it is on its own disk; after a crash the story
is told again from there, with a higher epoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgranger._version import __version__
from fedgranger.errors import ConfigError, DataError, InferenceError
from fedgranger.inference.edges import EdgeInference, infer
from fedgranger.inference.states import StateChunk, StateSource
from fedgranger.runtime.federated.codec import Packet
from fedgranger.runtime.federated.options import FederationOptions
from fedgranger.runtime.federated.store import Store
from fedgranger.runtime.federated.timing import TimeGrid, TimeRange, agree
from fedgranger.runtime.federated.trainers import RoundMessages, Rows, Trainer, make_trainer
from fedgranger.runtime.federated.validation import read_fraction

__all__ = ["Ask", "Found", "Plan", "Stopped", "tell"]

RECORD = "server"


@dataclass(frozen=True)
class Plan:
    """A run: its name, its clients, its options, and a word no earlier start has used."""

    run: str
    clients: tuple[str, ...]
    options: FederationOptions
    nonce: str


class Ask(NamedTuple):
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


class Found(NamedTuple):
    """What a run found, as the server knows it.

    Attributes:
        clients: sorted names.
        transitions: A_mm.
        granger: Â with A_mm on the diagonal.
        inference: tested edges, or None.
        facts: of the tests.
        trace: losses per round.
        rounds: rounds of training.
        distance: how far from the limit at the end.
        grid: the common time axis.
    """

    clients: tuple[str, ...]
    transitions: tuple[np.ndarray, ...]
    granger: np.ndarray
    inference: EdgeInference | None
    facts: dict[str, Any]
    trace: pd.DataFrame
    rounds: int
    distance: float
    grid: TimeGrid


class Stopped(Exception):  # noqa: N818  not an error: a run that ends by a rule
    """The run cannot go on; the sentence says why and what to do."""


Answers = dict[str, Packet]
Story = Generator[Ask, Answers, Found]


def tell(plan: Plan, store: Store, clock: Callable[[], float], log: Callable[[str], None]) -> Story:
    """Run the protocol from wherever the disks say it stands."""
    names = tuple(sorted(plan.clients))
    ranges = yield _same(names, "offer", {"nonce": plan.nonce, "options": plan.options.to_text()})
    _check_sites(ranges, plan.options, clock())
    grid = agree({name: _time_range(packet) for name, packet in ranges.items()})
    record = _own_record(plan, store, names, grid)
    start = _common_round(ranges, record)
    epoch = 1 + max(int(packet.values["epoch"]) for packet in ranges.values())
    log(f"{grid.num_steps} common time steps; " + ("starting" if start == 0 else f"round {start}"))
    agreed = {
        "epoch": epoch,
        "round": start,
        "time_kind": grid.time_kind,
        "first": str(grid.first),
        "interval": str(grid.interval),
        "num_steps": grid.num_steps,
    }
    hellos = yield _same(names, "begin", agreed)
    rows = _rows(names, hellos, grid)
    yield _same(names, "join", {"epoch": epoch, "total_dim": sum(rows.dims)})
    window = _window(plan.options, rows.num_pairs)
    trainer = make_trainer(rows, plan.options.config, window, plan.options.message_steps)
    trace = []
    if start and record is not None:
        trainer.restore(record[0]["trainer"], record[1])
        trace = record[0]["trace"]
    keep = _keeper(plan, store, names, grid)
    rounds = yield from _train(names, rows.dims, epoch, start, trainer, trace, keep)
    inference, facts = None, {"test": "none", "warnings": []}
    if plan.options.config.test != "none":
        source = yield from _states(names, epoch, hellos, grid, plan.options)
        inference, facts = _test(source, plan.options)
    found = Found(
        names,
        rows.transitions,
        _with_diagonal(trainer.granger, rows),
        inference,
        facts,
        _trace_table(names, trace),
        rounds,
        trainer.distance,
        grid,
    )
    yield _same(names, "finish", {"epoch": epoch, "edges": _edges_text(inference)})
    return found


def _train(
    names: tuple[str, ...],
    dims: tuple[int, ...],
    epoch: int,
    start: int,
    trainer: Trainer,
    trace: list[list[float]],
    keep: Callable[[int, Trainer, list], None],
) -> Generator[Ask, Answers, int]:
    """Rounds until the trainer has enough; return how many."""
    filtered: dict[int, list[np.ndarray]] = {}
    gradients: list[np.ndarray] | None = None
    round_index, is_restart = start, True
    while True:
        asks = _step_asks(names, dims, epoch, round_index, gradients, trainer, is_restart)
        received: list[Answers] = []
        for ask, piece in asks:
            answers = yield ask
            if piece >= 0:
                received.append(answers)
        messages = _messages(names, received, filtered if trainer.sends_filtered_once else None)
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
) -> Iterator[tuple[Ask, int]]:
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

    def ask(learn: int, want: int, arrays: dict[str, np.ndarray]) -> tuple[Ask, int]:
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
        return Ask("step", round_index, dict.fromkeys(names, values), by_client, shapes), want

    for k, arrays in enumerate(downs[:-1]):
        yield ask(k, -1, arrays)
    yield ask(len(downs) - 1, 0, downs[-1] if downs else nothing)
    for piece in range(1, len(spans)):
        yield ask(-1, piece, nothing)


def _messages(
    names: tuple[str, ...], received: list[Answers], kept: dict[int, list[np.ndarray]] | None
) -> RoundMessages:
    """Join the pieces; filtered states that come only once are taken from the first time."""

    def joined(field: str) -> list[np.ndarray]:
        return [np.concatenate([part[name].arrays[field] for part in received]) for name in names]

    filtered = kept[0] if kept else joined("filtered_states")
    if kept is not None:
        kept[0] = filtered
    first = [received[0][name].values for name in names]
    reports = None
    if all(values["has_report"] for values in first):
        reports = [(float(values["change"]), float(values["size"])) for values in first]
    return RoundMessages(filtered, joined("augmented_states"), joined("is_observed"), reports)


def _states(
    names: tuple[str, ...],
    epoch: int,
    hellos: Answers,
    grid: TimeGrid,
    options: FederationOptions,
) -> Generator[Ask, Answers, StateSource]:
    """Every client's least-squares states, once."""
    chunks: list[StateChunk] = []
    dims = tuple(len(hellos[name].arrays["error_cov"]) for name in names)
    starts = np.zeros(grid.num_steps, dtype=np.bool_)
    starts[0] = True
    for piece, begin in enumerate(range(0, grid.num_steps, options.message_steps)):
        ask = _same(names, "upload", {"epoch": epoch, "piece": piece})
        steps = min(options.message_steps, grid.num_steps - begin)
        shapes = {name: (steps, dim) for name, dim in zip(names, dims, strict=True)}
        answers = yield ask._replace(shapes=shapes)
        packets = [answers[name].arrays for name in names]
        chunks.append(
            StateChunk(
                np.concatenate([packet["states"] for packet in packets], axis=1),
                np.stack([packet["is_observed"] > 0 for packet in packets], axis=1),
                starts[begin : begin + options.message_steps],
            )
        )
    return StateSource(
        names,
        dims,
        tuple(np.asarray(hellos[name].arrays["error_cov"]) for name in names),
        lambda: iter(chunks),
        grid.num_steps,
    )


def _test(
    source: StateSource, options: FederationOptions
) -> tuple[EdgeInference | None, dict[str, Any]]:
    try:
        found = infer(source, options.config)
    except InferenceError as error:
        sentence = f"the edges could not be tested: {error}"
        return None, {"test": options.config.test, "reason": str(error), "warnings": [sentence]}
    return found, found.facts


def _same(names: tuple[str, ...], kind: str, values: Mapping[str, Any]) -> Ask:
    round_index = int(values.get("round", -1))
    return Ask(kind, round_index, dict.fromkeys(names, values), {name: {} for name in names})


def _check_sites(ranges: Answers, options: FederationOptions, now: float) -> None:
    for name, packet in ranges.items():
        version = packet.values["version"]
        if version != __version__:
            raise ConfigError(
                f"client '{name}' runs fedgranger {version}, the server {__version__}; install the "
                "same version everywhere"
            )
        offset = float(packet.values["clock"]) - now
        is_stamped = packet.values["time_kind"] == "stamps"
        if is_stamped and options.clock_seconds and abs(offset) > options.clock_seconds:
            raise DataError(
                f"client '{name}': its clock is {offset:+.0f} s from the server's, more than "
                f"clock_seconds = {options.clock_seconds:g}; synchronise the clocks, or raise it "
                "if the time stamps come from elsewhere"
            )


def _time_range(packet: Packet) -> TimeRange:
    values = packet.values
    first, last, interval = (read_fraction(values[key]) for key in ("first", "last", "interval"))
    return TimeRange(str(values["time_kind"]), first, last, interval)


def _rows(names: tuple[str, ...], hellos: Answers, grid: TimeGrid) -> Rows:
    return Rows(
        names,
        tuple(np.asarray(hellos[name].arrays["self_transition"]) for name in names),
        np.array([float(hellos[name].arrays["state_gain"]) for name in names]),
        grid.num_steps - 1,
    )


def _window(options: FederationOptions, num_pairs: int) -> int:
    window = options.config.window
    if window == "full":
        return num_pairs
    if window > num_pairs:
        raise ConfigError(
            f"window is {window} but there are only {num_pairs} steps; use a smaller one"
        )
    return window


def _own_record(
    plan: Plan, store: Store, names: tuple[str, ...], grid: TimeGrid
) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """The server's last round, if it was made with the same clients, options and time axis."""
    record = store.load(RECORD)
    if record is None or record[0]["key"] != _key(plan, names, grid):
        return None
    return record


def _key(plan: Plan, names: tuple[str, ...], grid: TimeGrid) -> list[Any]:
    return [plan.run, plan.options.to_text(), list(names), [str(part) for part in grid]]


def _common_round(
    ranges: Answers, record: tuple[dict[str, Any], dict[str, np.ndarray]] | None
) -> int:
    """The server's round when every client still has it, or 0."""
    if record is None:
        return 0
    own = int(record[0]["round"])
    has_all = all(own in json.loads(str(packet.values["rounds"])) for packet in ranges.values())
    return own if has_all else 0


def _keeper(
    plan: Plan, store: Store, names: tuple[str, ...], grid: TimeGrid
) -> Callable[[int, Trainer, list], None]:
    key = _key(plan, names, grid)

    def keep(round_index: int, trainer: Trainer, trace: list) -> None:
        values, arrays = trainer.memory()
        facts = {"key": key, "round": round_index, "trainer": values, "trace": trace}
        store.save(RECORD, facts, arrays)

    return keep


def _with_diagonal(granger: np.ndarray, rows: Rows) -> np.ndarray:
    out, place = granger.copy(), 0
    for A in rows.transitions:
        out[place : place + len(A), place : place + len(A)] = A
        place += len(A)
    return out


def _trace_table(names: tuple[str, ...], trace: list[list[float]]) -> pd.DataFrame:
    rows = [
        (0, int(losses[0]), name, np.nan, loss)
        for losses in trace
        for name, loss in zip(names, losses[1:], strict=True)
    ]
    columns = ["pass_index", "round", "client", "local_loss", "server_loss"]
    return pd.DataFrame(rows, columns=columns)


def _edges_text(inference: EdgeInference | None) -> str:
    if inference is None:
        return "[]"
    columns = [
        inference.edges[name].tolist() for name in ("cause", "effect", "p_value", "strength")
    ]
    return json.dumps(list(zip(*columns, strict=True)))
