"""HAI under stress: a column per block of Â, three rows per sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedgranger_research.reproduction.drawings.canvas import (
    GREY,
    colours,
    pyplot,
    rows_where,
    save,
    scientific,
)
from fedgranger_research.reproduction.drawings.curves import SWEEP_TITLES

__all__ = ["draw_hai_stress"]

CLIENTS = ("P1", "P2", "P3")
DASHES = (0, (4, 2))
ROOM_BELOW = {"prior": 0.1, "single_run": 0.6}


def draw_hai_stress(folder: Path, table: pd.DataFrame) -> None:
    """Draw tr Σ_A and the error per block and tr Σ_θ per client; rows share their axis."""
    plt = pyplot()
    figure = plt.figure(figsize=(12.4, 11.4), layout="constrained")
    figure.get_layout_engine().set(hspace=0.03, wspace=0.02)
    parts = figure.subfigures(2, 1)
    for part, (sweep, title) in zip(parts, list(SWEEP_TITLES.items())[:2], strict=True):
        own = rows_where(table, table["sweep"] == sweep)
        grid = part.add_gridspec(3, 6)
        pairs = [(m, n) for m in CLIENTS for n in CLIENTS if n != m]
        blocks = [(m, n, f"{m[1:]}{n[1:]}") for m, n in pairs]
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
