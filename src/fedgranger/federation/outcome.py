"""From what the server found to a run folder like any other."""

from __future__ import annotations

import hashlib
import itertools
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, cast

import numpy as np
import pandas as pd

from fedgranger._version import __version__
from fedgranger.config import RunConfig
from fedgranger.convergence import CRITERION, NOT_TRAINED
from fedgranger.data.time_axis import period_facts
from fedgranger.federation.coordinator import Coordinator
from fedgranger.federation.protocol import ServerResult
from fedgranger.federation.training_rounds import Training
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.manifest_types import (
    DataFacts,
    InferenceFacts,
    Manifest,
    NormalFacts,
    TrainingFacts,
)
from fedgranger.results import Result
from fedgranger.server.trainer import NEWTON_TOLERANCE
from fedgranger.text import counted, enumerated, utc_stamp

EXACT_SIZES = "exact solves depend on the ratio of the two step sizes of the clients only"


def to_result(
    coordinator: Coordinator,
    found: ServerResult,
    engine: str,
    seconds: float,
    left_out: tuple[str, ...],
) -> Result:
    """Build the result; θ and local models stay with their clients, and sensors not shared.

    The edges of clients that were left out are in its tables, not tested.
    """
    config = coordinator.plan.options.config
    inference = found.inference
    if inference is not None and left_out:
        inference = _with_absent(inference, _reasons(found.clients, left_out))
    facts = dict(found.facts)
    facts["warnings"] = [*_absence(left_out), *facts["warnings"]]
    whole = "".join(f"{name} {value}\n" for name, value in sorted(found.data_hashes.items()))
    data: DataFacts = {
        "hash": hashlib.sha256(whole.encode()).hexdigest(),
        "num_steps": found.grid.num_steps,
        "num_segments": len(found.grid.stretches),
        "period": period_facts(found.grid),
        "notes": found.notes,
        "clients": {
            name: {
                "state_dim": dim,
                "state_model": "own",
                "hash": found.data_hashes[name],
                "notes": _season_notes(found.periods[name]),
                "season": {"periods": found.periods[name]},
            }
            for name, dim in zip(found.clients, found.dims, strict=True)
        },
    }
    training = training_facts(found.training, config, found.grid.num_steps - 1)
    if found.training.granger is not None and config.training_solver != "neural":
        is_exact = config.training_solver == "newton"
        training["step_size_reason"] = EXACT_SIZES if is_exact else "each client chose its own"
    timings = {"seconds_server": round(seconds, 3), **coordinator.ledger.timings()}
    sent = coordinator.ledger.totals()
    manifest = run_manifest(engine, config, data, training, sent, timings)
    normal = cast("NormalFacts", dict(found.normal))
    if found.reference is not None:
        normal["monitors"] = "sites"
    manifest["run"], manifest["left_out"] = coordinator.plan.run, list(left_out)
    manifest["inference"], manifest["normal"] = cast("InferenceFacts", facts), normal
    if found.privacy is not None:
        manifest["privacy"] = found.privacy
    return Result(
        found.clients,
        found.dims,
        found.training.granger,
        {},
        inference,
        found.training.trace,
        manifest,
        config,
        reference=found.reference,
        jacobian=found.training.jacobian,
    )


def run_manifest(
    runtime: str,
    config: RunConfig,
    data: DataFacts,
    training: TrainingFacts,
    sent: Mapping[str, Any],
    timings: dict[str, float],
) -> Manifest:
    """What was done, with what, and how it ended; tests and normal operation are added later."""
    packages = ("jax", "numpy", "scipy", "scikit-learn")
    return {
        "fedgranger_version": __version__,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
        "created": utc_stamp(),
        "runtime": runtime,
        "seed": config.seed,
        "data": data,
        "training": training,
        "bytes": dict(sent),
        "timings": timings,
        "config": config.to_mapping(),
        "inference": cast("InferenceFacts", {}),
        "normal": {},
    }


