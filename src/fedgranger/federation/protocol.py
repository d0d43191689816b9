"""The server's side of a run as a generator: ask, agree, train, collect, test.

A generator that yields what to ask of every client and is resumed with all their answers. It
knows no engine, no clock and no lost message: `coordinator` takes care of those. Whenever all
clients have confirmed a round, the server's part of it is on its own disk; after a crash the
protocol begins again from there, with a higher epoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgranger._version import __version__
from fedgranger.data.time_axis import TimeGrid, TimeRange, agree
from fedgranger.errors import ConfigError, DataError, InferenceError
from fedgranger.federation.codec import Packet
from fedgranger.federation.exchanges import (
    Answers,
    Request,
    collect_states,
    request_all,
    request_each,
    request_models,
    train,
)
from fedgranger.federation.options import FederationOptions, check_run_name
from fedgranger.federation.store import Store
from fedgranger.federation.validation import read_fraction, read_stretches
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.infer import infer
from fedgranger.inference.states import StateSource
from fedgranger.server.trainer import Rows, Trainer, make_trainer

__all__ = ["Plan", "RunStopped", "ServerProtocol", "ServerResult", "server_protocol"]

RECORD = "server"
DATA_RECORD = "data"
"""Whose data a run began with; apart from the rounds, which a run may not have."""


@dataclass(frozen=True)
class Plan:
    """A run: its name, its clients, its options, and a word no earlier start has used."""

    run: str
    clients: tuple[str, ...]
    options: FederationOptions
    nonce: str

    def __post_init__(self) -> None:
        """Check the name, which becomes a folder."""
        check_run_name(self.run)


class ServerResult(NamedTuple):
    """What a run found, as the server knows it.

    Attributes:
        clients: sorted names.
        dims: states per client.
        granger: FedGC's Â with A_mm on the diagonal; None when FedGC was not run.
        inference: tested edges, or None.
        facts: of the tests.
        trace: losses per round.
        rounds: rounds of training.
        distance: how far from the limit at the end.
        grid: the common time axis.
        data_hashes: what each client says its data are, a hash that only it can make.
        notes: what whoever reads the result should know of the data and the parties.
        periods: whole steps of what each client took out of its data.
    """

    clients: tuple[str, ...]
    dims: tuple[int, ...]
    granger: np.ndarray | None
    inference: EdgeInference | None
    facts: dict[str, Any]
    trace: pd.DataFrame
    rounds: int
    distance: float
    grid: TimeGrid
    data_hashes: dict[str, str]
    notes: list[str]
    periods: dict[str, list[int]]


class RunStopped(Exception):  # noqa: N818  not an error: a run that ends by a rule
    """The run cannot go on; the sentence says why and what to do."""


ServerProtocol = Generator[Request, Answers, ServerResult]


def server_protocol(
    plan: Plan, store: Store, clock: Callable[[], float], log: Callable[[str], None]
) -> ServerProtocol:
    """Run the protocol from wherever the disks say it stands."""
    names = tuple(sorted(plan.clients))
    told = {name: plan.options.for_client(name).to_text() for name in names}
    ranges = yield request_each(
        "offer", {n: {"nonce": plan.nonce, "options": told[n]} for n in names}
    )
    _check_clocks(ranges, plan.options, clock())
    grid = agree({name: _time_range(packet) for name, packet in ranges.items()})
    hashes = {name: str(ranges[name].values["data"]) for name in names}
    notes = [*_data_notes(store, hashes, log), *_version_notes(ranges)]
    key = [plan.run, plan.options.to_text(), hashes, [str(part) for part in grid]]
    record = _own_record(store, key)
    start = _common_round(ranges, record)
    epoch = 1 + max(int(packet.values["epoch"]) for packet in ranges.values())
    log(f"{grid.num_steps} common time steps; " + ("starting" if start == 0 else f"round {start}"))
    agreed = {
        "epoch": epoch,
        "round": start,
        "time_kind": grid.time_kind,
        "first": str(grid.first),
        "interval": str(grid.interval),
    }
    stretches = {"stretches": np.array(grid.stretches, dtype=np.int64)}
    begin = request_all(names, "begin", agreed)
    hellos = yield begin._replace(arrays=dict.fromkeys(names, stretches))
    dims = tuple(len(hellos[name].arrays["error_cov"]) for name in names)
    yield request_all(names, "join", {"epoch": epoch, "total_dim": sum(dims)})
    granger, trace, rounds, distance = None, [], 0, np.inf
    if plan.options.config.solver != "none":
        models = yield from request_models(names, dims, epoch)
        rows = _rows(names, models, grid)
        window = _window(plan.options, rows.num_pairs)
        trainer = make_trainer(rows, plan.options.config, window, plan.options.message_steps)
        if start and record is not None:
            trainer.restore(record[0]["trainer"], record[1])
            trace = record[0]["trace"]
        keep = _keeper(store, key)
        rounds = yield from train(names, dims, epoch, start, trainer, trace, keep)
        granger, distance = _with_diagonal(trainer.granger, rows), trainer.distance
    inference, facts = None, {"test": "none", "warnings": []}
    if plan.options.config.test != "none":
        source = yield from collect_states(names, epoch, hellos, grid, plan.options)
        inference, facts = _test(source, plan.options)
    yield request_all(names, "finish", {"epoch": epoch, "edges": _edges_text(inference)})
    table = _trace_table(names, trace)
    periods = {name: hellos[name].arrays["periods"].tolist() for name in names}
    return ServerResult(
        names,
        dims,
        granger,
        inference,
        facts,
        table,
        rounds,
        distance,
        grid,
        hashes,
        notes,
        periods,
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


def _check_clocks(ranges: Answers, options: FederationOptions, now: float) -> None:
    for name, packet in ranges.items():
        offset = float(packet.values["clock"]) - now
        is_stamped = packet.values["time_kind"] == "stamps"
        if is_stamped and options.clock_seconds and abs(offset) > options.clock_seconds:
            raise DataError(
                f"client '{name}': its clock is {offset:+.0f} s from the server's, more than "
                f"clock_seconds = {options.clock_seconds:g}; synchronise the clocks, or raise it "
                "if the time stamps come from elsewhere"
            )


def _version_notes(ranges: Answers) -> list[str]:
    """Versions may differ as long as the protocol is understood; say so."""
    return [
        f"client '{name}' runs fedgranger {packet.values['version']}, the server {__version__}"
        for name, packet in sorted(ranges.items())
        if packet.values["version"] != __version__
    ]


def _data_notes(store: Store, hashes: dict[str, str], log: Callable[[str], None]) -> list[str]:
    """Remember whose data this run began with; other data make it a new run, which is said."""
    record = store.load(DATA_RECORD)
    known: dict[str, str] = {} if record is None else record[0]["data"]
    notes: list[str] = [] if record is None else list(record[0]["notes"])
    changed = [name for name in sorted(hashes) if known.get(name, hashes[name]) != hashes[name]]
    for name in changed:
        notes.append(f"client '{name}' has other data than when this run began; this is a new run")
        log(notes[-1])
    if changed or not set(hashes) <= set(known):
        store.save(DATA_RECORD, {"data": {**known, **hashes}, "notes": notes}, {})
    return notes


def _time_range(packet: Packet) -> TimeRange:
    values = packet.values
    first, last, interval = (read_fraction(values[key]) for key in ("first", "last", "interval"))
    stretches = read_stretches(packet.arrays["stretches"])
    return TimeRange(str(values["time_kind"]), first, last, interval, stretches)


def _rows(names: tuple[str, ...], models: Answers, grid: TimeGrid) -> Rows:
    return Rows(
        names,
        tuple(np.asarray(models[name].arrays["self_transition"]) for name in names),
        np.array([float(models[name].arrays["state_gain"]) for name in names]),
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
    store: Store, key: list[Any]
) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """The server's last round, if it was made with the same clients, data, options and time."""
    record = store.load(RECORD)
    return None if record is None or record[0]["key"] != key else record


def _common_round(
    ranges: Answers, record: tuple[dict[str, Any], dict[str, np.ndarray]] | None
) -> int:
    """The server's round when every client still has it, or 0."""
    if record is None:
        return 0
    own = int(record[0]["round"])
    has_all = all(own in json.loads(str(packet.values["rounds"])) for packet in ranges.values())
    return own if has_all else 0


def _keeper(store: Store, key: list[Any]) -> Callable[[int, Trainer, list], None]:
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
    rows = [
        [None if value != value else value for value in row]  # NaN: not tested
        for row in zip(*columns, strict=True)
    ]
    return json.dumps(rows, allow_nan=False)
