"""The server's side of a run as a generator: ask, agree, train, collect, test.

A generator that yields what to ask of every client and is resumed with all their answers. It
knows no engine, no clock and no lost message: `coordinator` takes care of those. Whenever all
clients have confirmed a round, the server's part of it is on its own disk; after a crash the
protocol begins again from there, with a higher epoch.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgranger._version import __version__
from fedgranger.config import RunConfig
from fedgranger.data.panel import step_lengths
from fedgranger.data.time_axis import TimeGrid, agree, grid_time
from fedgranger.errors import ConfigError, InferenceError, UnstableRecursionError
from fedgranger.federation.agreed_options import FederationOptions, check_run_name
from fedgranger.federation.exchanges import (
    Answers,
    Request,
    collect_states,
    request_all,
    request_each,
    request_models,
    train,
)
from fedgranger.federation.store import Records
from fedgranger.federation.time_answers import check_clocks, read_time_range, request_on_grid
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.infer import infer
from fedgranger.inference.reference import Reference, learn_normal
from fedgranger.inference.states import StateSource
from fedgranger.server.trainer import Rows, Trainer, make_trainer

RECORD = "server"
TRACE_COLUMNS = ["pass_index", "round", "client", "local_loss", "server_loss"]
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
        training: how FedGC's rounds ended; `NO_TRAINING` when there were none.
        source: the states that were tested; None without a test.
        inference: tested edges, or None.
        facts: of the tests.
        grid: the common time axis.
        data_hashes: what each client says its data are, a hash that only it can make.
        notes: what whoever reads the result should know of the data and the parties.
        periods: whole steps of what each client took out of its data.
        reference: what the server expects of the states in normal operation; None without states.
        normal: facts about it, or the reason why there is none.
    """

    clients: tuple[str, ...]
    dims: tuple[int, ...]
    training: Training
    source: StateSource | None
    inference: EdgeInference | None
    facts: dict[str, Any]
    grid: TimeGrid
    data_hashes: dict[str, str]
    notes: list[str]
    periods: dict[str, list[int]]
    reference: Reference | None = None
    normal: dict[str, Any] = {}  # noqa: RUF012  never changed


class Training(NamedTuple):
    """How FedGC's rounds ended, as the server knows it.

    Attributes:
        granger: Â with A_mm on the diagonal; None where training failed.
        trace: losses, `TRACE_COLUMNS`.
        rounds: rounds of training.
        distance: how far from the limit at the end.
        failure: why it failed; empty: it did not.
    """

    granger: np.ndarray | None
    trace: pd.DataFrame
    rounds: int
    distance: float
    failure: str = ""


NO_TRAINING = Training(None, pd.DataFrame(columns=TRACE_COLUMNS), 0, np.inf)
EdgeTest = Callable[[StateSource, Training], tuple[EdgeInference | None, dict[str, Any]]]


class EngineHooks(NamedTuple):
    """What an engine may do in its own way.

    Attributes:
        train: all rounds at once, where all clients are in one process; None: round by round.
        test: the edge tests of the collected states; None: `infer`.
        on_round: called with (round, trainer) before every round's messages are used.
    """

    train: Callable[[], Training] | None = None
    test: EdgeTest | None = None
    on_round: Callable[[int, Trainer], None] = lambda *_: None


class RunStopped(Exception):  # noqa: N818  not an error: a run that ends by a rule
    """The run cannot go on; the sentence says why and what to do."""


ServerProtocol = Generator[Request, Answers, ServerResult]


