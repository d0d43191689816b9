"""The record of a run as its server knows it, in one process as between parties.

What only clients know is added where they are at hand (`federation/client_facts.py`).
"""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import version

import numpy as np

from fedgranger._version import __version__
from fedgranger.config import RunConfig
from fedgranger.convergence import CRITERION
from fedgranger.data.time_axis import period_facts
from fedgranger.federation.protocol import ServerResult
from fedgranger.federation.training_rounds import Training
from fedgranger.manifest_types import (
    FORMAT,
    ClientFacts,
    DataFacts,
    Manifest,
    SeasonFacts,
    SentFacts,
    TrainingFacts,
)
from fedgranger.server.newton_trainer import NEWTON_TOLERANCE
from fedgranger.text import counted, enumerated, utc_stamp

EXACT_SIZES = "exact solves depend on the ratio of the two step sizes of the clients only"
NOT_TRAINED = "FedGC was not run; the edges come from tests on the clients' least-squares states"


def run_record(
    runtime: str,
    config: RunConfig,
    found: ServerResult,
    sent: dict[str, SentFacts],
    timings: dict[str, float],
) -> Manifest:
    """What was done, with what, and what came of it."""
    packages = ("jax", "numpy", "scipy", "scikit-learn")
    record = Manifest(
        format=FORMAT,
        fedgranger_version=__version__,
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
        created=utc_stamp(),
        runtime=runtime,
        seed=config.seed,
        data=_data(found),
        training=_training(found.training, config, found.grid.num_steps - 1),
        bytes=sent,
        timings=timings,
        config=config.to_mapping(),
        inference=found.facts,
        normal=found.normal,
    )
    if found.privacy is not None:
        record.privacy = found.privacy
    return record


def _data(found: ServerResult) -> DataFacts:
    whole = "".join(f"{name} {value}\n" for name, value in sorted(found.data_hashes.items()))
    return DataFacts(
        hash=hashlib.sha256(whole.encode()).hexdigest(),
        num_steps=found.grid.num_steps,
        num_segments=len(found.grid.stretches),
        period=period_facts(found.grid),
        notes=found.notes,
        clients={
            name: ClientFacts(
                state_dim=dim,
                state_model="own",
                hash=found.data_hashes[name],
                notes=_season_notes(found.periods[name]),
                season=SeasonFacts(periods=found.periods[name]),
            )
            for name, dim in zip(found.clients, found.dims, strict=True)
        },
    )


def _season_notes(periods: list[int]) -> list[str]:
    if not periods:
        return []
    steps = enumerated([str(steps) for steps in periods])
    return [f"what repeats every {steps} steps was removed at the client"]


def _training(training: Training, config: RunConfig, num_pairs: int) -> TrainingFacts:
    """How FedGC's rounds went, or that there were none, or why they failed."""
    if training.failure:
        has_other = config.test not in ("none", "asymptotic")
        rest = "; the edge tests do not need it" if has_other else ""
        return TrainingFacts(
            solver=config.training_solver,
            rounds=0,
            converged=False,
            failed=True,
            status=f"training failed: {training.failure}{rest}",
        )
    if training.granger is None:
        return TrainingFacts(solver="none", rounds=0, status=NOT_TRAINED)
    if config.training_solver == "neural":
        return _neural_facts(training, config)
    exact = config.training_solver == "newton"
    private = "" if config.privacy == "none" else _private_status(training, config)
    tolerance = NEWTON_TOLERANCE if exact else config.tolerance
    window = num_pairs if exact else config.round_steps(num_pairs)
    passes = training.rounds if exact else training.rounds // -(-num_pairs // window)
    distance = training.distance
    return TrainingFacts(
        solver=config.training_solver,
        window=window,
        passes=passes,
        rounds=training.rounds,
        converged=bool(distance <= tolerance),
        criterion=CRITERION,
        distance=distance if np.isfinite(distance) else None,
        status=private or _status(passes, distance, tolerance, exact=exact),
        step_size_reason=EXACT_SIZES if exact else "each client chose its own",
    )


def _neural_facts(training: Training, config: RunConfig) -> TrainingFacts:
    """Networks learn for all the passes that were asked for; there is no limit to compare with."""
    passes, trace = config.network_passes, training.trace
    losses, at = np.asarray(trace["server_loss"]), np.asarray(trace["pass_index"])
    first, last = (float(losses[at == k].mean()) for k in (at.min(), at.max()))
    return TrainingFacts(
        solver="neural",
        window=config.batch_steps,
        passes=passes,
        rounds=training.rounds,
        status=(
            f"networks learned for {counted(passes, 'pass', 'passes')}: the server's loss was "
            f"{first:.4g} in the first "
            f"and {last:.4g} after the last, on the data they learned from; "
            "the strengths are mean Jacobians and no test"
        ),
    )


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
