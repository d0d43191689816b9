"""Edge tests in one process: those of every run, with what only the clients can add to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.data.sensor_preparation import propose
from fedgranger.errors import InferenceError, UnstableRecursionError
from fedgranger.federation.protocol import Tested, not_tested, run_tests
from fedgranger.federation.training_rounds import Training
from fedgranger.inference.asymptotic import infer_asymptotic
from fedgranger.inference.states import StateSource
from fedgranger.runtime.propagation import steady_states
from fedgranger.runtime.setup import Setup


def run_local_tests(
    panel: Panel,
    setup: Setup,
    config: RunConfig,
    source: StateSource,
    training: Training,
    report: Callable[[str, int, int], None],
    record: Path | None,
) -> Tested:
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
    if config.test == "asymptotic" and training.failure:
        reason = f"this test needs FedGC's training, which failed ({training.failure})"
        return not_tested(config, reason)
    if config.test == "asymptotic" and training.granger is not None:
        return _asymptotic(setup, config, training.granger, training.rounds)
    found, facts = run_tests(config, source, report, record)
    option = propose(panel.findings or ())
    if found is None and option and "stationary" in (facts.reason or ""):
        reason = f"{facts.reason}; sensors that may wander: {option}"
        _, remedied = not_tested(config, reason)
        remedied.warnings += facts.warnings[1:]
        return None, remedied
    return found, facts


def _asymptotic(setup: Setup, config: RunConfig, granger: np.ndarray, rounds: int) -> Tested:
    per_pass = 1 if config.training_solver == "newton" else setup.num_rounds
    try:
        steady = steady_states(setup, config, rounds // per_pass)
        found = infer_asymptotic(
            setup.names, setup.state_dims, setup.num_pairs, config, granger, steady
        )
    except (InferenceError, UnstableRecursionError) as error:
        return not_tested(config, str(error))
    return found, found.facts