def training_facts(training: Training, config: RunConfig, num_pairs: int) -> TrainingFacts:
    """How FedGC's rounds went, or that there were none, or why they failed."""
    if training.failure:
        has_other = config.test not in ("none", "asymptotic")
        rest = "; the edge tests do not need it" if has_other else ""
        return {
            "solver": config.training_solver,
            "rounds": 0,
            "converged": False,
            "failed": True,
            "status": f"training failed: {training.failure}{rest}",
        }
    if training.granger is None:
        return {**NOT_TRAINED}
    if config.training_solver == "neural":
        return _neural_facts(training, config)
    exact = config.training_solver == "newton"
    private = "" if config.privacy == "none" else _private_status(training, config)
    tolerance = NEWTON_TOLERANCE if exact else config.tolerance
    window = num_pairs if exact else config.round_steps(num_pairs)
    passes = training.rounds if exact else training.rounds // -(-num_pairs // window)
    distance = training.distance
    return {
        "solver": config.training_solver,
        "window": window,
        "passes": passes,
        "rounds": training.rounds,
        "converged": bool(distance <= tolerance),
        "criterion": CRITERION,
        "distance": distance if np.isfinite(distance) else None,
        "status": private or _status(passes, distance, tolerance, exact=exact),
    }


def _neural_facts(training: Training, config: RunConfig) -> TrainingFacts:
    """Networks learn for all the passes that were asked for; there is no limit to compare with."""
    passes, trace = config.network_passes, training.trace
    losses, at = np.asarray(trace["server_loss"]), np.asarray(trace["pass_index"])
    first, last = (float(losses[at == k].mean()) for k in (at.min(), at.max()))
    return {
        "solver": "neural",
        "window": config.batch_steps,
        "passes": passes,
        "rounds": training.rounds,
        "status": (
            f"networks learned for {counted(passes, 'pass', 'passes')}: the server's loss was "
            f"{first:.4g} in the first "
            f"and {last:.4g} after the last, on the data they learned from; "
            "the strengths are mean Jacobians and no test"
        ),
    }


def _private_status(training: Training, config: RunConfig) -> str:
    """Rounds with noise do not converge: they end when their part of ε is spent."""
    if training.note:
        return (
            f"training ended after {counted(training.rounds, 'round')}, its estimate is kept: "
            f"{training.note}"
        )
    return (
        f"ended after {counted(training.rounds, 'round')}: ε is shared among "
        f"{counted(config.private_rounds, 'message')} "
        "of every client, and with noise no round is the last by itself"
    )


def _status(passes: int, distance: float, tolerance: float, *, exact: bool) -> str:
    unit, units = ("round", "rounds") if exact else ("pass", "passes")
    reached = f"{CRITERION} {f'{distance:.2g}' if np.isfinite(distance) else 'not yet known'}"
    if tolerance == 0:
        return f"ran all {passes} {units}: {reached}"
    if distance <= tolerance:
        return f"converged after {passes} {units}: {reached}, tolerance {tolerance:g}"
    return (
        f"stopped at the last allowed {unit}, {passes}: {reached}, above the tolerance "
        f"{tolerance:g}; "
        + (
            "raise 'passes' (newton's tolerance is fixed)"
            if exact
            else "raise 'passes' or 'tolerance'"
        )
    )


def _season_notes(periods: list[int]) -> list[str]:
    if not periods:
        return []
    steps = enumerated([str(steps) for steps in periods])
    return [f"what repeats every {steps} steps was removed at the client"]


def _absence(left_out: tuple[str, ...]) -> list[str]:
    """What it means for every edge that clients did not take part."""
    if not left_out:
        return []
    names = ", ".join(f"'{name}'" for name in left_out)
    who = f"client {names}" if len(left_out) == 1 else f"clients {names}"
    return [
        f"{who} stayed away: every edge below was tested without it, so an influence that runs "
        "through it can look like a direct edge between two others, and its own edges were not "
        "tested"
    ]


def _reasons(clients: tuple[str, ...], left_out: tuple[str, ...]) -> dict[tuple[str, str], str]:
    """Every (cause, effect) of which one side did not take part, and why it has no numbers."""
    reasons = {}
    for effect, cause in itertools.permutations((*clients, *left_out), 2):
        absent = [f"'{name}'" for name in (cause, effect) if name in left_out]
        if absent:
            reasons[cause, effect] = f"{enumerated(absent)} stayed away"
    return reasons


def _with_absent(found: EdgeInference, reasons: Mapping[tuple[str, str], str]) -> EdgeInference:
    """Add the pairs of absent clients to the tables, and why they have no numbers to the facts."""
    for (cause, effect), reason in reasons.items():
        found.facts.setdefault("reasons", {})[f"{cause} -> {effect}"] = reason
    rows = [{"cause": cause, "effect": effect, "df": 0, "delay": 0} for cause, effect in reasons]
    added = pd.DataFrame(rows).reindex(columns=found.edges.columns)
    edges = pd.concat([found.edges, added.astype(dict(found.edges.dtypes))], ignore_index=True)
    beside = None if found.beside is None else _with_absent(found.beside, reasons)
    return found._replace(edges=edges, beside=beside)
