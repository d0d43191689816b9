"""Table of root-cause accuracy on public data sets, for every graph and score there is.

The client splits of the paper are not published, so its figures stand beside ours for orientation
only. Choices (scorer, horizon, ridge, clip) were made on TEP's training faults, on every other SMD
machine and on BATADAL's first attacks (`part` = development); the rest was looked at afterwards.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.config import RunConfig
from fedgranger.errors import ConvergenceWarning, DataError, InferenceWarning, StabilityWarning
from fedgranger.rca import SCORERS, Evidence, gather
from fedgranger.rca.alarms import strength_matrix
from fedgranger.results import Result
from fedgranger.runtime.fitting import fit_panel
from fedgranger_research import datasets
from fedgranger_research.datasets import PreparedDataset, smd
from fedgranger_research.reproduction.compared_graphs import comparison
from fedgranger_research.reproduction.root_cause_accuracy import collect_accuracy
from fedgranger_research.reproduction.root_cause_methods import NAMES, graph_rows
from fedgranger_research.reproduction.runner import Item, Report

TITLE = "root-cause accuracy on public data sets, by score and graph"
CONFIG = RunConfig(state_model="svd", state_dim=2, solver="newton", period="none")
DEVELOPMENT = {"tep": "train_faulty", "batadal": "train_attacks"}
PAPER = {"tep": "0.292 / 0.311 (FedPC 0.361 / 0.376)", "smd": "0.688 / 0.978"}
LABELS = {
    "unexplained": "surprise that others do not explain (ours)",
    "surprise": "surprise, no graph",
    "deviation": "deviation d/τ, no graph",
    "paper: FedGC": "paper's score on FedGC's graph",
    "paper: tested": "paper's score on tested edges",
    "paper: pooled": "paper's score on a least-squares graph of the states",
    "constant": "always the most frequent root",
    "chance": "chance",
}


@dataclass(frozen=True)
class RootCauseSetting:
    """One data set (one machine of SMD): fit on its normal data, score its anomalies."""

    name: str
    path: Path
    machine: str | None = None
    part: str = "test"

    @property
    def label(self) -> str:
        """Short name for files."""
        return f"root-cause-{self.machine or self.name}"

    @property
    def work(self) -> int:
        """One unit each."""
        return 1

    def key(self) -> dict[str, Any]:
        """What the outcome depends on; files that change are noticed by size and time."""
        stamp = sorted(
            (file.name, file.stat().st_size, int(file.stat().st_mtime))
            for file in self.path.rglob("*")
            if file.is_file()
        )
        return {
            "name": self.name,
            "machine": self.machine,
            "part": self.part,
            "files": stamp,
            "graphs": list(NAMES),
        }

    def run(self, report: Report = lambda *_: None) -> pd.DataFrame:
        """One row per anomaly and method, with the scores of all clients."""
        dataset = datasets.load(self.name, self.path, machine=self.machine)
        with warnings.catch_warnings():
            for category in (ConvergenceWarning, InferenceWarning, StabilityWarning):
                warnings.simplefilter("ignore", category)
            result = fit_panel(dataset.train, CONFIG)
        report(self.label, 1, 3)
        rows = _score(dataset, result)
        report(self.label, 2, 3)
        rows += graph_rows(dataset, result)
        known = DEVELOPMENT.get(self.name)
        for row in rows:
            is_known = row["split"] == known if known else self.part == "development"
            row |= {"dataset": self.name, "part": "development" if is_known else "test"}
            row["machine"] = self.machine or self.name
        return pd.DataFrame(rows)


def root_cause_item(folder: Path) -> Item:
    """The table for the data sets below a folder (`tep`, `smd`, `batadal`, `hai`).

    Raises:
        DataError: there is none.
    """
    settings = _settings(folder)
    if not settings:
        raise DataError(
            f"{folder}: holds none of {', '.join(datasets.NAMES)}; give --data a folder with a "
            "subfolder per data set ('fedgranger datasets info NAME' says what belongs there)"
        )
    return Item("root-cause", TITLE, partial(_chosen, settings), collect_accuracy, _markdown)


def _settings(folder: Path) -> list[RootCauseSetting]:
    found = []
    for name in ("tep", "batadal", "hai"):
        path = folder / name
        if path.is_dir() and (name != "hai" or _has_attacks(path)):
            found.append(RootCauseSetting(name, path))
    path = folder / "smd"
    if path.is_dir():
        for k, machine in enumerate(smd.machines(path)):
            part = "development" if k % 2 == 0 else "test"
            found.append(RootCauseSetting("smd", path, machine, part))
    return found


def _has_attacks(path: Path) -> bool:
    """HAI's normal data alone have nothing to score."""
    try:
        return not datasets.load("hai", path).instances.empty
    except DataError:
        return False


