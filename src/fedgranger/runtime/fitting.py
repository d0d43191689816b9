"""Run a fit from a panel to a `Result`, with checkpoints and progress reports."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from fedgranger._version import __version__
from fedgranger.client.params import LocalModel
from fedgranger.config import RunConfig
from fedgranger.data.align import regular_panel
from fedgranger.data.finishing import with_findings
from fedgranger.data.panel import Panel
from fedgranger.data.sensor_preparation import propose
from fedgranger.errors import (
    ConvergenceWarning,
    InferenceError,
    InferenceWarning,
    UnstableRecursionError,
)
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.infer import infer
from fedgranger.inference.states import StateSource
from fedgranger.linalg.blocks import pack_square
from fedgranger.results import Result
from fedgranger.runtime import checkpoint
from fedgranger.runtime.asymptotic import infer_asymptotic
from fedgranger.runtime.declared_noise import declared_noise_warnings
from fedgranger.runtime.inprocess import Snapshot, TraceRow, chunk_rounds, train
from fedgranger.runtime.manifest import describe
from fedgranger.runtime.newton import solve
from fedgranger.runtime.normal import learn_normal
from fedgranger.runtime.progress import Follower, follow
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.seasons import take_out_seasons
from fedgranger.runtime.sensor_units import add_sensor_units
from fedgranger.runtime.setup import Setup, set_up
from fedgranger.runtime.uploads import state_order, state_source
from fedgranger.uncertainty.record import Propagation

__all__ = ["fit_panel"]

COPIES_FILE = "copies.jsonl"
"""In a run folder: what copies with shifted clocks gave, until the run is whole."""
LARGEST_GROWTH = 1e3
"""A loss that is so many times its first value never comes back."""


def fit_panel(
    panel: Panel,
    config: RunConfig,
    *,
    models: Mapping[str, LocalModel] | None = None,
    checkpoint_folder: Path | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
    report: Callable[[str, int, int], None] = lambda *_: None,
) -> Result:
    """Train in process and collect the result.

    Args:
        panel: the data.
        config: the options.
        models: local models that are known; the others are identified.
        checkpoint_folder: where to leave a checkpoint now and then and when interrupted.
        checkpoint_seconds: how often.
        resume: continue from the checkpoint in that folder.
        report: called with (what, done, total).
    """
    started = time.perf_counter()
    panel = with_findings(panel)
    with (
        follow(checkpoint_folder, config) as follower,
        jax.enable_x64(True),
        threadpool_limits(1),  # on several threads small products wait for each other
    ):
        report = follower.reporting(report)
        data_hash = panel.data_hash()
        fingerprint = _fingerprint(data_hash, config, models)
        resumed, trace = None, []
        if resume and checkpoint_folder is not None:
            resumed, trace = checkpoint.load(checkpoint_folder, fingerprint)
        panel, interval = regular_panel(panel)
        seasonless = take_out_seasons(panel, config, interval)
        panel = seasonless.panel
        setup = set_up(panel, config, models, report)
        prepared = time.perf_counter()

        def save(snapshot: Snapshot) -> None:
            if checkpoint_folder is not None:
                checkpoint.save(checkpoint_folder, snapshot, trace, fingerprint)

        final, failure = None, ""
        if config.solver != "none":
            follower.begin("starting training")
            try:
                final = _run(
                    setup, config, resumed, trace, save, checkpoint_seconds, report, follower
                )
                save(final)
            except UnstableRecursionError as error:  # the tests do not need it
                failure = str(error)
        trained = time.perf_counter()
        follower.begin("edge tests")
        record = None if checkpoint_folder is None else checkpoint_folder / COPIES_FILE
        if record is not None and not resume:
            record.unlink(missing_ok=True)
        local_models = {stream.name: stream.model for stream in setup.streams}
        periods = {name: season.periods for name, season in seasonless.seasons.items()}
        source = state_source(panel, local_models, periods)
        inference, facts = _infer(panel, source, setup, config, final, failure, report, record)
        tested = time.perf_counter()
        monitors, reference, normal = learn_normal(panel, setup, source, inference)
        learned = time.perf_counter()
        uncertainty = None
        if config.uncertainty != "none":
            uncertainty = propagate(
                setup, config, level=config.uncertainty, report=report, observe=follower.spread
            )
        propagated = time.perf_counter()
    if record is not None:
        record.unlink(missing_ok=True)  # all of it is in the result
    timings = {
        "seconds_local_models": round(prepared - started, 3),
        "seconds_training": round(trained - prepared, 3),
        "seconds_edge_tests": round(tested - trained, 3),
        "seconds_normal": round(learned - tested, 3),
        "seconds_uncertainty": round(propagated - learned, 3),
    }
    manifest = describe(seasonless, config, setup, final, failure, data_hash, timings)
    add_sensor_units(facts, local_models, manifest["data"]["clients"])
    manifest["inference"] = facts
    manifest["normal"] = normal
    if manifest["training"].get("converged") is False and (failure or config.tolerance > 0):
        warnings.warn(manifest["training"]["status"], ConvergenceWarning, stacklevel=2)
    for sentence in facts["warnings"]:
        warnings.warn(sentence, InferenceWarning, stacklevel=2)
    found = _result(panel, config, setup, final, trace, manifest, inference, uncertainty)
    return replace(found, monitors=monitors, reference=reference, seasons=seasonless.seasons)


def _run(
    setup: Setup,
    config: RunConfig,
    resumed: Snapshot | None,
    trace: list[TraceRow],
    save: Callable[[Snapshot], None],
    save_seconds: float,
    report: Callable[[str, int, int], None],
    follower: Follower,
) -> Snapshot:
    exact = config.training_solver == "newton"
    chunks_per_pass = 1 if exact else -(-setup.num_rounds // chunk_rounds(setup))
    total = config.passes * chunks_per_pass
    latest, last_saved = resumed, time.monotonic()
    if resumed is not None and resumed.is_finished:
        return resumed
    if exact:  # begins anew
        trace.clear()
    try:
        for snapshot, row in (solve if exact else train)(setup, config, resumed):
            latest = snapshot
            trace.append(row)
            _check_losses(setup, trace)
            done = latest.pass_index * chunks_per_pass + latest.chunk
            follower.train(latest, trace, done)
            report("training", done, total)
            if time.monotonic() - last_saved >= save_seconds:
                save(latest)
                last_saved = time.monotonic()
    except KeyboardInterrupt:
        if latest is not None:
            save(latest)
        raise
    if latest is None:  # train always yields at least once for an unfinished run
        raise RuntimeError("training ended without a single chunk")
    return latest


def _check_losses(setup: Setup, trace: list[TraceRow]) -> None:
    """Refuse to go on when a loss has grown: descent that works makes it smaller.

    Raises:
        UnstableRecursionError: with the client and the losses.
    """
    first, last = (np.nan_to_num(row.local_loss) + row.server_loss for row in (trace[0], trace[-1]))
    grown = last > LARGEST_GROWTH * first
    if grown.any():
        m = int(np.argmax(grown))
        raise UnstableRecursionError(
            f"client '{setup.names[m]}': its loss grew from {first[m]:.3g} to {last[m]:.3g}; use "
            "smaller step sizes or solver='newton'"
        )


def _infer(
    panel: Panel,
    source: StateSource,
    setup: Setup,
    config: RunConfig,
    final: Snapshot | None,
    failure: str,
    report: Callable[[str, int, int], None],
    record: Path | None,
) -> tuple[EdgeInference | None, dict[str, Any]]:
    """Test the edges, or say why not; clients come out in panel order."""
    if config.test == "none":
        return None, {"test": "none", "warnings": []}
    if config.test == "asymptotic" and failure:
        return _not_tested(config, f"this test needs FedGC's training, which failed ({failure})")
    told: list[str] = []
    try:
        if config.test == "asymptotic" and final is not None:
            found = infer_asymptotic(setup, config, _granger(setup, final), final.pass_index)
        else:
            models = {stream.name: stream.model for stream in setup.streams}
            if config.noise_correction:
                told = declared_noise_warnings(panel, models, source)
            found = infer(source, config, report, record)
    except InferenceError as error:
        option = propose(panel.findings or ()) if "stationary" in str(error) else ""
        reason = f"{error}; sensors that may wander: {option}" if option else str(error)
        return _not_tested(config, reason, *told)
    found.facts["warnings"].extend(told)
    found.facts["warnings"].extend(
        f"client '{stream.name}': measurement noise could not be separated from the state and was "
        "taken as zero, so its edges may be false; use fewer states"
        for stream in setup.streams
        if found.facts["test"] == "debiased"
        and stream.model.method != "given"
        and not stream.model.measurement_cov.any()
    )
    order = {name: k for k, name in enumerate(panel.names)}

    def reordered(table: pd.DataFrame) -> pd.DataFrame:
        by_panel = {"key": lambda names: names.map(order), "kind": "stable"}
        return table.sort_values(["effect", "cause"], **by_panel).reset_index(drop=True)

    places = state_order(setup, panel.names)

    def in_panel_order(one: EdgeInference) -> EdgeInference:
        lags = one.facts["lags"]
        where = np.ix_(places, np.concatenate([k * len(places) + places for k in range(lags)]))
        return one._replace(
            transition=one.transition[where],
            std_error=one.std_error[where],
            p_value=one.p_value[where],
            edges=reordered(one.edges),
            entries=reordered(one.entries),
            beside=None if one.beside is None else in_panel_order(one.beside),
        )

    return in_panel_order(found), found.facts


def _not_tested(config: RunConfig, reason: str, *told: str) -> tuple[None, dict[str, Any]]:
    sentence = f"the edges could not be tested: {reason}"
    return None, {"test": config.test, "reason": reason, "warnings": [sentence, *told]}


def _fingerprint(data_hash: str, config: RunConfig, models: Mapping[str, LocalModel] | None) -> str:
    digest = hashlib.sha256(f"{__version__} {data_hash}".encode())
    digest.update(json.dumps(config.to_mapping(), sort_keys=True).encode())
    for name, model in sorted((models or {}).items()):
        digest.update(name.encode())
        for leaf in jax.tree.leaves(model):
            digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def _result(
    panel: Panel,
    config: RunConfig,
    setup: Setup,
    final: Snapshot | None,
    trace: list[TraceRow],
    manifest: dict[str, Any],
    inference: EdgeInference | None,
    uncertainty: Propagation | None,
) -> Result:
    """Remove the padding and go back from sorted to panel order."""
    dims, granger, thetas = setup.state_dims, None, {}
    order = [setup.names.index(name) for name in panel.names]
    if final is not None:
        places = state_order(setup, panel.names)
        granger = _granger(setup, final)[np.ix_(places, places)]
        padded = np.asarray(final.state.clients.augmentation)
        thetas = {
            name: padded[m, : dims[m], : setup.streams[m].model.num_sensors]
            for name, m in zip(panel.names, order, strict=True)
        }
    return Result(
        panel.names,
        tuple(dims[m] for m in order),
        granger,
        thetas,
        inference,
        _trace_table(setup.names, trace),
        manifest,
        config,
        uncertainty,
    )


def _granger(setup: Setup, final: Snapshot) -> np.ndarray:
    """FedGC's Â with A_mm on the diagonal, clients in the order of the setup."""
    dims = setup.state_dims
    granger = pack_square(np.asarray(final.state.server.granger_row), dims)
    offsets = np.concatenate([[0], np.cumsum(dims)])
    for m, stream in enumerate(setup.streams):
        own = slice(offsets[m], offsets[m + 1])
        granger[own, own] = stream.model.self_transition
    return granger


def _trace_table(names: tuple[str, ...], trace: list[TraceRow]) -> pd.DataFrame:
    M = len(names)
    if not trace:
        return pd.DataFrame(columns=["pass_index", "round", "client", "local_loss", "server_loss"])
    return pd.DataFrame(
        {
            "pass_index": np.repeat([row.pass_index for row in trace], M),
            "round": np.repeat([row.round for row in trace], M),
            "client": list(names) * len(trace),
            "local_loss": np.concatenate([row.local_loss for row in trace]),
            "server_loss": np.concatenate([row.server_loss for row in trace]),
        }
    )
