"""Grids of curves over rounds, one colour per regime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedgranger_research.reproduction.levels import Curve, rows_where, select
from fedgranger_research.reproduction.pictures import colours, pyplot, save, scientific

SWEEP_TITLES = {
    "noise_var": r"noise $\Sigma_y$",
    "granger_prior_var": r"prior $\Sigma_A^0$",
    "augmentation_prior_var": r"prior $\Sigma_\theta^0$",
}
SMALLEST = 1e-16
"""Below this a share of the prior is rounding."""


def draw_grid(
    folder: Path,
    name: str,
    table: pd.DataFrame,
    rows: Sequence[tuple[str, Sequence[Curve]]],
    *,
    dashed: str = "part from the prior",
) -> None:
    """Draw one row of panels per (sweep, curves), each row with its own legend on the right."""
    plt = pyplot()
    width = max(len(curves) for _, curves in rows)
    figure, axes = plt.subplots(
        len(rows),
        width,
        figsize=(3.1 * width + 1.3, 2.5 * len(rows) + 0.2),
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    figure.get_layout_engine().set(hspace=0.06, wspace=0.05)
    labelled: list[tuple[Any, str]] = []
    for (sweep, curves), line in zip(rows, axes, strict=True):
        own = rows_where(table, table["sweep"] == sweep)
        for axis, curve in zip(line, curves, strict=True):
            _draw_panel(axis, own, curve)
        if not labelled or sweep != labelled[-1][1]:
            labelled.append((line[-1], sweep))
    for axis, sweep in labelled:
        _legend(axis, table, sweep, has_dashes=_has_dashes(rows), dashed=dashed)
    for axis in axes[-1]:
        axis.set_xlabel("round")
    save(figure, folder, name)


def _draw_panel(axis: Any, table: pd.DataFrame, curve: Curve) -> None:
    own = select(table, curve.quantity, curve.client, curve.cause)
    values = np.unique(np.asarray(own["value"]))
    palette = colours(len(values))
    for k, (value, colour) in enumerate(zip(values, palette, strict=True)):
        line = rows_where(own, own["value"] == value).sort_values(by="round")
        x, y = np.asarray(line["round"]), _shown(line["total"], is_log=curve.is_log)
        axis.plot(x, y, color=colour, lw=2.6 - 1.6 * k / max(len(values) - 1, 1))
        if curve.dashed is not None:
            part = _shown(line[curve.dashed], is_log=curve.is_log)
            axis.plot(x, part, color=colour, lw=1.1, ls=(0, (4, 2)))
    if curve.is_log:
        axis.set_yscale("log")
        low, high = _limits(own, curve)
        axis.set_ylim(low, high)
        if high > 30 * low:  # labels at powers of ten are enough, and quick to draw
            axis.minorticks_off()
    axis.set_title(curve.title)
    axis.margins(x=0.01)


def _shown(values: Any, *, is_log: bool) -> np.ndarray:
    """Values, with gaps where a logarithmic axis has no place for them."""
    y = np.asarray(values)
    return np.where(y > SMALLEST, y, np.nan) if is_log else y


def _limits(table: pd.DataFrame, curve: Curve) -> tuple[float, float]:
    """Room for all solid lines, and for a decade of the prior's part below them."""
    total = np.asarray(table["total"])
    largest = np.nanmax(table[["total", curve.dashed or "total"]].to_numpy())
    below = 0.1 if curve.dashed == "prior" else 0.6
    return below * float(np.min(total[total > SMALLEST])), 1.8 * float(largest)


def _legend(axis: Any, table: pd.DataFrame, sweep: str, *, has_dashes: bool, dashed: str) -> None:
    from matplotlib.lines import Line2D

    values = np.unique(np.asarray(rows_where(table, table["sweep"] == sweep)["value"]))
    handles = [
        Line2D([], [], color=colour, lw=2, label=scientific(value))
        for value, colour in zip(values, colours(len(values)), strict=True)
    ]
    if has_dashes:
        handles.append(Line2D([], [], color="black", lw=1.1, ls=(0, (4, 2)), label=dashed))
    axis.legend(
        handles=handles,
        title=SWEEP_TITLES[sweep],
        loc="center left",
        bbox_to_anchor=(1.02, 0.5),
        alignment="left",
    )


def _has_dashes(rows: Sequence[tuple[str, Sequence[Curve]]]) -> bool:
    return any(curve.dashed is not None for _, curves in rows for curve in curves)
