"""Uncertainty of the server's Jacobian along neural training, for several Σ_y and Σ_W."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedgranger_research.reproduction.levels import column, number, rows_where
from fedgranger_research.reproduction.nonlinear_regime import NUM_CLIENTS, NeuralRegime
from fedgranger_research.reproduction.pictures import colours, pyplot, save, scientific
from fedgranger_research.reproduction.runner import Item

NAME = "nonlinear"
TITLE = "trace of the Jacobian's covariance along neural training for several Σ_y and Σ_W"
SWEEPS: dict[str, tuple[float, float, float]] = {
    "noise_var": (1e-2, 1e-1, 1.0),
    "weight_var": (1e-4, 1e-2, 1.0),
}
"""Σ_y per sensor, whose recorded variance is 1, and Σ_W per first weight of a network."""
SYMBOLS = {"noise_var": "Σ_y", "weight_var": "Σ_W"}
TITLES = {"noise_var": r"noise $\Sigma_y$", "weight_var": r"noise $\Sigma_W$ on weights"}
NO_HAI = (
    "HAI is left out: it needs --data, a folder with the subfolder hai ('fedgranger datasets info "
    "hai' says where to get it)."
)
ABOUT = (
    "tr Cov(J) over the members of an ensemble, summed over all blocks between clients and "
    "averaged over the time steps of one round: before training → after the last pass. Strengths "
    "are norms of the mean Jacobian at the smallest Σ_y: of the weakest true link and of the "
    "strongest pair without one."
)


def nonlinear_item(folder: Path | None = None) -> Item:
    """The figure; with a folder whose subfolder `hai` holds HAI, also on its normal operation."""
    path = None if folder is None or not (folder / "hai").is_dir() else folder / "hai"
    settings, collect = partial(_settings, path), partial(_collect, path)
    return Item(NAME, TITLE, settings, collect, _markdown, draw)


def _grid(path: Path | None, *, quick: bool) -> list[tuple[str, float, NeuralRegime]]:
    """(what is swept, its value, setting); quick: extremes, one system, small networks."""
    records = [NeuralRegime(name) for name in NUM_CLIENTS]
    if path is not None:
        records.insert(0, NeuralRegime("hai", path))
    if quick:
        few = {"num_steps": 401, "num_members": 2, "passes": 2, "server_hidden_dim": 8}
        records = [replace(one, **few) for one in (*records[: path is not None], records[-1])]
    step = 2 if quick else 1
    return [
        (sweep, value, replace(record, **{sweep: value}))
        for record in records
        for sweep, values in SWEEPS.items()
        for value in values[::step]
    ]


def _settings(path: Path | None, *, quick: bool = False) -> list[NeuralRegime]:
    return [setting for _, _, setting in _grid(path, quick=quick)]


def _collect(path: Path | None, tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """All tables, with what was swept."""
    parts = [
        table.assign(record=setting.record, sweep=sweep, value=value)
        for (sweep, value, setting), table in zip(_grid(path, quick=quick), tables, strict=True)
    ]
    return pd.concat(parts, ignore_index=True)


def _totals(table: pd.DataFrame) -> pd.DataFrame:
    """Sum of the traces over all blocks."""
    by = ["record", "sweep", "value", "round"]
    return pd.DataFrame(table.groupby(by, sort=False)["trace"].sum()).reset_index()


def _markdown(table: pd.DataFrame) -> str:
    records = list(dict.fromkeys(table["record"]))
    totals, lines = _totals(table), []
    for sweep, symbol in SYMBOLS.items():
        values = np.unique(column(rows_where(totals, totals["sweep"] == sweep), "value"))
        header = " | ".join(f"{symbol} = {value:g}" for value in values)
        lines += [f"| tr Cov(J) | {header} |", "|---" * (len(values) + 1) + "|"]
        for record in records:
            cells = []
            for value in values:
                of_one = (totals["record"] == record) & (totals["sweep"] == sweep)
                curve = column(rows_where(totals, of_one & (totals["value"] == value)), "trace")
                cells.append(f"{number(float(curve[0]))} → {number(float(curve[-1]))}")
            lines.append(f"| {record} | {' | '.join(cells)} |")
        lines.append("")
    lines += ["| record | weakest true link | strongest other pair |", "|---|---|---|"]
    lines += [f"| {record} | {' | '.join(_strengths(table, record))} |" for record in records]
    return "\n".join([*lines, "", ABOUT, *([] if "hai" in records else [NO_HAI])])


def _strengths(table: pd.DataFrame, record: str) -> tuple[str, str]:
    own = rows_where(table, (table["record"] == record) & (table["sweep"] == "noise_var"))
    own = rows_where(own, own["value"] == own["value"].min())
    last = rows_where(own, own["round"] == own["round"].max())
    found, is_edge = column(last, "strength"), column(last, "is_edge")
    if (is_edge < 0).any():
        return "not known", number(float(found.max()))
    others = found[is_edge == 0]
    return (
        number(float(found[is_edge == 1].min())),
        number(float(others.max())) if len(others) else "every pair is a link",
    )


def draw(folder: Path, table: pd.DataFrame) -> None:
    """A row per record, a column per sweep."""
    plt, totals = pyplot(), _totals(table)
    records = list(dict.fromkeys(table["record"]))
    figure, axes = plt.subplots(
        len(records),
        2,
        figsize=(8.4, 2.3 * len(records) + 0.4),
        squeeze=False,
        layout="constrained",
    )
    for record, line in zip(records, axes, strict=True):
        for sweep, axis in zip(SWEEPS, line, strict=True):
            of_one = (totals["record"] == record) & (totals["sweep"] == sweep)
            _draw_panel(axis, rows_where(totals, of_one))
            axis.set_title(f"{record}: tr Cov$(J)$")
    for sweep, axis in zip(SWEEPS, axes[0], strict=True):
        axis.legend(title=TITLES[sweep], fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("round")
    save(figure, folder, NAME)


def _draw_panel(axis: Any, totals: pd.DataFrame) -> None:
    values = np.unique(column(totals, "value"))
    for value, colour in zip(values, colours(len(values)), strict=True):
        curve = rows_where(totals, totals["value"] == value)
        axis.plot(
            column(curve, "round"),
            np.maximum(column(curve, "trace"), 1e-16),
            color=colour,
            label=scientific(value),
        )
    axis.set_yscale("log")
    axis.margins(x=0.01)


ITEM = nonlinear_item()
