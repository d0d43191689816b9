"""Are the p-values and intervals honest? Repeat simulation, identification and tests over seeds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from fedgranger.client.identify import identify
from fedgranger.client.params import LocalModel, known_models
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.data.simulation_options import DECLARED_NOISE, SCENARIOS
from fedgranger.data.synthetic import simulate
from fedgranger.data.truth import Truth
from fedgranger.errors import ConfigError, InferenceError, ModelError
from fedgranger.evaluation.metrics import pairs_are_true, score, true_entries
from fedgranger.federation.direct import state_source
from fedgranger.inference.decision import adjust
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.infer import infer
from fedgranger.runtime.fitting import fit_panel
from fedgranger_research.added_noise import infer_with_added_noise, with_added_noise


@dataclass(frozen=True)
class Setting:
    """One cell of a calibration study.

    Attributes:
        scenario: name in `SCENARIOS`.
        num_steps: T.
        known_models: C, Q and R are known to the clients instead of identified; in a scenario
            of `DECLARED_NOISE` with a wrong R.
        options: keys of `RunConfig` for the tests; without `test` they are the debiased ones.
        added_noise: s.d. of the noise that clients add to their states, in each state's own.
    """

    scenario: str = "base"
    num_steps: int = 2000
    known_models: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    added_noise: float = 0.0

    def __post_init__(self) -> None:
        """Refuse unknown scenarios."""
        if self.scenario not in SCENARIOS:
            raise ConfigError(
                f"scenario is {self.scenario!r}; choose one of {', '.join(SCENARIOS)}"
            )
        if self.scenario in DECLARED_NOISE and not self.known_models:
            raise ConfigError(
                f"scenario {self.scenario!r} is about models with a wrong R; ask for known models"
            )
        if SCENARIOS[self.scenario].get("counter") and self.known_models:
            raise ConfigError(
                f"scenario {self.scenario!r} has a sensor that no stationary model describes; "
                "ask for identified models"
            )

    @property
    def name(self) -> str:
        """Short name for files and tables."""
        kind = "known" if self.known_models else "identified"
        test = "" if self.test == "debiased" else f"-{self.test}"
        noise = f"-added{self.added_noise:g}" if self.added_noise else ""
        return f"{self.scenario}-T{self.num_steps}-{kind}{test}{noise}"

    @property
    def test(self) -> str:
        """Which edge test is studied."""
        return str(self.options.get("test", "debiased"))


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
        delay_right: of each true edge that was found, its delay is the true one.
        is_latent: the answer is that of the latent test.
    """

    edge_p: np.ndarray
    edge_true: np.ndarray
    entry_p: np.ndarray
    entry_true: np.ndarray
    covered: np.ndarray
    f1: float
    fdr: float
    refused: bool = False
    delay_right: np.ndarray = np.zeros(0, dtype=np.bool_)
    is_latent: bool = True


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
    untested: float
    untested_se: float
    delay_right: float
    delay_right_se: float
    latent: float
    latent_se: float


def run_data_set(setting: Setting, seed: int) -> Record:
    """Simulate one data set and test its edges; FedGC is trained only for a test that needs it."""
    system = {"num_clients": 6, "edges": 9, **SCENARIOS[setting.scenario]}
    solver = "newton" if setting.test == "asymptotic" else "none"
    config = RunConfig.from_mapping({"solver": solver, "test": setting.test, **setting.options})
    with jax.enable_x64(True):
        panel, truth = simulate(num_steps=setting.num_steps, seed=seed, **system)
        known = None
        if setting.known_models:
            known = known_models(truth, DECLARED_NOISE.get(setting.scenario, 1.0))
        found = _tested(panel, truth, config, known, setting.added_noise, seed)
    if found is None:
        nothing, none = np.zeros(0), np.zeros(0, dtype=np.bool_)
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
        delay_right=(edges["delay"].to_numpy() == truth.dead_time + 1)[edge_true & decided],
        is_latent=found.facts.test == "debiased",
    )


def _tested(
    panel: Panel,
    truth: Truth,
    config: RunConfig,
    known: dict[str, LocalModel] | None,
    added_noise: float,
    seed: int,
) -> EdgeInference | None:
    """The tests, or None where the data do not allow them."""
    dims = truth.state_dims
    try:
        if config.test != "debiased":  # the whole way of a fit, whatever the test is
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                config = replace(config, state_dim=dims)
                if added_noise:
                    return infer_with_added_noise(panel, config, added_noise, seed, known)[0]
                return fit_panel(panel, config, models=known).inference
        models = known or {
            client.name: identify(client, panel.segment_starts, state_dim=dims[client.name])
            for client in panel
        }
        source = with_added_noise(state_source(panel, models), added_noise, seed)
        return infer(source, config)
    except (InferenceError, ModelError):
        return None


def summarise(records: list[Record], alpha: float = 0.05) -> Summary:
    """Average over the data sets that could be tested, NaN where none could; count the others."""
    num_refused = sum(record.refused for record in records)
    records = [record for record in records if not record.refused]

    def rejected(p: np.ndarray, chosen: np.ndarray) -> float:
        p = p[chosen & ~np.isnan(p)]
        return _mean(p <= alpha)

    columns = {
        "edge_size": [rejected(r.edge_p, ~r.edge_true) for r in records],
        "entry_size": [rejected(r.entry_p, ~r.entry_true) for r in records],
        "edge_power": [rejected(r.edge_p, r.edge_true) for r in records],
        "coverage": [_mean(r.covered) for r in records],
        "f1": [r.f1 for r in records],
        "fdr": [r.fdr for r in records],
        "untested": [_mean(np.isnan(r.edge_p)) for r in records],
        "delay_right": [_mean(r.delay_right) for r in records],
        "latent": [float(r.is_latent) for r in records],
    }
    values: dict[str, float] = {}
    for name, column in columns.items():
        x = np.array(column, dtype=np.float64)
        x = x[~np.isnan(x)]
        values[name] = float(x.mean()) if len(x) else np.nan
        values[f"{name}_se"] = float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else np.nan
    return Summary(num_data_sets=len(records), num_refused=num_refused, **values)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else np.nan
