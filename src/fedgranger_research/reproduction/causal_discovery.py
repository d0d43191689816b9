"""Table of causal discovery in the paper's setting: every method, as the paper scored and fairly.

M = 6 clients with p = 2 states and d = 8 sensors, 9 of 30 ordered pairs of clients, T = 2000.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedgranger_research.baselines.method_list import installed_methods
from fedgranger_research.baselines.method_trials import summarise_trials
from fedgranger_research.baselines.problems import Scenario
from fedgranger_research.reproduction.method_settings import MethodSetting
from fedgranger_research.reproduction.pictures import pyplot, save
from fedgranger_research.reproduction.runner import Item

TITLE = "finding the edges of 6 clients with 2 states each, every method, two ways of scoring"
NUM_SEEDS = 20
QUICK_METHODS = ("fedgc", "debiased", "granger-pairs")
MODES = ("vertical", "horizontal", "central")
SECTIONS = {
    "paper": "As the paper scored: all 144 entries with the blocks within clients; areas under the "
    "curves of the 0/1 decisions, but of continuous scores for FedGC and the tests on it",
    "entries": "Fairly, entries across clients: 120 entries, continuous scores for all",
    "clients": "Fairly, edges between clients: 30 ordered pairs, continuous scores for all",
}
PAPER = {
    "fedpc": "TP 8, FP 0",
    "feddag": "TP 12, FP 0",
    "notears-admm-untimed": "TP 6, FP 0",
    "fdbnl": "TP 23, FP 0",
    "fedgc": "every entry positive",
    "asymptotic": "66 of 84 nulls accepted",
}
"""What the paper's row amounts to, reconstructed from its figures."""


def causal_discovery_item(
    num_seeds: int = NUM_SEEDS, methods: Sequence[str] = (), added: Path | None = None
) -> Item:
    """The table over so many data sets; without names all methods that are installed.

    `added` is a file with more methods.
    """
    chosen = partial(settings, num_seeds=num_seeds, methods=tuple(methods), added=added)
    return Item("causal-discovery", TITLE, chosen, collect, markdown, draw)


def settings(
    *,
    quick: bool = False,
    num_seeds: int = NUM_SEEDS,
    methods: Sequence[str] = (),
    added: Path | None = None,
) -> list[MethodSetting]:
    """One per method and seed, seed after seed, so that an interrupted table has all methods."""
    names = tuple(methods) or (QUICK_METHODS if quick else installed_methods())
    scenario = Scenario(num_steps=300) if quick else Scenario()
    seeds = 2 if quick else num_seeds
    return [
        MethodSetting(name, scenario, seed, added=added) for seed in range(seeds) for name in names
    ]


def collect(tables: list[pd.DataFrame], **_: Any) -> pd.DataFrame:
    """Mean and s.d. per method and level."""
    table = summarise_trials(pd.concat(tables, ignore_index=True), ["level", "mode", "method"])
    levels, modes = list(SECTIONS), list(MODES)
    rows = table.to_dict("records")
    rows.sort(key=lambda row: (levels.index(row["level"]), modes.index(row["mode"])))
    return pd.DataFrame(rows)


def markdown(table: pd.DataFrame) -> str:
    """A table per way of scoring, mean ± s.d. over data sets."""
    out = []
    for level, title in SECTIONS.items():
        printed = level == "paper"
        head = ["method", "mode", "F1", "AUC-ROC", "AUC-PR", "SHD", "FP", "FN", "size", "power"]
        head += ["the paper's row"] if printed else ["seconds", "kB sent"]
        out += ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        for row in table.loc[table["level"] == level].to_dict("records"):
            cells = [str(row["method"]), str(row["mode"])]
            cells += [_spread(row, name, 3) for name in ("f1", "auc_roc", "auc_pr")]
            cells += [_spread(row, name, 1) for name in ("shd", "fp", "fn")]
            cells += [_plain(row[name], 3) for name in ("size", "power")]
            if printed:
                cells.append(PAPER.get(str(row["method"]), ""))
            else:
                cells += [_plain(row["seconds"], 2), _plain(row["bytes_sent"] / 1000, 0)]
            out.append("| " + " | ".join(cells) + " |")
        out += ["", f"{title}.", ""]
    data_sets = int(np.asarray(table["data_sets"]).max())
    refused = table.loc[(table["refused"] > 0) & (table["level"] == "clients")]
    out.append(
        f"Mean ± standard deviation over {data_sets} data sets. Size and power are the shares of "
        "absent and of present edges that a method reports by its own decision; seconds are a "
        "median. Vertical: a client holds its own columns; horizontal: every client holds all "
        "columns and some of the time; central: all data in one place."
    )
    for row in refused.to_dict("records"):
        out.append(f"{row['method']} refused {row['refused']} of {row['data_sets']} data sets.")
    return "\n".join(out)


def draw(folder: Path, table: pd.DataFrame) -> None:
    """F1 and false edges of every method, as the paper scored and fairly."""
    plt = pyplot()
    names = list(dict.fromkeys(table["method"]))
    figure, axes = plt.subplots(
        1, 2, figsize=(9.0, 1.2 + 0.32 * len(names)), sharey=True, layout="constrained"
    )
    shown = {"paper": "#bbbbbb", "entries": "#4477aa", "clients": "#ee7733"}
    for axis, measure, words in zip(
        axes, ("f1", "size"), ("F1", "absent edges reported"), strict=True
    ):
        for k, (level, colour) in enumerate(shown.items()):
            rows = table.loc[table["level"] == level].set_index("method")
            values = [rows[measure].get(name, np.nan) for name in names]
            errors = [rows[f"{measure}_sd"].get(name, np.nan) for name in names]
            places = np.arange(len(names)) + 0.22 * (k - 1)
            axis.errorbar(
                values, places, xerr=np.nan_to_num(errors), fmt="o", color=colour, label=level
            )
        axis.set_xlabel(f"{words} (mean, s.d.)")
        axis.set_xlim(-0.03, 1.03)
    axes[1].axvline(0.05, color="black", lw=0.8, ls=":")
    axes[0].set_yticks(np.arange(len(names)), names)
    axes[0].invert_yaxis()
    axes[1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    save(figure, folder, "causal-discovery")


def _spread(row: dict[Any, Any], name: str, digits: int) -> str:
    error = row[f"{name}_sd"]
    text = _plain(row[name], digits)
    return text if text == "–" or np.isnan(error) else f"{text} ± {error:.{digits}f}"


def _plain(value: float, digits: int) -> str:
    return "–" if np.isnan(value) else f"{value:.{digits}f}"


ITEM = causal_discovery_item()
