"""Edges over time: strength of some edges along the record, with bands that hold all along it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedgranger.plot.canvas import (
    check_count,
    check_result,
    choose_axes,
    first_edges,
    set_legend,
    supported,
    tidy,
)
from fedgranger.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedgranger.results import Result


def bands(
    result: Result,
    *,
    cause: str | None = None,
    effect: str | None = None,
    max_edges: int = 4,
    ax: Axes | None = None,
) -> Axes:
    """Draw the strength of edges over the stretches of the record.

    A filled marker is a stretch in which the tests support the edge, a hollow one is not. The band
    covers an edge's strength in all stretches together at the run's confidence; where it touches
    zero, the stretch is also compatible with no influence.

    Args:
        result: of a fit with `time_windows`.
        cause: only edges from this client.
        effect: only edges to this client.
        max_edges: most edges drawn, the most certain ones.
        ax: where to draw; default a new figure.
    """
    check_count("max_edges", max_edges)
    check_result(result)
    table = result.edges_over_time(cause, effect)
    smallest: dict[tuple[str, str], float] = {}
    for one, other, p in zip(table["cause"], table["effect"], table["p_value"], strict=True):
        smallest[one, other] = float(np.nanmin([p, smallest.get((one, other), np.inf)]))
    pairs = sorted(smallest, key=lambda pair: smallest[pair])
    ax = choose_axes(ax, 6.4, 3.6)
    for (one, other), colour in first_edges(ax, pairs, max_edges):
        own = table.loc[(table["cause"] == one) & (table["effect"] == other)]
        _draw(ax, own, f"{shorten(one, 20)} → {shorten(other, 20)}", colour)
    ax.set_ylim(bottom=0)
    ax.set_ylabel(f"strength, {100 * result.config.confidence:g} % band")
    ax.set_xlabel("middle of the stretch")
    tidy(ax, grid="y")
    set_legend(ax, ax.get_lines())
    return ax


def _draw(ax: Axes, own: pd.DataFrame, label: str, colour: str) -> None:
    time = middle_times(own)
    strength, low, high = (
        own[name].to_numpy(dtype=np.float64) for name in ("strength", "ci_low", "ci_high")
    )
    ax.fill_between(time, low, high, color=colour, alpha=0.18, lw=0)
    ax.plot(time, strength, color=colour, lw=1.6, marker="", label=label)
    is_edge = supported(own)
    ax.scatter(time[is_edge], strength[is_edge], color=colour, s=26, zorder=3)
    hollow = ~is_edge & np.isfinite(strength)
    ax.scatter(
        time[hollow], strength[hollow], facecolors="white", edgecolors=colour, s=26, zorder=3
    )


def middle_times(own: pd.DataFrame) -> np.ndarray:
    """Middles of the stretches: time stamps where the run has them, else numbers."""
    sides = [[str(text).removeprefix("step ") for text in own[name]] for name in ("start", "end")]
    try:
        start, end = (np.array([float(text) for text in side]) for side in sides)
    except ValueError:
        start, end = (np.array(side, dtype="datetime64[s]") for side in sides)
    return start + (end - start) / 2
