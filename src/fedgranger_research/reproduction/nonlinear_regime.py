r"""One setting of the nonlinear figure: an ensemble of neural trainings on one record.

Records: HAI's normal operation (as in `hai_regime`, rows 100 s apart, the paper's recipe of two
states per client), and the simulated nonlinear systems of `data.nonlinear_systems`, whose edges are
known. Both noises are those of `studies.neural_ensemble`: \(\Sigma_y\) on every sensor, in units in
which a sensor has variance 1, and \(\Sigma_W\) on every first weight of the server's networks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.data.synthetic import simulate
from fedgranger_research.reproduction.hai_regime import HaiRegime, recording
from fedgranger_research.reproduction.runner import Report
from fedgranger_research.studies.neural_ensemble import EnsembleOptions, run_ensemble

NUM_CLIENTS = {"lorenz96": 4, "lotka-volterra": 3, "nonlinear-var": 3}
"""Simulated records and their clients; Lorenz's ring needs four."""


@dataclass(frozen=True)
class NeuralRegime:
    """One setting.

    Attributes:
        record: `hai`, or the dynamics of a simulation.
        path: HAI's folder; None for simulations.
        noise_var: Σ_y.
        weight_var: Σ_W.
        num_steps: time steps of the record.
        num_members: of the ensemble.
        passes: in which the networks learn.
        server_hidden_dim: size of the memory of the server's networks.
    """

    record: str
    path: Path | None = None
    noise_var: float = 1e-2
    weight_var: float = 1e-2
    num_steps: int = 1501
    num_members: int = 6
    passes: int = 10
    server_hidden_dim: int = 128

    @property
    def label(self) -> str:
        """Short name for files."""
        return f"nonlinear-{self.record}"

    @property
    def work(self) -> int:
        """How long it takes, in some unit."""
        return self.num_steps * self.num_members * self.passes

    def key(self) -> dict[str, Any]:
        """What the outcome depends on; files that change are noticed by size and time."""
        options = asdict(self)
        del options["path"]
        return options | ({} if self.path is None else {"files": self._hai().key()["files"]})

    def run(self, report: Report = lambda *_: None) -> pd.DataFrame:
        """Train the ensemble.

        Returns:
            The table of `run_ensemble`, with `is_edge`: 1 for a true link, 0 for none, -1 where
            that is not known.
        """
        panel, edges = self.panel()
        config = RunConfig(
            solver="neural",
            state_model="paper" if self.path else "auto",
            state_dim=2 if self.path else "auto",
            network_passes=self.passes,
            server_hidden_dim=self.server_hidden_dim,
        )
        options = EnsembleOptions(self.num_members, self.noise_var, self.weight_var)
        table = run_ensemble(panel, config, options)
        report(self.label, 1, 1)
        pairs = zip(table["cause"], table["client"], strict=True)
        return table.assign(is_edge=[-1 if edges is None else int(p in edges) for p in pairs])

    def panel(self) -> tuple[Panel, frozenset[tuple[str, str]] | None]:
        """The record, and its true (cause, effect) where they are known."""
        if self.path is not None:
            return recording(self._hai()), None
        clients = NUM_CLIENTS[self.record]
        panel, truth = simulate(clients, self.num_steps, dynamics=self.record, seed=1)
        return panel, frozenset(truth.edges)

    def _hai(self) -> HaiRegime:
        if self.path is None:
            raise RuntimeError("not a record of HAI")
        return HaiRegime(self.path, num_rounds=self.num_steps - 1)
