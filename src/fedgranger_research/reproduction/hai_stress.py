"""HAI under stress: a column per block of Â, three rows per sweep; `hai_regime` has one setting."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.errors import DataError
from fedgranger_research.reproduction.curves import SWEEP_TITLES
from fedgranger_research.reproduction.hai_regime import CLIENTS, HaiRegime
from fedgranger_research.reproduction.levels import (
    ABOUT_LEVELS,
    Curve,
    Fact,
    rows_where,
    sweep_table,
    with_single_run,
)
from fedgranger_research.reproduction.pictures import GREY, colours, pyplot, save, scientific
from fedgranger_research.reproduction.runner import Item

TITLE = "HAI, normal operation: traces of Σ_A and Σ_θ and the error of Â for several Σ_y and Σ_A⁰"
SWEEPS: dict[str, tuple[float, float, float]] = {
    "noise_var": (1e-2, 1e-1, 1.0),
    "granger_prior_var": (1e-4, 1e-2, 1.0),
}
"""Low, medium and high Σ_y (per sensor, whose recorded variance is 1) and Σ_A⁰ (per entry)."""
BLOCKS = tuple((effect, cause) for effect in CLIENTS for cause in CLIENTS if cause != effect)
QUANTITIES = (
    "granger_cov",
    "augmentation_cov",
    "granger_error",
    "granger_limit_error",
    "limit_error",
    "block_norm",
    "time_constant",
    "server_time_constant",
    "sensors",
    "self_radius",
)
FACTS = {
    "sensors": "live sensors of {}",
    "self_radius": "ρ(A_mm) of {}",
    "server_time_constant": "time constant of Â, {}, rounds",
    "time_constant": "slowest time constant of (θ, Â), {}, rounds",
}
DASHES = (0, (4, 2))
ROOM_BELOW = {"prior": 0.1, "single_run": 0.6}


def hai_stress_item(folder: Path) -> Item:
    """The figure for the data below a folder (its subfolder `hai`).

    Raises:
        DataError: there is none.
    """
    path = folder / "hai"
    if not path.is_dir():
        raise DataError(
            f"{folder}: has no subfolder hai; give --data a folder with one that holds the "
            "publisher's files ('fedgranger datasets info hai' says which)"
        )
    return Item("hai-stress", TITLE, partial(_settings, path), _collect, _markdown, draw)


def _swept(*, quick: bool) -> list[tuple[str, float]]:
    """Quick: the extremes."""
    step = 2 if quick else 1
    return [(name, value) for name, values in SWEEPS.items() for value in values[::step]]


def _settings(path: Path, *, quick: bool = False) -> list[HaiRegime]:
    base = HaiRegime(path, num_rounds=201, num_checkpoints=8) if quick else HaiRegime(path)
    return [replace(base, **{name: value}) for name, value in _swept(quick=quick)]


def _collect(tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """The numbers of the figure."""
    parts = []
    for (name, value), table in zip(_swept(quick=quick), tables, strict=True):
        chosen = rows_where(table, table["quantity"].isin(QUANTITIES))
        chosen.insert(0, "sweep", name)
        chosen.insert(1, "value", value)
        parts.append(chosen)
    return with_single_run(pd.concat(parts, ignore_index=True))


def _markdown(table: pd.DataFrame) -> str:
    curves = [
        *(Curve(f"tr Σ_A{_digits(*b)}", "", "granger_cov", *b) for b in BLOCKS),
        *(Curve(f"tr Σ_θ{m[1:]}", "", "augmentation_cov", m) for m in CLIENTS),
    ]
    for block in BLOCKS:
        label = f"‖E Â{_digits(*block)} − Â{_digits(*block)}°‖"
        curves.append(Curve(label, "", "granger_error", *block, "single_run"))
    facts = [
        *(Fact(f"‖Â{_digits(*b)}°‖", "block_norm", *b) for b in BLOCKS),
        *(Fact(f"‖Â{_digits(*b)}* − Â{_digits(*b)}°‖", "limit_error", *b) for b in BLOCKS),
        *(Fact(label.format(m), name, m) for name, label in FACTS.items() for m in CLIENTS),
    ]
    noise, prior = SWEEPS
    tables = [sweep_table(table, noise, curves, facts), sweep_table(table, prior, curves)]
    return "\n\n".join([*tables, ABOUT_LEVELS])


def _digits(effect: str, cause: str) -> str:
    return f"{effect[1:]}{cause[1:]}"


def draw(folder: Path, table: pd.DataFrame) -> None:
    """Draw tr Σ_A and the error per block and tr Σ_θ per client; rows share their axis."""
    plt = pyplot()
    figure = plt.figure(figsize=(12.4, 11.4), layout="constrained")
    figure.get_layout_engine().set(hspace=0.03, wspace=0.02)
    parts = figure.subfigures(2, 1)
    for part, (sweep, title) in zip(parts, list(SWEEP_TITLES.items())[:2], strict=True):
        own = rows_where(table, table["sweep"] == sweep)
        grid = part.add_gridspec(3, 6)
        blocks = [(m, n, _digits(m, n)) for m, n in BLOCKS]
        traces = [
            (grid[0, k], rf"tr $\Sigma_{{A_{{{ij}}}}}$", m, n)
            for k, (m, n, ij) in enumerate(blocks)
        ]
        thetas = [
            (grid[1, 2 * k : 2 * k + 2], rf"tr $\Sigma_{{\theta_{m[1:]}}}$", m, "")
            for k, m in enumerate(CLIENTS)
        ]
        errors = [
            (grid[2, k], rf"$\Vert E\hat A_{{{ij}}} - \hat A^\circ_{{{ij}}}\Vert_F$", m, n)
            for k, (m, n, ij) in enumerate(blocks)
        ]
        _draw_row(part, own, traces, "granger_cov", "prior")
        _draw_row(part, own, thetas, "augmentation_cov", "prior")
        last = _draw_row(part, own, errors, "granger_error", "single_run")
        norms = rows_where(own, own["quantity"] == "block_norm")
        for axis, (_, _, client, cause) in zip(last, errors, strict=True):
            norm = rows_where(norms, (norms["client"] == client) & (norms["cause"] == cause))
            axis.axhline(float(norm["total"].to_numpy()[0]), color=GREY, lw=1.2, ls=":")
            axis.set_xlabel("round")
        _legend(part, own, title)
    save(figure, folder, "hai-stress")


def _draw_row(
    part: Any,
    table: pd.DataFrame,
    panels: list[tuple[Any, str, str, str]],
    quantity: str,
    dashed: str,
) -> list[Any]:
    """Panels of one quantity on a common logarithmic axis; returns them."""
    rows = rows_where(table, table["quantity"] == quantity)
    axes: list[Any] = []
    for place, title, client, cause in panels:
        first = axes[0] if axes else None
        axis = part.add_subplot(place, sharex=first, sharey=first)
        own = rows_where(rows, (rows["client"] == client) & (rows["cause"] == cause))
        _draw_curves(axis, own, dashed)
        axis.set_title(title)
        axis.tick_params(labelleft=not axes, labelbottom=quantity != "granger_cov")
        axes.append(axis)
    total = rows["total"].to_numpy()
    largest = float(np.nanmax(rows[["total", dashed]].to_numpy()))
    axes[0].set_yscale("log")
    axes[0].set_ylim(ROOM_BELOW[dashed] * float(total[total > 0].min()), 1.8 * largest)
    for axis in axes:
        axis.minorticks_off()
        axis.margins(x=0.02)
    return axes


def _draw_curves(axis: Any, table: pd.DataFrame, dashed: str) -> None:
    values = np.unique(table["value"].to_numpy())
    for k, (value, colour) in enumerate(zip(values, colours(len(values)), strict=True)):
        line = rows_where(table, table["value"] == value).sort_values(by="round")
        x, part = line["round"].to_numpy(), line[dashed].to_numpy()
        axis.plot(x, line["total"].to_numpy(), color=colour, lw=2.2 - 0.7 * k)
        axis.plot(x, np.where(part > 0, part, np.nan), color=colour, lw=1.1, ls=DASHES)


def _legend(part: Any, table: pd.DataFrame, title: str) -> None:
    from matplotlib.lines import Line2D

    values = np.unique(table["value"].to_numpy())
    handles = [
        Line2D([], [], color=colour, lw=2, label=scientific(value))
        for value, colour in zip(values, colours(len(values)), strict=True)
    ]
    text = "dashed: part from the\nprior; in the errors\none run (rms)"
    handles.append(Line2D([], [], color="black", lw=1.1, ls=DASHES, label=text))
    norm = r"$\Vert\hat A^\circ\Vert_F$, the error" + "\n" + r"of $\hat A = 0$"
    handles.append(Line2D([], [], color=GREY, lw=1.2, ls=":", label=norm))
    part.legend(handles=handles, title=title, loc="outside center right", alignment="left")
