"""Trace of Cov(Â21) at the end of training, for more sensors and for more clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from fedgranger.data.linear_system import client_names
from fedgranger_research.reproduction.levels import column, number, rows_where, share
from fedgranger_research.reproduction.pictures import colours, pyplot, save, scientific
from fedgranger_research.reproduction.regimes import Regime
from fedgranger_research.reproduction.runner import Item

TITLE = "trace of Cov(Â21) at the end of training for d = 16…128 and M = 2…16, prior 1e-6…1"
PRIORS = (1e-6, 1e-4, 1e-2, 1.0)
SIZES = {"sensor_dim": (16, 32, 64, 128), "num_clients": (2, 4, 8, 16)}
LETTERS = {"sensor_dim": "d", "num_clients": "M"}
AXIS_TITLES = {"sensor_dim": "sensors per client $d$", "num_clients": "clients $M$"}
PAPER_TRACES = {
    "sensor_dim": {
        1e-6: (1e-9, 1e-5, 1e-7, 1e-7),
        1e-4: (1e-8, 1e-5, 1e-7, 1e-7),
        1e-2: (1.0e-4, 4.0e-4, 1.0e-4, 1e-5),
        1.0: (1.6722, 1.9733, 2.4601, 1.5882),
    },
    "num_clients": {
        1e-6: (1e-5, 1e-5, 1e-5, 1e-6),
        1e-4: (1e-5, 1e-5, 1e-5, 1e-6),
        1e-2: (0.0001, 0.0002, 0.0002, 0.0),
        1.0: (1.7233, 1.6456, 2.5835, 4.7),
    },
}
"""As printed; powers of ten alone are orders of magnitude there."""


def settings(*, quick: bool = False) -> list[Regime]:
    """What has to be propagated: automatic step sizes, so that every size is equally stable."""
    return [regime for _, _, _, regime in _grid(quick=quick)]


def collect(tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """One row per size and prior.

    Columns: axis, size, granger_prior_var, trace, prior_share, rounds, server_time_constants and
    time_constants (rounds trained, in time constants of Â and of the slowest direction of the
    row), paper_trace, paper_decay (time constants after which a prior that only decays would be
    at the paper's trace; NaN if that is zero or above the start).
    """
    rows = []
    for (axis, size, prior, regime), table in zip(_grid(quick=quick), tables, strict=True):
        effect, cause = client_names(regime.num_clients)[1::-1]
        own = rows_where(table, table["client"] == effect)
        of_pair = (own["quantity"] == "granger_cov") & (own["cause"] == cause)
        curve = rows_where(own, of_pair).sort_values(by="round")
        marks, trace, part = (column(curve, name) for name in ("round", "total", "prior"))
        constants = {
            name: float(column(rows_where(own, own["quantity"] == name), "total")[0])
            for name in ("server_time_constant", "time_constant")
        }
        printed = PAPER_TRACES[axis][prior][SIZES[axis].index(size)]
        rounds = int(marks[-1])
        rows.append(
            {
                "axis": axis,
                "size": size,
                "granger_prior_var": prior,
                "trace": float(trace[-1]),
                "prior_share": max(float(part[-1] / trace[-1]), 0.0),
                "rounds": rounds,
                "server_time_constants": rounds / constants["server_time_constant"],
                "time_constants": rounds / constants["time_constant"],
                "paper_trace": printed,
                "paper_decay": _decay(printed, float(trace[0])),
            }
        )
    return pd.DataFrame(rows)


def _axes(table: pd.DataFrame) -> list[tuple[str, str]]:
    """What was varied, with its letter."""
    found = column(table, "axis")
    return [(axis, letter) for axis, letter in LETTERS.items() if (found == axis).any()]


def _decay(trace: float, start: float) -> float:
    r"""Time constants τ after which \(\text{start}\, e^{-2t/\tau}\) is at `trace`, or NaN."""
    return 0.5 * float(np.log(start / trace)) if 0 < trace <= start else float("nan")


def markdown(table: pd.DataFrame) -> str:
    """The two tables, ours with the share that is prior, the paper's figure in brackets."""
    out = []
    columns = ["trace", "prior_share", "paper_trace"]
    for axis, letter in _axes(table):
        own = rows_where(table, table["axis"] == axis).sort_values(by="size")
        sizes = np.unique(column(own, "size"))
        out.append("| prior Σ_A⁰ | " + " | ".join(f"{letter} = {size}" for size in sizes) + " |")
        out.append("|---" * (len(sizes) + 1) + "|")
        priors = column(own, "granger_prior_var")
        for prior in np.unique(priors):
            row = rows_where(own, priors == prior)
            cells = [
                f"{number(ours)}, {share(part)} prior [{number(printed)}]"
                for ours, part, printed in row[columns].to_numpy()
            ]
            out.append(f"| {prior:g} | " + " | ".join(cells) + " |")
        times = own.drop_duplicates("size")[["server_time_constants", "time_constants"]]
        cells = [f"{number(server)} / {number(slowest)}" for server, slowest in times.to_numpy()]
        out.append("| time constants of Â / of (θ, Â) | " + " | ".join(cells) + " |")
        out.append("")
    out.append("Ours, how much of it is prior, in brackets what the paper prints.")
    return "\n".join(out)


def draw(folder: Path, table: pd.DataFrame) -> None:
    """Draw one panel per axis, one colour per prior; the paper's values are hollow and dashed."""
    plt = pyplot()
    from matplotlib.lines import Line2D

    names = [name for name in AXIS_TITLES if (np.asarray(table["axis"]) == name).any()]
    figure, grid = plt.subplots(
        1,
        len(names),
        figsize=(3.5 * len(names) + 1.4, 3.6),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    axes = grid[0]
    priors = np.unique(np.asarray(table["granger_prior_var"]))
    palette = colours(len(priors))
    for axis, name in zip(axes, names, strict=True):
        for k, (prior, colour) in enumerate(zip(priors, palette, strict=True)):
            rows = (table["axis"] == name) & (table["granger_prior_var"] == prior)
            own = rows_where(table, rows).sort_values(by="size")
            axis.plot(
                own["size"], own["trace"], "o-", color=colour, lw=2.6 - 0.5 * k, ms=8 - 1.5 * k
            )
            printed = rows_where(own, own["paper_trace"] > 0)
            axis.plot(
                printed["size"], printed["paper_trace"], "s--", color=colour, lw=1, mfc="white"
            )
        axis.set_xscale("log", base=2)
        axis.set_xticks(np.unique(np.asarray(rows_where(table, table["axis"] == name)["size"])))
        axis.xaxis.set_major_formatter("{x:.0f}")
        axis.minorticks_off()
        axis.set_yscale("log")
        axis.set_xlabel(AXIS_TITLES[name])
    axes[0].set_ylabel(r"tr Cov$(\hat A_{21})$ at the end")
    handles = [
        Line2D([], [], color=colour, lw=2, label=scientific(prior))
        for prior, colour in zip(priors, palette, strict=True)
    ]
    handles.append(Line2D([], [], color="black", marker="o", label="here"))
    handles.append(Line2D([], [], color="black", ls="--", marker="s", mfc="white", label="paper"))
    axes[-1].legend(
        handles=handles,
        title=r"prior $\Sigma_A^0$",
        loc="center left",
        bbox_to_anchor=(1.02, 0.5),
        alignment="left",
    )
    save(figure, folder, "scalability")


def _grid(*, quick: bool) -> list[tuple[str, int, float, Regime]]:
    base = Regime(num_rounds=2001, num_checkpoints=40, step_sizes=None)
    if quick:
        base = replace(base, num_rounds=201, num_checkpoints=8)
    grid = []
    for axis, sizes in SIZES.items():
        if quick and axis == "sensor_dim":
            continue  # two clients with eight sensors are what the figures have compiled
        for size in sizes[:1] if quick else sizes:
            for prior in PRIORS[::3] if quick else PRIORS:
                level = "joint" if axis == "sensor_dim" or size == 2 else "blockwise"
                values = {axis: size, "granger_prior_var": prior, "level": level}
                grid.append((axis, size, prior, replace(base, **values)))
    return grid


ITEM = Item("scalability", TITLE, settings, collect, markdown, draw)
