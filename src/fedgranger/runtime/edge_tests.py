"""Edge tests in one process: those of every run, with what only the clients can add to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.data.sensor_preparation import propose
from fedgranger.errors import InferenceError, UnstableRecursionError
from fedgranger.federation.protocol import not_tested
from fedgranger.federation.training_rounds import Training
from fedgranger.inference.asymptotic import infer_asymptotic
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.infer import infer
from fedgranger.inference.states import StateSource
from fedgranger.runtime.declared_noise import declared_noise_warnings
from fedgranger.runtime.propagation import steady_states
from fedgranger.runtime.setup import Setup


class LocalTests:
    """The tests of one run.

    Args:
        panel: the data, seasons taken out.
        setup: the clients.
        config: the options.
        report: called with (what, done, total).
        record: a file that keeps what shifted copies gave.
    """

    def __init__(
        self,
        panel: Panel,
        setup: Setup,
        config: RunConfig,
        report: Callable[[str, int, int], None],
        record: Path | None,
    ) -> None:
        self._panel, self._setup, self._config = panel, setup, config
        self._report, self._record = report, record
        self._models = {client.name: client.model for client in setup.client_data}

    def run(
        self, source: StateSource, training: Training
    ) -> tuple[EdgeInference | None, dict[str, Any]]:
        """Test the edges, or say why not."""
        config, noise_warnings = self._config, []
        declared = tuple(name for name in source.names if self._models[name].is_declared)
        source = source._replace(declared=declared)
        if config.test == "asymptotic" and training.failure:
            reason = f"this test needs FedGC's training, which failed ({training.failure})"
            return not_tested(config, reason)
        try:
            if config.test == "asymptotic" and training.granger is not None:
                found = self._asymptotic(training)
            else:
                if config.noise_correction:
                    noise_warnings = declared_noise_warnings(self._panel, self._models, source)
                found = infer(source, config, self._report, self._record)
        except (InferenceError, UnstableRecursionError) as error:
            none, facts = not_tested(config, self._with_remedy(str(error)))
            facts["warnings"] += noise_warnings
            return none, facts
        found.facts["warnings"] += noise_warnings + self._noiseless(found)
        return found, found.facts

    def _asymptotic(self, training: Training) -> EdgeInference:
        setup, config = self._setup, self._config
        if training.granger is None:
            raise RuntimeError("nothing was trained")
        per_pass = 1 if config.training_solver == "newton" else setup.num_rounds
        steady = steady_states(setup, config, training.rounds // per_pass)
        return infer_asymptotic(
            setup.names, setup.state_dims, setup.num_pairs, config, training.granger, steady
        )

    def _with_remedy(self, reason: str) -> str:
        option = propose(self._panel.findings or ()) if "stationary" in reason else ""
        return f"{reason}; sensors that may wander: {option}" if option else reason

    def _noiseless(self, found: EdgeInference) -> list[str]:
        return [
            f"client '{name}': measurement noise could not be separated from the state and was "
            "taken as zero, so its edges may be false; use fewer states"
            for name, model in self._models.items()
            if found.facts["test"] == "debiased"
            and model.method != "given"
            and not model.measurement_cov.any()
        ]
