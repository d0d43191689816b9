"""Where does each method break? One thing at a time departs from the paper's setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedgranger_research.baselines.method_trials import summarise_trials
from fedgranger_research.baselines.problems import Scenario
from fedgranger_research.reproduction.control_settings import KINDS, ControlSetting, Recordings
from fedgranger_research.reproduction.method_settings import MethodSetting
from fedgranger_research.reproduction.pictures import colours, pyplot, save
from fedgranger_research.reproduction.runner import Item

TITLE = "where each method breaks: one thing at a time departs from the paper's setting"
METHODS = ("fedgc", "asymptotic", "debiased", "auto", "var", "granger-pairs")
AXES: Mapping[str, tuple[Any, ...]] = {
    "num_steps": (250, 500, 1000, 2000, 4000, 8000),
    "num_clients": (3, 6, 12, 20),
    "sensor_dim": (2, 4, 8, 16, 32),
    "measurement_var": (0.01, 0.1, 1.0, 10.0),
    "edge_share": (0.0, 0.1, 0.3, 0.6),
    "strength": (0.125, 0.25, 0.5, 1.0, 2.0),
    "process_correlation": (0.0, 0.25, 0.5, 0.9),
    "student_df": (None, 8.0, 4.0, 2.5),
    "missing_share": (0.0, 0.05, 0.1, 0.2),
    "latent_driver": (False, True),
    "response": ("linear", "tanh", "cosine"),
}
"""Per field of `Scenario` its values; the one of the paper's setting is among them."""
LEVEL = "clients"
RECORDED = ControlSetting.axis
PER_LINE = 4
SHOWN = {"f1": "F1, client edges", "size": "absent edges reported"}


def grid_item(
    num_seeds: int = 5,
    methods: Sequence[str] = METHODS,
    axes: Sequence[str] = tuple(AXES),
    recordings: Recordings | None = None,
    added: Path | None = None,
) -> Item:
    """The grid over so many data sets per cell; `axes` are names in `AXES`."""
    chosen = partial(
        settings,
        num_seeds=num_seeds,
        methods=tuple(methods),
        axes=tuple(axes),
        recordings=recordings,
        added=added,
    )
    return Item("grid", TITLE, chosen, partial(collect, chosen), markdown, draw)


def settings(
    *,
    quick: bool = False,
    num_seeds: int = 5,
    methods: Sequence[str] = METHODS,
    axes: Sequence[str] = tuple(AXES),
    recordings: Recordings | None = None,
    added: Path | None = None,
) -> list[MethodSetting | ControlSetting]:
    """One per method, cell and seed."""
    base = Scenario(num_steps=300) if quick else Scenario()
    seeds = range(2 if quick else num_seeds)
    found: list[MethodSetting | ControlSetting] = [
        MethodSetting(name, replace(base, **{axis: value}), seed, axis, _shown(value), added)
        for seed in seeds
        for axis in axes
        for value in (AXES[axis][:2] if quick else AXES[axis])
        for name in methods
    ]
    if recordings is not None:
        found += [
            ControlSetting(name, recordings, kind, seed, added)
            for seed in seeds
            for kind in KINDS
            for name in methods
        ]
    return found


