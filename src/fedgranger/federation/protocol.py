"""The server's side of a run as a generator: ask, agree, train, collect, test.

A generator that yields what to ask of every client and is resumed with all their answers. It
knows no engine, no clock and no lost message: `coordinator` takes care of those. Whenever all
clients have confirmed a round, the server's part of it is on its own disk; after a crash the
protocol begins again from there, with a higher epoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedgranger._version import __version__
from fedgranger.config import RunConfig
from fedgranger.data.client_data import step_lengths
from fedgranger.data.time_axis import TimeGrid, grid_time
from fedgranger.errors import InferenceError
from fedgranger.federation.agreed_options import Plan
from fedgranger.federation.exchanges import (
    Answers,
    Participants,
    Request,
    collect_states,
    request_on_grid,
)
from fedgranger.federation.privacy_facts import clipping_warnings, privacy_facts
from fedgranger.federation.store import Store
from fedgranger.federation.time_fields import agreed_start
from fedgranger.federation.training_rounds import NO_TRAINING, RoundRecord, Training, train
from fedgranger.federation.translation import translate
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.infer import infer
from fedgranger.inference.noise_correction import declared_noise_warnings, noiseless_warnings
from fedgranger.inference.reference import Reference, learn_normal
from fedgranger.inference.states import StateSource
from fedgranger.manifest_types import NormalFacts, PrivacyFacts
from fedgranger.messages import LARGEST_NUMBER
from fedgranger.server.trainer import Memory, Trainer
from fedgranger.tested_facts import InferenceFacts

DATA_RECORD = "data"
"""Whose data a run began with; apart from the rounds, which a run may not have."""


class ServerResult(NamedTuple):
    """What a run found, as the server knows it.

    Attributes:
        clients: sorted names.
        dims: states per client.
        training: how FedGC's rounds ended; `NO_TRAINING` when there were none.
        source: the states; None where no client was asked for them.
        inference: tested edges, or None.
        facts: of the tests.
        grid: the common time axis.
        data_hashes: what each client says its data are, a hash that only it can make.
        notes: what whoever reads the result should know of the data and the parties.
        periods: whole steps of what each client took out of its data.
        reference: what the server expects of the states in normal operation; None without states.
        normal: facts about it, or the reason why there is none.
        privacy: what the noise of the run costs; None: it had none.
    """

    clients: tuple[str, ...]
    dims: tuple[int, ...]
    training: Training
    source: StateSource | None
    inference: EdgeInference | None
    facts: InferenceFacts
    grid: TimeGrid
    data_hashes: dict[str, str]
    notes: list[str]
    periods: dict[str, list[int]]
    reference: Reference | None
    normal: NormalFacts
    privacy: PrivacyFacts | None


Tested = tuple[EdgeInference | None, InferenceFacts]
"""Tested edges, if they could be tested, and facts of the tests."""


class EngineHooks(NamedTuple):
    """What an engine may do in its own way.

    Attributes:
        train: all rounds at once, where all clients are in one process; None: round by round.
        test: the edge tests of the collected states; None: `run_tests`.
        on_round: called with (round, trainer, its memory) before every round's messages are used.
    """

    train: Callable[[], Training] | None = None
    test: Callable[[StateSource, Training], Tested] | None = None
    on_round: Callable[[int, Trainer, Memory], None] = lambda *_: None


class RunStopped(Exception):  # noqa: N818  not an error: a run that ends by a rule
    """The run cannot go on; the sentence says why and what to do."""


ServerProtocol = Generator[Request, Answers, ServerResult]


def server_protocol(
    plan: Plan,
    store: Store,
    clock: Callable[[], float],
    log: Callable[[str], None],
    hooks: EngineHooks = EngineHooks(),  # noqa: B008  a constant
) -> ServerProtocol:
    """Run the protocol from wherever the disks say it stands."""
    names, config = tuple(sorted(plan.clients)), plan.options.config
    asked = {name: plan.options.for_client(name).to_text() for name in names}
    ranges = yield Request(
        "offer", {name: {"nonce": plan.nonce, "options": asked[name]} for name in names}
    )
    grid, epoch, unused = agreed_start(ranges, plan.options, clock())
    config.check_steps(grid.num_steps)
    hashes = {name: str(ranges[name].values["data"]) for name in names}
    notes = [*_data_notes(store, hashes, log), *_version_notes(ranges), *unused]
    key = [plan.run, plan.options.to_text(), hashes, [str(part) for part in grid]]
    record = RoundRecord(store, key, hooks.on_round)
    resumed = record.load(ranges)
    start = 0 if resumed is None else int(resumed[0]["round"])
    log(f"{grid.num_steps} common time steps; " + ("starting" if start == 0 else f"round {start}"))
    hellos = yield request_on_grid(names, "begin", grid, {"epoch": epoch, "round": start})
    dims = {name: len(hellos[name].arrays["error_cov"]) for name in names}
    participants = Participants(dims, epoch)
    yield participants.request("join", {"total_dim": sum(dims.values())})
    training = NO_TRAINING
    if config.solver != "none" and hooks.train is not None:
        training = hooks.train()
    elif config.solver != "none":
        starts = grid.segment_starts
        training = yield from train(participants, starts, plan.options, record, resumed)
    source, inference, facts = None, None, InferenceFacts(test="none", warnings=[])
    is_local = plan.options.is_local
    if config.test != "none" or (is_local and config.privacy == "none"):  # what is normal is known
        source = yield from collect_states(participants, hellos, grid, plan.options.message_steps)
        if config.test != "none":
            test = hooks.test or (lambda found, _: run_tests(config, found))
            inference, facts = test(source, training)
    rounds = 0 if training.granger is None else training.rounds + 1
    if training.note or training.failure:  # some clients may have sent more than was used
        rounds = config.private_rounds
    privacy = privacy_facts(config, hellos, grid.num_steps, rounds)
    facts.warnings += clipping_warnings(privacy)
    reference, normal = _normal(source, inference, grid)
    shown = None if config.privacy == "to-clients" else inference
    if inference is not None and (shown is not None or is_local):
        largest = np.inf if is_local else LARGEST_NUMBER
        sensors = yield from translate(participants, inference, largest=largest)
        if sensors:
            facts.sensor_responses = sensors
    yield participants.request("finish", {"edges": _edges_text(shown)})
    periods = {name: hellos[name].arrays["periods"].tolist() for name in names}
    return ServerResult(
        names,
        tuple(dims.values()),
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
        privacy,
    )


def not_tested(config: RunConfig, reason: str) -> tuple[None, InferenceFacts]:
    """What a result says where the edges could not be tested."""
    sentence = f"the edges could not be tested: {reason}"
    return None, InferenceFacts(test=config.test, reason=reason, warnings=[sentence])


def run_tests(
    config: RunConfig,
    source: StateSource,
    report: Callable[[str, int, int], None] = lambda *_: None,
    record: Path | None = None,
) -> Tested:
    """Test the edges, or say why not; `infer` explains the arguments."""
    doubts = declared_noise_warnings(source) if config.noise_correction else []
    try:
        found = infer(source, config, report, record)
    except InferenceError as error:
        _, facts = not_tested(config, str(error))
        facts.warnings += doubts
        return None, facts
    if found.facts.test == "debiased":
        doubts += noiseless_warnings(source)
    found.facts.warnings += doubts
    return found, found.facts


def _normal(
    source: StateSource | None, inference: EdgeInference | None, grid: TimeGrid
) -> tuple[Reference | None, NormalFacts]:
    """What the server expects in normal operation, learned from the states that it has."""
    if source is None:
        reason = "without tests no client sends the states that it is learned from"
        return None, NormalFacts(reason=reason)
    reference, facts = learn_normal(source, inference)
    facts.interval = float(np.median(step_lengths(grid_time(grid))))
    return reference, facts


def _version_notes(ranges: Answers) -> list[str]:
    """Versions may differ as long as the protocol is understood; say so."""
    return [
        f"client '{name}' runs fedgranger {packet.values['version']}, the server {__version__}"
        for name, packet in sorted(ranges.items())
        if packet.values["version"] != __version__
    ]


def _data_notes(store: Store, hashes: dict[str, str], log: Callable[[str], None]) -> list[str]:
    """Remember whose data this run began with; other data make it a new run, which is doubts."""
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


def _edges_text(inference: EdgeInference | None) -> str:
    if inference is None:
        return "[]"
    pairs = inference.edges[["cause", "effect", "p_value", "strength", "is_edge"]].astype(object)
    return json.dumps(pairs.where(pairs.notna(), None).to_numpy().tolist(), allow_nan=False)