def server_protocol(
    plan: Plan,
    store: Records,
    clock: Callable[[], float],
    log: Callable[[str], None],
    hooks: EngineHooks = EngineHooks(),  # noqa: B008  a constant
) -> ServerProtocol:
    """Run the protocol from wherever the disks say it stands."""
    names = tuple(sorted(plan.clients))
    client_options = {name: plan.options.for_client(name).to_text() for name in names}
    ranges = yield request_each(
        "offer", {n: {"nonce": plan.nonce, "options": client_options[n]} for n in names}
    )
    check_clocks(ranges, plan.options, clock())
    grid = agree({name: read_time_range(packet) for name, packet in ranges.items()})
    hashes = {name: str(ranges[name].values["data"]) for name in names}
    notes = [*_data_notes(store, hashes, log), *_version_notes(ranges)]
    key = [plan.run, plan.options.to_text(), hashes, [str(part) for part in grid]]
    record = _own_record(store, key)
    start = _common_round(ranges, record)
    epoch = 1 + max(int(packet.values["epoch"]) for packet in ranges.values())
    log(f"{grid.num_steps} common time steps; " + ("starting" if start == 0 else f"round {start}"))
    hellos = yield request_on_grid(names, "begin", grid, {"epoch": epoch, "round": start})
    dims = tuple(len(hellos[name].arrays["error_cov"]) for name in names)
    yield request_all(names, "join", {"epoch": epoch, "total_dim": sum(dims)})
    training = NO_TRAINING
    if plan.options.config.solver != "none" and hooks.train is not None:
        training = hooks.train()
    elif plan.options.config.solver != "none":
        models = yield from request_models(names, dims, epoch)
        rows = _rows(names, models, grid)
        keep = _keeper(store, key, hooks.on_round)
        resumed = record if start else None
        training = yield from _train(plan.options, rows, epoch, start, resumed, keep)
    source, inference, facts = None, None, {"test": "none", "warnings": []}
    if plan.options.config.test != "none":
        source = yield from collect_states(names, epoch, hellos, grid, plan.options)
        test = hooks.test or functools.partial(_test, plan.options.config)
        inference, facts = test(source, training)
    reference, normal = _normal(source, inference, grid)
    yield request_all(names, "finish", {"epoch": epoch, "edges": _edges_text(inference)})
    periods = {name: hellos[name].arrays["periods"].tolist() for name in names}
    return ServerResult(
        names,
        dims,
        training,
        source,
        inference,
        facts,
        grid,
        hashes,
        notes,
        periods,
        reference,
        normal,
    )


def _train(
    options: FederationOptions,
    rows: Rows,
    epoch: int,
    start: int,
    record: tuple[dict[str, Any], dict[str, np.ndarray]] | None,
    keep: Callable[[int, Trainer, list], None],
) -> Generator[Request, Answers, Training]:
    """FedGC's rounds, round by round; training that runs away is no reason not to test."""
    config = options.config
    window = _window(options, rows.num_pairs)
    trainer = make_trainer(rows, config, window, options.message_steps)
    trace: list[list[float]] = []
    if record is not None:
        trainer.restore(record[0]["trainer"], record[1])
        trace = record[0]["trace"]
    per_pass = 1 if config.training_solver == "newton" else -(-rows.num_pairs // window)
    try:
        rounds = yield from train(rows.names, rows.dims, epoch, start, trainer, trace, keep)
    except UnstableRecursionError as error:
        return NO_TRAINING._replace(failure=str(error))
    granger = _with_diagonal(trainer.granger, rows)
    return Training(granger, _trace_table(rows.names, trace, per_pass), rounds, trainer.distance)


def not_tested(config: RunConfig, reason: str) -> tuple[None, dict[str, Any]]:
    """What a result says where the edges could not be tested."""
    sentence = f"the edges could not be tested: {reason}"
    return None, {"test": config.test, "reason": reason, "warnings": [sentence]}


def _test(
    config: RunConfig, source: StateSource, training: Training
) -> tuple[EdgeInference | None, dict[str, Any]]:
    del training
    try:
        found = infer(source, config)
    except InferenceError as error:
        return not_tested(config, str(error))
    return found, found.facts


def _normal(
    source: StateSource | None, inference: EdgeInference | None, grid: TimeGrid
) -> tuple[Reference | None, dict[str, Any]]:
    """What the server expects in normal operation, learned from the states that it has."""
    if source is None:
        return None, {"reason": "without tests no client sends the states that it is learned from"}
    reference, facts = learn_normal(source, inference)
    return reference, facts | {"interval": float(np.median(step_lengths(grid_time(grid))))}


def _version_notes(ranges: Answers) -> list[str]:
    """Versions may differ as long as the protocol is understood; say so."""
    return [
        f"client '{name}' runs fedgranger {packet.values['version']}, the server {__version__}"
        for name, packet in sorted(ranges.items())
        if packet.values["version"] != __version__
    ]


def _data_notes(store: Records, hashes: dict[str, str], log: Callable[[str], None]) -> list[str]:
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
    store: Records, key: list[Any]
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


def _keeper(
    store: Records, key: list[Any], on_round: Callable[[int, Trainer], None]
) -> Callable[[int, Trainer, list], None]:
    def keep(round_index: int, trainer: Trainer, trace: list) -> None:
        on_round(round_index, trainer)
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


def _trace_table(names: tuple[str, ...], trace: list[list[float]], per_pass: int) -> pd.DataFrame:
    rows = [
        (int(losses[0]) // per_pass, int(losses[0]), name, np.nan, loss)
        for losses in trace
        for name, loss in zip(names, losses[1:], strict=True)
    ]
    return pd.DataFrame(rows, columns=TRACE_COLUMNS)


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
