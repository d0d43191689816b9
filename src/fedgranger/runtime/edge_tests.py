"""Edge tests in one process: those of every run, with what only the clients can add to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedgranger.client.noise_limit import client_noise_floor
from fedgranger.client.params import LocalModel
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.data.sensor_preparation import propose
from fedgranger.errors import InferenceError, UnstableRecursionError
from fedgranger.federation.protocol import not_tested
from fedgranger.federation.training_rounds import Training
from fedgranger.inference.asymptotic import infer_asymptotic
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.infer import infer
from fedgranger.inference.lag_moments import lag_moment_check
from fedgranger.inference.states import StateSource
from fedgranger.runtime.propagation import steady_states
from fedgranger.runtime.setup import Setup

CONTRADICTION = 0.001
"""p-value of the lag moments below which no white error fits them."""
MUCH_LESS = 0.5


def run_tests(
    panel: Panel,
    setup: Setup,
    config: RunConfig,
    source: StateSource,
    training: Training,
    report: Callable[[str, int, int], None],
    record: Path | None,
) -> tuple[EdgeInference | None, dict[str, Any]]:
    """Test the edges, or say why not.

    Args:
        panel: the data, seasons taken out.
        setup: the clients.
        config: the options.
        source: the states.
        training: how it ended.
        report: called with (what, done, total).
        record: a file that keeps what shifted copies gave.
    """
    models = {client.name: client.model for client in setup.client_data}
    source = source._replace(declared=tuple(n for n in source.names if models[n].is_declared))
    noise_warnings: list[str] = []
    if config.test == "asymptotic" and training.failure:
        reason = f"this test needs FedGC's training, which failed ({training.failure})"
        return not_tested(config, reason)
    try:
        if config.test == "asymptotic" and training.granger is not None:
            found = _asymptotic(setup, config, training.granger, training.rounds)
        else:
            if config.noise_correction:
                noise_warnings = declared_noise_warnings(panel, models, source)
            found = infer(source, config, report, record)
    except (InferenceError, UnstableRecursionError) as error:
        none, facts = not_tested(config, _with_remedy(str(error), panel))
        facts["warnings"] += noise_warnings
        return none, facts
    found.facts["warnings"] += noise_warnings
    if found.facts["test"] == "debiased":
        found.facts["warnings"] += _noiseless(models)
    return found, found.facts


def _asymptotic(setup: Setup, config: RunConfig, granger: np.ndarray, rounds: int) -> EdgeInference:
    per_pass = 1 if config.training_solver == "newton" else setup.num_rounds
    steady = steady_states(setup, config, rounds // per_pass)
    return infer_asymptotic(setup.names, setup.state_dims, setup.num_pairs, config, granger, steady)


def _with_remedy(reason: str, panel: Panel) -> str:
    option = propose(panel.findings or ()) if "stationary" in reason else ""
    return f"{reason}; sensors that may wander: {option}" if option else reason


def _noiseless(models: Mapping[str, LocalModel]) -> list[str]:
    return [
        f"client '{name}': measurement noise could not be separated from the state and was "
        "taken as zero, so its edges may be false; use fewer states"
        for name, model in models.items()
        if model.method != "given" and not model.measurement_cov.any()
    ]


def declared_noise_warnings(
    panel: Panel, models: Mapping[str, LocalModel], source: StateSource
) -> list[str]:
    """One sentence per declared R that the client's own spectrum has no room for.

    Where the states' lags speak against it too (no white error fits them, or one of less than half
    the size does), the usual reason is named.
    """
    shares = {}
    for name in source.declared:
        model = models[name]
        floor = client_noise_floor(
            panel[name],
            panel.segment_starts,
            model.observation_matrix,
            model.measurement_cov,
            model.centre,
            model.scale,
        )
        if floor.share < 1:
            shares[name] = floor.share
    if not shares:
        return []
    doubted = _doubted_by_lags(source)
    return [
        f"client '{name}': of the declared measurement noise {100 * share:.2g} % can be white, as "
        "the spectrum of its states shows; it was used as declared, so its edges may be false"
        + (
            ", and the states' lags contradict it too: sensor noise that enters a control loop is "
            "the usual reason"
            if name in doubted
            else ""
        )
        for name, share in shares.items()
    ]


def _doubted_by_lags(source: StateSource) -> set[str]:
    try:
        found = lag_moment_check(source)
    except InferenceError:  # too short to say anything
        return set()
    if found.p_value < CONTRADICTION:
        return set(source.names)
    pairs = zip(source.names, source.error_covs, found.error_covs, strict=True)
    return {
        name
        for name, declared, lagged in pairs
        if declared.any()
        and np.trace(np.linalg.solve(declared, lagged)) / len(declared) < MUCH_LESS
    }
