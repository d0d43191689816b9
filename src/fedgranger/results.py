"""`Result`: the outcome of a fit, as tables and as a run folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.config import RunConfig
from fedgranger.errors import RunError
from fedgranger.inference.answer import summary_html, summary_lines
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.reference import Reference
from fedgranger.manifest_types import Manifest
from fedgranger.normal_operation import Monitor, Season
from fedgranger.result_edges import FoundEdges
from fedgranger.result_folder import INCIDENTS_FILE, ROOT_CAUSE_FILE, read_run, save_run
from fedgranger.server.jacobian_trace import JacobianTrace
from fedgranger.uncertainty.record import Propagation

__all__ = ["INCIDENTS_FILE", "ROOT_CAUSE_FILE", "Result"]


@dataclass(frozen=True, eq=False, repr=False)
class Result(FoundEdges):
    """What a fit found.

    Attributes:
        clients: names, sorted.
        state_dims: states per client, same order.
        granger: FedGC's Â with A_mm on the diagonal, P x P; block [m, n] is the influence of n
            on m. None when FedGC was not run (solver='none').
        augmentations: θ_m per client, or the weights of its network (in a deployment they stay
            with their client).
        inference: the tested estimate (debiased, of the readings, or FedGC's own with
            test='asymptotic') and its edge tests, or None when there are none.
        trace: losses along training (`server.loss_trace` tells what its columns are).
        manifest: versions, seed, data hash, timings, bytes and how training ended.
        config: the options of the run.
        uncertainty: covariances along the first pass, when they were asked for.
        monitors: what every client knows about its normal operation (in a deployment it stays
            with the client); empty when the run does not know.
        reference: what the server expects of the states in normal operation.
        seasons: what every client took out of its data because it repeats, and takes out of new
            data too (in a deployment it stays with the client).
        jacobian: Granger blocks over time, of solver='neural' only; `granger` is their mean.
    """

    clients: tuple[str, ...]
    state_dims: tuple[int, ...]
    granger: np.ndarray | None
    augmentations: dict[str, np.ndarray]
    inference: EdgeInference | None
    trace: pd.DataFrame
    manifest: Manifest
    config: RunConfig
    uncertainty: Propagation | None = None
    monitors: dict[str, Monitor] = field(default_factory=dict)
    reference: Reference | None = None
    seasons: dict[str, Season] = field(default_factory=dict)
    jacobian: JacobianTrace | None = None

    def summary(self) -> str:
        """The answer in about ten lines."""
        return "\n".join(summary_lines(self.edges(sort=True), self.manifest))

    def __repr__(self) -> str:
        """The summary: arrays say nothing to a reader."""
        return self.summary()

    def _repr_html_(self) -> str:
        """A card for notebooks."""
        return summary_html(self.edges(sort=True), self.manifest)

    def states(self, data: Any, **reading: Any) -> pd.DataFrame:
        """What the local models see in data: states by time, columns (client, state).

        Those of a single time step (least squares), which the tests use; NaN where a client was
        not measured. A federated run has none: data and local models stay at their sites.

        Args:
            data: whatever `fit` takes, the training data or new ones; sensors are found by name.
            reading: `clients` and options of `Panel.read`, for data that are no panel; those of the
                run's own data need not be repeated.
        """
        return self._fitted("state_table")(self, data, reading)

    def loadings(self, client: str | None = None) -> pd.DataFrame:
        """By how much every sensor changes, in its own unit, when a state is one larger.

        A row per (client, sensor), or per sensor of the one client that is asked for; a column per
        state. A federated run has none: a local model never leaves its site.
        """
        return self._fitted("loading_table")(self, client)

    def forecast(self, data: Any, *, sensors: bool = False, **reading: Any) -> pd.DataFrame:
        """One step ahead, by the time that is predicted; the last row is the step after the data.

        By a least-squares regression of all measured states on their pasts, which every run with
        edge tests has beside them. It is not the equation of `coefficients`, which answer another
        question: those of the latent test are of true states, without measurement noise, and
        predict measured ones worse. NaN where a step that it needs was not measured.

        Args:
            data: whatever `fit` takes, the training data or new ones.
            sensors: predict measurements in their units, columns (client, sensor), instead of
                states, columns (client, state).
            reading: `clients` and options of `Panel.read`, for data that are no panel; those of the
                run's own data need not be repeated.
        """
        return self._fitted("forecast_table")(self, data, reading, sensors=sensors)

    def residuals(self, data: Any, *, sensors: bool = False, **reading: Any) -> pd.DataFrame:
        """What was there less its one-step `forecast`, by time; arguments as there.

        So forecast and residual add up to the data; after a test whose equation is another one (the
        latent test) they are not the residuals of its equation.
        """
        return self._fitted("residual_table")(self, data, reading, sensors=sensors)

    def diagnose(self, strength: float | None = None) -> dict[str, Any]:
        """What `fedgranger diagnose` prints, as plain values: may the tests be trusted?

        `sentences` on the lags, the copies with shifted clocks and what would have been found;
        `edges_at_levels`, the edges at other levels than the run's; `power`, by edge the chance to
        find a `strength`; `checks`, all facts of the test (as `test_facts`): residuals, unit roots,
        conditioning, detectable strengths, warnings.

        Raises:
            RunError: nothing was tested.
        """
        return import_module("fedgranger.evaluation.diagnosis").diagnosis(self, strength)

    def _fitted(self, name: str) -> Callable[..., pd.DataFrame]:
        """A function that needs local models; a server's process refuses before it loads them.

        Raises:
            RunError: the run has no local models.
        """
        if not self.monitors:
            reason = self.manifest.normal.reason
            raise RunError(
                f"this run kept no local models ({reason})"
                if reason
                else "this run was made between parties, and measurements and local models stay at "
                "their sites, so it has no states, loadings, forecasts or residuals; each site has "
                "its own"
            )
        return getattr(import_module("fedgranger.runtime.fitted_values"), name)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the run folder; every file appears whole, `manifest.json` last.

        Raises:
            RunError: the folder is a file or holds a run, and `overwrite` was not given.
        """
        save_run(self, Path(folder), overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | Path) -> Result:
        """Read a run folder.

        Raises:
            RunError: the folder is not a finished run.
        """
        return cls(**read_run(Path(folder)))