def collect(chosen: Any, tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """Mean and s.d. per axis, value and method, edges between clients."""
    rows = [
        table.assign(axis=setting.axis, value=setting.value)
        for setting, table in zip(chosen(quick=quick), tables, strict=True)
    ]
    trials = pd.concat(rows, ignore_index=True)
    trials = trials.loc[trials["level"] == LEVEL]
    return summarise_trials(trials, ["axis", "value", "method", "mode"])


def markdown(table: pd.DataFrame) -> str:
    """Per axis: F1 and, in brackets, the share of absent edges that a method reports."""
    out = []
    recorded = table.loc[table["axis"] == RECORDED]
    for axis, rows in table.loc[table["axis"] != RECORDED].groupby("axis", sort=False):
        values = list(dict.fromkeys(rows["value"]))
        out.append(f"| {axis} | " + " | ".join(values) + " |")
        out.append("|---" * (len(values) + 1) + "|")
        for method, own in rows.groupby("method", sort=False):
            by_value = own.set_index("value")
            out.append(f"| {method} | " + " | ".join(_cell(by_value, v) for v in values) + " |")
        out.append("")
    if len(recorded):
        out += _recorded(recorded)
    if len(recorded) == len(table):
        return "\n".join(out)
    out.append(
        "F1 of the edges between clients, in brackets the share of absent edges that were "
        "reported; – where there is none or the method refused. Everything else is as in the "
        "paper's setting."
    )
    return "\n".join(out)


def draw(folder: Path, table: pd.DataFrame) -> None:
    """Per axis F1 above, false edges below; a few axes side by side."""
    plt = pyplot()
    axes = list(dict.fromkeys(table["axis"]))
    methods = list(dict.fromkeys(table["method"]))
    palette = dict(zip(methods, colours(len(methods)), strict=True))
    columns = min(PER_LINE, len(axes))
    lines = -(-len(axes) // columns)
    figure, grid = plt.subplots(
        2 * lines,
        columns,
        figsize=(2.6 * columns + 1.4, 3.8 * lines + 0.4),
        squeeze=False,
        layout="constrained",
    )
    for place in grid.flat[:]:
        place.set_visible(False)
    for k, axis in enumerate(axes):
        rows = table.loc[table["axis"] == axis]
        values = list(dict.fromkeys(rows["value"]))
        for below, (measure, words) in enumerate(SHOWN.items()):
            place = grid[2 * (k // columns) + below, k % columns]
            place.set_visible(True)
            for method in methods:
                own = rows.loc[rows["method"] == method].set_index("value")
                y = [own[measure].get(value, np.nan) for value in values]
                place.plot(range(len(values)), y, "o-", color=palette[method], label=method)
            place.set_xticks(range(len(values)), values if below else [])
            place.set_ylim(-0.04, 1.04)
            if k % columns == 0:
                place.set_ylabel(words)
            if below:
                place.axhline(0.05, color="black", lw=0.8, ls=":")
            else:
                place.set_title(axis.replace("_", " "))
    grid[0, columns - 1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    save(figure, folder, "grid")


def _recorded(rows: pd.DataFrame) -> list[str]:
    """False edges first: on a panel without a true edge F1 says little."""
    kinds = list(KINDS.values())
    out = ["| recordings | " + " | ".join(kinds) + " | added edge found |"]
    out.append("|---" * (len(kinds) + 2) + "|")
    for method, own in rows.groupby("method", sort=False):
        by_kind: dict[Any, dict[Any, Any]] = own.set_index("value").to_dict("index")
        cells = [_false_edges(by_kind[kind]) for kind in kinds]
        added = by_kind[KINDS["added"]]
        made = int(added["data_sets"] - added["refused"])
        found = f"{round(added['power'] * made)} of {made}" if made else "–"
        out.append(f"| {method} | " + " | ".join([*cells, found]) + " |")
    out.append("")
    out.append(
        f"Share of the absent edges between clients that were reported, {rows['data_sets'].max()} "
        "panels of each kind, and how many of the added edges were found; – where the method "
        "refused all panels."
    )
    return out


def _false_edges(row: Mapping[Any, Any]) -> str:
    refused = int(row["refused"])
    if refused == row["data_sets"]:
        return "–"
    return f"{row['size']:.2f}" + (f" ({refused} refused)" if refused else "")


def _cell(rows: pd.DataFrame, value: str) -> str:
    here = rows.loc[rows.index == value]
    f1, size = (float(np.asarray(here[name])[0]) for name in ("f1", "size"))
    first = "–" if np.isnan(f1) else f"{f1:.2f}"
    return first if np.isnan(size) else f"{first} ({size:.2f})"


def _shown(value: Any) -> str:
    words = {None: "Gaussian", False: "no", True: "yes"}
    return words[value] if value is None or isinstance(value, bool) else f"{value}"