def _chosen(settings: list[RootCauseSetting], *, quick: bool) -> list[RootCauseSetting]:
    return settings[:2] if quick else settings


def _score(dataset: PreparedDataset, result: Result) -> list[dict[str, Any]]:
    rows = []
    for run in dataset.runs:
        own = dataset.instances["run"] == run.name
        instances = dataset.instances.loc[own & (dataset.instances["split"] == run.split)]
        if instances.empty:
            continue
        evidence = gather(result, run.panel)
        scorers = _methods(result, evidence.clients)
        for instance in instances.to_dict("records"):
            window = evidence.steps(slice(instance["start"], instance["end"] + 1))
            for method, score in scorers.items():
                rows.append(
                    {
                        "split": run.split,
                        "run": run.name,
                        "instance": instance["instance_id"],
                        "roots": instance["root_clients"],
                        "method": method,
                        "clients": ";".join(evidence.clients),
                        "scores": json.dumps(score(window).tolist()),
                    }
                )
    return rows


def _methods(
    result: Result, clients: tuple[str, ...]
) -> Mapping[str, Callable[[Evidence], np.ndarray]]:
    """Every score, and the paper's on every graph that the run has."""
    empty = np.zeros((len(clients), len(clients)))
    plain = {
        name: (lambda window, name=name: SCORERS[name](window, empty))
        for name in ("unexplained", "surprise", "deviation")
    }
    fedgc = np.array(
        [
            [np.linalg.norm(result.block(m, n, "fedgc")) if m != n else 0 for n in clients]
            for m in clients
        ]
    )
    graphs = {"FedGC": fedgc, "pooled": _pooled(result)}
    if result.inference is not None:
        graphs["tested"] = strength_matrix(result, clients)
    return plain | {
        f"paper: {name}": (lambda window, graph=graph: SCORERS["paper"](window, graph))
        for name, graph in graphs.items()
    }


def _pooled(result: Result) -> np.ndarray:
    """Strengths of the least-squares model of all states, as a server could fit it."""
    reference = result.reference
    if reference is None:
        raise DataError(f"nothing is known about normal operation: {dict(result.manifest.normal)}")
    owner = reference.owner
    M = len(reference.names)
    return np.array(
        [
            [np.linalg.norm(reference.cross[np.ix_(owner == m, owner == n)]) for n in range(M)]
            for m in range(M)
        ]
    )


def _markdown(table: pd.DataFrame) -> str:
    out = []
    for key, rows in table.groupby(["dataset", "part", "roots"], sort=False):
        dataset, part, kind = np.asarray(key)
        title = f"{str(dataset).upper()}, {part}, {kind} roots, {rows['count'].iloc[0]} anomalies"
        printed = PAPER.get(str(dataset))
        out += [
            f"{title}{f' (the paper, other split: {printed})' if printed else ''}",
            "",
            "| method | AC@1 (95 %) | AC@2 | Avg@3 | MRR | AC@1 balanced | no ranking |",
            "|---|---|---|---|---|---|---|",
        ]
        is_compared = rows["graph"].notna() if "graph" in rows else np.zeros(len(rows), bool)
        for row in rows.loc[~is_compared].to_dict("records"):
            has_range = np.isfinite(row["ac1_low"])
            ends = f" ({row['ac1_low']:.2f}–{row['ac1_high']:.2f})" if has_range else ""
            out.append(
                f"| {LABELS.get(row['method'], row['method'])} | {row['ac1']:.3f}{ends} | "
                f"{row['ac2']:.3f} | {row['avg3']:.3f} | {row['mrr']:.3f} | "
                f"{row['balanced_ac1']:.3f} | {100 * row['undefined']:.0f} % |"
            )
        ours = rows.loc[rows["method"] == "unexplained", "by_root"]
        out += ["", f"Found at once by ours, per root: {ours.iloc[0]}.", ""]
        if np.any(is_compared):
            out += [f"{title}, graphs of the compared methods", "", *comparison(rows), ""]
    return "\n".join(out)
