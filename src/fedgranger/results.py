"""`Result`: the outcome of a fit, as tables and as a run folder."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.config import RunConfig, read_toml
from fedgranger.edge_test_kinds import STATE_TESTS
from fedgranger.errors import ConfigError, RunError
from fedgranger.inference.answer_lines import summary_html, summary_lines
from fedgranger.inference.decision import by_certainty, decide, false_edge_bound
from fedgranger.inference.edge_tables import EDGE_COLUMNS, ENTRY_COLUMNS, EdgeInference
from fedgranger.inference.reference import Reference
from fedgranger.manifest_types import Manifest
from fedgranger.normal_operation import Monitor, Season
from fedgranger.option_fields import check_choice
from fedgranger.result_files import (
    JACOBIAN_FILE,
    NORMAL_FILE,
    OTHER_FILES,
    OVER_TIME_FILE,
    SEASONS_FILE,
    inference_arrays,
    load_jacobian,
    load_normal,
    load_seasons,
    load_uncertainty,
    other_tables,
    read_inference,
    save_jacobian,
    save_normal,
    save_seasons,
    save_uncertainty,
)
from fedgranger.run_folder import MANIFEST, RunFolder, check_files
from fedgranger.server.jacobian_trace import JacobianTrace
from fedgranger.uncertainty.record import Propagation

ROOT_CAUSE_FILE = "rca.json"
INCIDENTS_FILE = "incidents.jsonl"
RESPONSE_COLUMNS = (
    *("cause", "effect", "cause_sensor", "effect_sensor"),
    *("step", "change", "low", "high"),
)
FEDGC_FILES = ("edges_fedgc.csv", "entries_fedgc.csv")


@dataclass(frozen=True, eq=False, repr=False)
class Result:
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
        trace: losses along training; columns pass_index, round, client, local_loss, server_loss.
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

    def block(self, effect: str, cause: str, estimate: str = "fedgc") -> np.ndarray:
        """Block [effect, cause] of FedGC's estimate, or of a tested one (all lags)."""
        offsets = np.concatenate([[0], np.cumsum(self.state_dims)])
        for name in (effect, cause):
            if name not in self.clients:
                raise RunError(f"no client '{name}'; the run has {', '.join(self.clients)}")
        check_choice("estimate", estimate, ("fedgc", *STATE_TESTS))
        m, n = self.clients.index(effect), self.clients.index(cause)
        rows, columns = (slice(offsets[k], offsets[k + 1]) for k in (m, n))
        if estimate == "fedgc":
            return self._fedgc()[rows, columns]
        transition = self._tested(estimate).transition
        P = offsets[-1]
        lags = transition.shape[1] // P
        return np.concatenate(
            [transition[rows, k * P : (k + 1) * P][:, columns] for k in range(lags)], axis=1
        )

    def edges(
        self,
        *,
        estimate: str = "auto",
        alpha: float | None = None,
        correction: str | None = None,
        sort: bool = False,
    ) -> pd.DataFrame:
        """One row per ordered pair of clients; `strength` is the Frobenius norm of its block.

        `ci_low` and `ci_high` bound the strength at the run's confidence; `ci_low` is 0 where the
        test at that level finds nothing.

        Args:
            estimate: `debiased` or `readings` with its tests, `fedgc` (its ranking, which is no
                test: test columns empty), or `auto`: the run's own test, and where nothing was
                tested pairs without any number.
            alpha: level for `is_edge`; default the run's own.
            correction: for `q_value`; default the run's own.
            sort: most certain first, instead of by client order: by p-value, where p-values end at
                what the copies support by the statistic, and without tests by strength.
        """
        self._check_estimate(estimate)
        is_number = isinstance(alpha, Real) and not isinstance(alpha, bool)
        if alpha is not None and not (is_number and 0 < alpha < 1):
            raise ConfigError(f"alpha is {alpha!r}; it must be a number between 0 and 1")
        if estimate == "fedgc":
            table = self._untested_edges()
        elif self.inference is None:
            table = self._untested_edges().assign(strength=np.nan)
        else:
            table = decide(
                self._tested(estimate).edges,
                self.config.alpha if alpha is None else float(alpha),
                self.config.correction if correction is None else correction,
                self.config.couplings,
            )
        if sort:
            table = by_certainty(table)
        return table

    def edges_over_time(self, cause: str | None = None, effect: str | None = None) -> pd.DataFrame:
        """Every edge in every stretch of the record: strength, its band, p-value and decision.

        `ci_low` and `ci_high` hold for all stretches of an edge together at the run's confidence,
        and `p_value` is the chance of so much in any of them without an influence.

        Args:
            cause: only edges from this client.
            effect: only edges to this client.

        Raises:
            RunError: the run did not follow its edges.
        """
        if self.inference is None or self.inference.over_time is None:
            asked = "could not follow its edges in time; its warnings say why"
            raise RunError(
                f"this run {asked}"
                if self.config.time_windows
                else "this run did not follow its edges in time; fit with time_windows=8"
            )
        table = self.inference.over_time
        for column, name in (("cause", cause), ("effect", effect)):
            if name is not None and name not in self.clients:
                raise RunError(f"no client '{name}'; the run has {', '.join(self.clients)}")
            table = table if name is None else table.loc[table[column] == name]
        return table.reset_index(drop=True)

    def responses(self, cause: str | None = None, effect: str | None = None) -> pd.DataFrame:
        """What every edge that was found does: the effect's change by step after the cause's.

        In the units of the two sensors that show the edge best, for one unit more at the cause's;
        where no sensors are known (in a federation) in standard deviations of the states. `low` and
        `high` bound the change at each step at the run's confidence.

        Args:
            cause: only edges from this client.
            effect: only edges to this client.
        """
        facts = self.manifest["inference"]
        sensors, rows = facts.get("sensor_responses") or {}, []
        for edge, found in (facts.get("responses") or {}).items():
            shown = sensors.get(edge, found)
            pair = tuple(edge.split(" -> ", 1))
            names = (shown.get("cause_sensor"), shown.get("effect_sensor"))
            curve = zip(*(shown[name] for name in ("value", "low", "high")), strict=True)
            rows += [(*pair, *names, step, *values) for step, values in enumerate(curve)]
        table = pd.DataFrame(rows, columns=list(RESPONSE_COLUMNS))
        for column, name in (("cause", cause), ("effect", effect)):
            if name is not None and name not in self.clients:
                raise RunError(f"no client '{name}'; the run has {', '.join(self.clients)}")
            table = table if name is None else table.loc[table[column] == name]
        return table.reset_index(drop=True)

    def entries(self, *, estimate: str = "auto") -> pd.DataFrame:
        """One row per entry of every cross-client block (row and col count states from 0).

        With several lags `col` goes on counting from lag to lag.
        """
        self._check_estimate(estimate)
        if estimate != "fedgc":
            if self.inference is not None:
                return self._tested(estimate).entries
            return pd.DataFrame(columns=list(ENTRY_COLUMNS))
        rows = [
            (cause, effect, i, j, float(value))
            for effect, cause in itertools.permutations(self.clients, 2)
            for (i, j), value in np.ndenumerate(self.block(effect, cause))
        ]
        table = pd.DataFrame(rows, columns=list(ENTRY_COLUMNS[:5]))
        return table.reindex(columns=list(ENTRY_COLUMNS))

    def false_edge_bound(
        self, *, alpha: float | None = None, correction: str | None = None
    ) -> float:
        """Level at which Holm's test, which bounds the chance of any false edge, reports all."""
        if self.inference is None:
            raise RunError("this run has no tests; fit with test='debiased'")
        table = self.edges(alpha=alpha, correction=correction)
        return false_edge_bound(
            table["p_value"].to_numpy(), table["is_edge"].fillna(False).to_numpy(dtype=np.bool_)
        )

    def test_facts(self, estimate: str = "auto") -> Mapping[str, Any]:
        """Facts of a test: which question, why, what could not be tested and the checks."""
        if self.inference is None:
            return self.manifest["inference"]
        return self._tested(estimate).facts

    def _check_estimate(self, estimate: str) -> None:
        check_choice("estimate", estimate, ("auto", *STATE_TESTS, "fedgc"))
        if estimate in STATE_TESTS:
            self._tested(estimate)
        if estimate == "fedgc":
            self._fedgc()

    def fedgc_edges(self) -> pd.DataFrame | None:
        """FedGC's own edges, to look at beside the tested ones; None when FedGC was not run."""
        return None if self.granger is None else self._untested_edges()

    def _fedgc(self) -> np.ndarray:
        if self.granger is None:
            raise RunError("FedGC was not run (solver='none'); run with solver='newton' or 'sgd'")
        return self.granger

    def _tested(self, estimate: str) -> EdgeInference:
        for found in (self.inference, self.inference.beside if self.inference else None):
            if found is not None and estimate in ("auto", found.facts.get("test")):
                return found
        raise RunError(f"this run has no {estimate} estimate; fit with test='{estimate}'")

    def _untested_edges(self) -> pd.DataFrame:
        """All pairs with FedGC's strength, empty when FedGC was not run."""
        pairs = list(itertools.permutations(self.clients, 2))
        table = pd.DataFrame(
            {"cause": [cause for _, cause in pairs], "effect": [effect for effect, _ in pairs]}
        )
        if self.granger is not None:
            table["strength"] = [float(np.linalg.norm(self.block(*pair))) for pair in pairs]
        return table.reindex(columns=list(EDGE_COLUMNS))

    def save(self, folder: str | Path) -> None:
        """Write the run folder; every file appears whole, `manifest.json` last."""
        arrays = {
            f"augmentation_{m}": self.augmentations[name]
            for m, name in enumerate(self.clients)
            if name in self.augmentations
        }
        arrays |= {"clients": np.array(self.clients), "state_dims": np.array(self.state_dims)}
        if self.granger is not None:
            arrays["granger"] = self.granger
        if self.inference is not None:
            arrays |= inference_arrays(self.inference)
        run = RunFolder(Path(folder))
        run.write_text("config.toml", self.config.to_toml())
        run.write_arrays("estimate.npz", arrays)
        tables = {"edges.csv": self.edges(), "entries.csv": self.entries()}
        if self.granger is not None:
            views = (self.edges(estimate="fedgc"), self.entries(estimate="fedgc"))
            tables |= dict(zip(FEDGC_FILES, views, strict=True))
        tables |= other_tables(self.inference)
        if self.inference is not None and self.inference.over_time is not None:
            tables[OVER_TIME_FILE] = self.inference.over_time
        for name, table in tables.items():
            run.write_table(name, table)
        run.write("trace.parquet", lambda path: self.trace.to_parquet(path, index=False))
        if self.uncertainty is not None:
            save_uncertainty(run, self.uncertainty)
        if self.reference is not None:
            save_normal(run, self.monitors, self.reference)
        save_seasons(run, self.seasons)
        save_jacobian(run, self.jacobian)
        run.remove_others(*FEDGC_FILES, *OTHER_FILES, OVER_TIME_FILE, JACOBIAN_FILE)
        run.remove_others(NORMAL_FILE, ROOT_CAUSE_FILE, INCIDENTS_FILE, SEASONS_FILE)
        run.finish(self.manifest)

    @classmethod
    def load(cls, folder: str | Path) -> Result:
        """Read a run folder.

        Raises:
            RunError: the folder is not a finished run.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise RunError(f"{folder}: no such run folder; make one with 'fedgranger fit'")
        if not (folder / MANIFEST).exists():
            hint = (
                "it was interrupted, continue it with 'fedgranger fit --resume'"
                if (folder / "checkpoint.npz").exists()
                else "make one with 'fedgranger fit'"
            )
            raise RunError(f"{folder}: not a finished run; {hint}")
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            check_files(folder, manifest)
            with np.load(folder / "estimate.npz", allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            clients = tuple(arrays["clients"].tolist())
            return cls(
                clients,
                tuple(arrays["state_dims"].tolist()),
                arrays.get("granger"),
                {
                    name: arrays[f"augmentation_{m}"]
                    for m, name in enumerate(clients)
                    if f"augmentation_{m}" in arrays
                },
                read_inference(folder, manifest["inference"], arrays),
                pd.read_parquet(folder / "trace.parquet"),
                manifest,
                RunConfig.from_mapping(read_toml(folder / "config.toml")),
                load_uncertainty(folder, manifest),
                *load_normal(folder),
                load_seasons(folder),
                load_jacobian(folder),
            )
        except RunError:
            raise
        except (OSError, EOFError, LookupError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise RunError(f"{folder}: damaged run folder ({error}); run the fit again") from None
