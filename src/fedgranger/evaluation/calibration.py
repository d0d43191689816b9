"""Are the p-values and intervals honest? Repeat simulation, identification and tests over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from fedgranger.client.identify import identify
from fedgranger.client.params import known_models
from fedgranger.config import RunConfig
from fedgranger.data.synthetic import simulate
from fedgranger.errors import ConfigError, InferenceError
from fedgranger.evaluation.metrics import pairs_are_true, score, true_entries
from fedgranger.inference.infer import infer
from fedgranger.inference.multiplicity import adjust
from fedgranger.runtime.uploads import state_source

__all__ = ["SCENARIOS", "Record", "Setting", "Summary", "run_data_set", "summarise"]

SCENARIOS: dict[str, dict[str, Any]] = {
    "base": {},
    "noise5": {"measurement_var": 0.5},
    "correlated": {"process_correlation": 0.5},
    "student4": {"student_df": 4.0},
    "missing10": {"missing_share": 0.1},
    "mixed": {"state_dims": [1, 2, 3, 1, 2, 3], "sensor_dims": [3, 5, 8, 6, 12, 10]},
    "nearunit": {"spectral_radius": 0.98},
    "twenty": {"num_clients": 20, "edges": 38},
}
"""What differs from six clients with two states and eight sensors, nine of thirty edges."""


@dataclass(frozen=True)
class Setting:
    """One cell of a calibration study.

    Attributes:
        scenario: name in `SCENARIOS`.
        num_steps: T.
        known_models: C, Q and R are known to the clients instead of identified.
        options: keys of `RunConfig` for the tests.
    """

    scenario: str = "base"
    num_steps: int = 2000
    known_models: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse unknown scenarios."""
        if self.scenario not in SCENARIOS:
            raise ConfigError(
                f"scenario is {self.scenario!r}; choose one of {', '.join(SCENARIOS)}"
            )

    @property
    def name(self) -> str:
        """Short name for files and tables."""
        kind = "known" if self.known_models else "identified"
        return f"{self.scenario}-T{self.num_steps}-{kind}"


class Record(NamedTuple):
    """Outcome of one data set.

    Attributes:
        edge_p: p-value per edge; NaN where there was none.
        edge_true: the edge exists.
        entry_p: p-value per entry across clients.
        entry_true: its block exists.
        covered: the interval of an entry holds its true value (known coordinates: all entries;
            otherwise the entries of absent blocks).
        f1: of the edges after correction.
        fdr: share of false ones among the edges reported.
        refused: the data did not allow the tests.
    """

    edge_p: np.ndarray
    edge_true: np.ndarray
    entry_p: np.ndarray
    entry_true: np.ndarray
    covered: np.ndarray
    f1: float
    fdr: float
    refused: bool = False


@dataclass(frozen=True)
class Summary:
    """Means over data sets and their Monte Carlo standard errors (between data sets)."""

    num_data_sets: int
    num_refused: int
    edge_size: float
    edge_size_se: float
    entry_size: float
    entry_size_se: float
    edge_power: float
    edge_power_se: float
    coverage: float
    coverage_se: float
    f1: float
    f1_se: float
    fdr: float
    fdr_se: float


def run_data_set(setting: Setting, seed: int) -> Record:
    """Simulate one data set and test its edges; FedGC training plays no part in the tests."""
    system = {"num_clients": 6, "edges": 9, **SCENARIOS[setting.scenario]}
    config = RunConfig.from_mapping(setting.options)
    with jax.enable_x64(True):
        panel, truth = simulate(num_steps=setting.num_steps, seed=seed, **system)
        if setting.known_models:
            models = known_models(truth)
        else:
            models = {
                client.name: identify(
                    client, panel.segment_starts, state_dim=truth.state_dims[client.name]
                )
                for client in panel
            }
        try:
            found = infer(state_source(panel, models), config)
        except InferenceError:
            nothing = np.zeros(0)
            none = np.zeros(0, dtype=np.bool_)
            return Record(nothing, none, nothing, none, none, np.nan, np.nan, True)
    edges, entries = found.edges, found.entries
    edge_true, entry_true = pairs_are_true(edges, truth), pairs_are_true(entries, truth)
    low, high = entries["ci_low"].to_numpy(), entries["ci_high"].to_numpy()
    if setting.known_models:
        value = true_entries(entries, truth)
        covered = (low <= value) & (value <= high)
    else:
        covered = ((low <= 0) & (high >= 0))[~entry_true]
    edge_p = edges["p_value"].to_numpy()
    decided = np.nan_to_num(adjust(edge_p, config.correction), nan=1.0) <= config.alpha
    scores = score(edge_true, -np.nan_to_num(edge_p, nan=1.0), decided)
    return Record(
        edge_p,
        edge_true,
        entries["p_value"].to_numpy(),
        entry_true,
        covered,
        scores["f1"],
        scores["fdr"],
    )


def summarise(records: list[Record], alpha: float = 0.05) -> Summary:
    """Average over the data sets that could be tested; the others are counted."""
    num_refused = sum(record.refused for record in records)
    records = [record for record in records if not record.refused]
    if not records:
        raise ConfigError("no data set of this study could be tested; give it more steps")

    def rejected(p: np.ndarray, chosen: np.ndarray) -> float:
        p = p[chosen & ~np.isnan(p)]
        return float((p <= alpha).mean()) if len(p) else np.nan

    columns = {
        "edge_size": [rejected(r.edge_p, ~r.edge_true) for r in records],
        "entry_size": [rejected(r.entry_p, ~r.entry_true) for r in records],
        "edge_power": [rejected(r.edge_p, r.edge_true) for r in records],
        "coverage": [float(r.covered.mean()) for r in records],
        "f1": [r.f1 for r in records],
        "fdr": [r.fdr for r in records],
    }
    values: dict[str, float] = {}
    for name, column in columns.items():
        x = np.array(column, dtype=np.float64)
        values[name] = float(np.nanmean(x))
        values[f"{name}_se"] = float(np.nanstd(x, ddof=1) / np.sqrt(len(x))) if len(x) > 1 else 0.0
    return Summary(num_data_sets=len(records), num_refused=num_refused, **values)
