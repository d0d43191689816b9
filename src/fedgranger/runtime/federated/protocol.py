"""The server's side of a run, told as one story: ask, agree, train, collect, test.

A generator that yields what to ask of every client and is resumed with all their answers. It
knows no engine, no clock and no lost message: `coordinator` takes care of those. Whenever all
clients have confirmed a round, the server's part of it is on its own disk; after a crash the story
is told again from there, with a higher epoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgranger._version import __version__
from fedgranger.errors import ConfigError, DataError, InferenceError
from fedgranger.inference.edges import EdgeInference, infer
from fedgranger.inference.states import StateSource
from fedgranger.runtime.federated.codec import Packet
from fedgranger.runtime.federated.exchanges import Answers, Ask, ask_all, collect_states, train
from fedgranger.runtime.federated.options import FederationOptions
from fedgranger.runtime.federated.store import Store
from fedgranger.runtime.federated.timing import TimeGrid, TimeRange, agree
from fedgranger.runtime.federated.trainers import Rows, Trainer, make_trainer
from fedgranger.runtime.federated.validation import read_fraction

__all__ = ["Found", "Plan", "Stopped", "Story", "tell"]

RECORD = "server"


@dataclass(frozen=True)
class Plan:
    """A run: its name, its clients, its options, and a word no earlier start has used."""

    run: str
    clients: tuple[str, ...]
    options: FederationOptions
    nonce: str


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


Story = Generator[Ask, Answers, Found]


def tell(plan: Plan, store: Store, clock: Callable[[], float], log: Callable[[str], None]) -> Story:
    """Run the protocol from wherever the disks say it stands."""
    names = tuple(sorted(plan.clients))
    ranges = yield ask_all(names, "offer", {"nonce": plan.nonce, "options": plan.options.to_text()})
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
    hellos = yield ask_all(names, "begin", agreed)
    rows = _rows(names, hellos, grid)
    yield ask_all(names, "join", {"epoch": epoch, "total_dim": sum(rows.dims)})
    window = _window(plan.options, rows.num_pairs)
    trainer = make_trainer(rows, plan.options.config, window, plan.options.message_steps)
    trace = []
    if start and record is not None:
        trainer.restore(record[0]["trainer"], record[1])
        trace = record[0]["trace"]
    keep = _keeper(plan, store, names, grid)
    rounds = yield from train(names, rows.dims, epoch, start, trainer, trace, keep)
    inference, facts = None, {"test": "none", "warnings": []}
    if plan.options.config.test != "none":
        source = yield from collect_states(names, epoch, hellos, grid, plan.options)
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
    yield ask_all(names, "finish", {"epoch": epoch, "edges": _edges_text(inference)})
    return found


def _test(
    source: StateSource, options: FederationOptions
) -> tuple[EdgeInference | None, dict[str, Any]]:
    try:
        found = infer(source, options.config)
    except InferenceError as error:
        sentence = f"the edges could not be tested: {error}"
        return None, {"test": options.config.test, "reason": str(error), "warnings": [sentence]}
    return found, found.facts


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
