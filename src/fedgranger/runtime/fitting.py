"""A run in one process: from a panel to a `Result`, through the protocol of every run.

The parties are `federation.direct.LocalClient`s, the server is `federation.protocol`. Beside what a
server would find, a run in one process has what only the clients know (θ, sensors, local models,
what is normal) and can propagate uncertainty, which needs all data in one place.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from fedgranger.client.own_normal import learn_own_normal
from fedgranger.client.params import LocalModel
from fedgranger.config import RunConfig
from fedgranger.data.align import regular_panel
from fedgranger.data.client_data import step_lengths
from fedgranger.data.finishing import with_findings
from fedgranger.data.panel import Panel
from fedgranger.errors import ConvergenceWarning, DataError, FedGrangerError, InferenceWarning
from fedgranger.federation.agreed_options import FederationOptions, Plan
from fedgranger.federation.client_facts import add_client_facts
from fedgranger.federation.direct import LocalClient, run_direct
from fedgranger.federation.ledger import run_bytes
from fedgranger.federation.preparation import prepare_local
from fedgranger.federation.protocol import EngineHooks, ServerResult, Tested, server_protocol
from fedgranger.federation.run_record import run_record
from fedgranger.federation.store import NoRecords
from fedgranger.federation.training_rounds import Training
from fedgranger.inference.reference import Reference
from fedgranger.inference.states import StateSource
from fedgranger.manifest_types import NormalFacts
from fedgranger.normal_operation import Monitor
from fedgranger.results import Result
from fedgranger.run_folder import CHECKPOINT
from fedgranger.runtime import checkpoint
from fedgranger.runtime.checkpoint import Checkpoints
from fedgranger.runtime.edge_tests import run_local_tests
from fedgranger.runtime.progress import Follower, Report, follow
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.round_checkpoint import RoundCheckpoint
from fedgranger.runtime.setup import Setup, assemble, check_names
from fedgranger.runtime.stepwise import train_stepwise
from fedgranger.server.trainer import Memory, Trainer

COPIES_FILE = "copies.jsonl"
"""In a run folder: what copies with shifted clocks gave, until the run is whole."""


def fit_panel(
    panel: Panel,
    config: RunConfig,
    *,
    models: Mapping[str, LocalModel] | None = None,
    checkpoint_folder: Path | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
    report: Report = lambda *_: None,
) -> Result:
    """Run in one process and collect the result.

    Args:
        panel: the data.
        config: the options.
        models: local models that are known; the others are identified.
        checkpoint_folder: where to leave a checkpoint now and then and when interrupted.
        checkpoint_seconds: how often.
        resume: continue from the checkpoint in that folder.
        report: called with (what, done, total).
    """
    panel, models = with_findings(panel), dict(models or {})
    with (
        follow(checkpoint_folder, config, report) as follower,
        jax.enable_x64(True),
        threadpool_limits(1),  # on several threads small products wait for each other
    ):
        data_hash = panel.data_hash()
        checkpoints = Checkpoints(
            checkpoint_folder,
            checkpoint.fingerprint(data_hash, config, models),
            checkpoint_seconds,
            is_resumed=resume,
        )
        try:
            result = _LocalRun(panel, config, models, checkpoints, follower).result(data_hash)
        except FedGrangerError:  # the same command would be refused again
            checkpoints.forget(CHECKPOINT, COPIES_FILE)
            raise
    training = result.manifest.training
    if training.converged is False and (training.failed or config.tolerance > 0):
        warnings.warn(training.status, ConvergenceWarning, stacklevel=2)
    for sentence in result.manifest.inference.warnings:
        warnings.warn(sentence, InferenceWarning, stacklevel=2)
    return result


class _LocalRun:
    """One run: its clients, what its engine does in its own way, and its result."""

    def __init__(
        self,
        panel: Panel,
        config: RunConfig,
        models: Mapping[str, LocalModel],
        checkpoints: Checkpoints,
        follower: Follower,
    ) -> None:
        self._config, self._checkpoints, self._follower = config, checkpoints, follower
        self._marks = [time.perf_counter()]
        regular = regular_panel(panel)
        self._panel = regular.panel
        check_names(self._panel, config, models)
        self._window = config.round_steps(self._panel.num_steps - 1)
        self._clients = {
            name: LocalClient(
                name,
                regular.axis,
                functools.partial(prepare_local, regular, name, config, models.get(name)),
            )
            for name in sorted(self._panel.names)
        }
        self._augmentations: dict[str, np.ndarray] = {}

    @functools.cached_property
    def _setup(self) -> Setup:
        clients = [client.prepared.for_rounds for client in self._clients.values()]
        prepared = tuple(client for client in clients if client)
        return assemble(prepared, self._config, self._window, self._panel.time)

    @functools.cached_property
    def _seasonless(self) -> Panel:
        """The data that identification, training and tests use."""
        clients = tuple(self._clients[name].prepared.data for name in self._panel.names)
        return replace(self._panel, clients=clients)

    def result(self, data_hash: str) -> Result:
        """Run the protocol to its end, then add what a server would not know."""
        config, report = self._config, self._follower.count
        for done, client in enumerate(self._clients.values()):
            report("local models", done, len(self._clients))
            _ = client.prepared
        report("local models", len(self._clients), len(self._clients))
        self._marks.append(time.perf_counter())
        if self._checkpoints.resumed is None and self._checkpoints.rounds is None:
            self._checkpoints.save(None)  # copies of an interrupted test are worth resuming, too
        if config.solver != "none":
            self._follower.begin("starting training")
        found = self._run_protocol()
        if config.test == "none":
            self._marks.append(time.perf_counter())
        self._marks.append(time.perf_counter())
        monitors, reference, normal = self._normal(found)
        self._marks.append(time.perf_counter())
        uncertainty = None
        if config.uncertainty != "none":
            observe, level = self._follower.add_variance, config.uncertainty
            uncertainty = propagate(
                self._setup, config, level=level, report=report, observe=observe
            )
        self._marks.append(time.perf_counter())
        self._checkpoints.forget(COPIES_FILE)  # all of them are in the result
        names = ("local_models", "training", "edge_tests", "normal", "uncertainty")
        seconds = zip(names, np.diff(self._marks).tolist(), strict=True)
        timings = {f"seconds_{name}": round(took, 3) for name, took in seconds}
        steps = self._panel.num_steps, found.training.rounds, self._setup.num_rounds
        sent = {
            name: run_bytes(config, dim, len(found.periods[name]), *steps)
            for name, dim in zip(found.clients, found.dims, strict=True)
        }
        record = run_record("inprocess", config, found, sent, timings)
        record.normal = normal
        sides = {name: client.prepared for name, client in self._clients.items()}
        add_client_facts(record, self._panel, found.grid, sides, config, data_hash)
        return Result(
            found.clients,
            found.dims,
            found.training.granger,
            self._augmentations,
            found.inference,
            found.training.trace,
            record,
            config,
            uncertainty,
            monitors=monitors,
            reference=reference,
            seasons={name: side.season for name, side in sides.items()},
            jacobian=found.training.jacobian,
        )

    def _run_protocol(self) -> ServerResult:
        config = self._config
        options = FederationOptions(config, message_steps=self._panel.num_steps, is_local=True)
        plan = Plan("local", self._panel.names, options, "")
        train = self._train if config.training_solver == "sgd" else None
        own = EngineHooks(train, self._test, self._on_round)
        store = NoRecords()
        if config.privacy == "none":  # noise that is drawn anew must not be added to the same round
            store = RoundCheckpoint(self._checkpoints, self._clients)
        protocol = server_protocol(plan, store, lambda: 0.0, lambda _: None, own)
        try:
            found = run_direct(protocol, self._clients)
        except KeyboardInterrupt:
            if isinstance(store, RoundCheckpoint):
                store.write()
            raise
        if train is None and found.training.granger is not None:
            thetas = {name: client.augmentation for name, client in self._clients.items()}
            self._augmentations = {n: theta for n, theta in thetas.items() if theta is not None}
        return found

    def _train(self) -> Training:
        training, self._augmentations = train_stepwise(
            self._setup, self._config, self._checkpoints, self._follower
        )
        return training

    def _on_round(self, round_index: int, trainer: Trainer, memory: Memory) -> None:
        self._follower.count("training", round_index, trainer.most_rounds)
        self._follower.note_round(
            round_index, trainer.rounds_per_pass, memory.losses, float(memory.distance)
        )

    def _test(self, source: StateSource, training: Training) -> Tested:
        self._marks.append(time.perf_counter())
        self._follower.begin("edge tests")
        if not self._checkpoints.is_resumed:
            self._checkpoints.forget(COPIES_FILE)
        report, record = self._follower.count, self._checkpoints.file(COPIES_FILE)
        return run_local_tests(
            self._seasonless, self._setup, self._config, source, training, report, record
        )

    def _normal(
        self, found: ServerResult
    ) -> tuple[dict[str, Monitor], Reference | None, NormalFacts]:
        """What is normal: every client's own, and the server's, which needs states."""
        reference, facts = found.reference, found.normal
        if reference is None:
            return {}, None, facts
        try:
            monitors = {
                name: learn_own_normal(client.prepared).monitor
                for name, client in self._clients.items()
            }
        except DataError as error:
            return {}, None, NormalFacts(reason=str(error))
        facts.interval = float(np.median(step_lengths(self._panel.time)))
        facts.monitors = "run folder"
        return monitors, reference, facts
