"""Forest plot: the strength of every edge, or the entries of one block, with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fedgranger.errors import ConfigError, RunError
from fedgranger.inference.answer import nothing_tested
from fedgranger.option_fields import check_choice
from fedgranger.plot.canvas import (
    BLUE,
    GREY,
    PLAIN,
    check_count,
    choose_axes,
    decided_edges,
    set_legend,
    supported,
    tidy,
)
from fedgranger.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedgranger.results import Result

SORTS = {"certainty": "most certain", "strength": "strongest", "clients": "first"}
WIDE = 50.0
"""From this ratio of the largest to the smallest strength on, the axis is logarithmic."""


class _Lines(NamedTuple):
    """Rows of the picture from top to bottom, and what to call them."""

    names: list[str]
    centre: np.ndarray
    low: np.ndarray
    high: np.ndarray
    is_filled: np.ndarray
    title: str
    quantity: str
    filled: str
    hollow: str


def forest(
    result: Result,
    *,
    max_edges: int = 40,
    sort: str = "certainty",
    entries: tuple[str, str] | None = None,
    alpha: float | None = None,
    correction: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the strength of the edges with their intervals, one line per edge.

    A filled marker is an edge that the tests support, a hollow one is not; a line is the interval
    at the run's confidence, for that edge alone (the decision accounts for all tests, so a hollow
    marker may have an interval clear of zero). The axis is logarithmic when strengths differ much;
    an interval that reaches zero then ends in an arrow at the left border. Where nothing was tested
    there is nothing to draw.

    With `entries`, the entries of one block are drawn instead: entry (row, col) is the influence
    of the cause's state `col` on the effect's state `row`, as in `result.entries()`. A filled
    marker then says that the interval excludes zero; there is no correction for many entries.

    Args:
        result: of a fit.
        max_edges: most lines drawn, the first ones in the order of `sort`.
        sort: `certainty` (smallest p-value first), `strength`, or `clients` (as in the table).
        entries: (cause, effect) of the block to look into.
        alpha: level at which an edge counts as supported; default the run's own.
        correction: for testing many edges (bh, by, holm, none); default the run's own.
        ax: where to draw; default a new figure.
    """
    check_choice("sort", sort, tuple(SORTS))
    check_count("max_edges", max_edges)
    table = decided_edges(result, alpha=alpha, correction=correction)
    if len(table) and result.inference is None:
        raise RunError(f"nothing was tested: {nothing_tested(result.manifest.inference)}")
    is_block = entries is not None
    lines = _entry_lines(result, entries) if is_block else _edge_lines(table, max_edges, sort)
    if not lines.names:
        raise RunError("this run has no pairs of clients; a forest plot needs at least two clients")
    ax = choose_axes(ax, 6.4, 1.3 + 0.24 * len(lines.names))
    _draw(ax, lines, is_log=not is_block and _is_wide(lines))
    has_intervals = bool(np.isfinite(lines.low).any())
    interval = f", {100 * result.config.confidence:g} % interval" if has_intervals else ""
    ax.set_xlabel(f"{lines.quantity}{interval}")
    ax.set_title(lines.title, fontsize=10, pad=22 if has_intervals else None, **PLAIN)
    if is_block:
        ax.axvline(0.0, color=GREY, lw=0.8, zorder=1)
    if has_intervals:
        _legend(ax, lines)
    return ax


def _edge_lines(table: pd.DataFrame, max_edges: int, sort: str) -> _Lines:
    total = len(table)
    if sort == "certainty":
        order = ["p_value", "strength"]
        table = table.sort_values(order, ascending=[True, False], kind="stable")
    elif sort == "strength":
        table = table.sort_values("strength", ascending=False, kind="stable")
    table = table.head(max_edges)
    pairs = zip(table["cause"], table["effect"], strict=True)
    names = [f"{shorten(cause, 20)} → {shorten(effect, 20)}" for cause, effect in pairs]
    centre, low, high = _numbers(table, "strength", "ci_low", "ci_high")
    title = f"the {len(names)} {SORTS[sort]} of {total} pairs" if len(names) < total else ""
    words = title, "strength", "supported edge", "not supported"
    return _Lines(names, centre, low, high, supported(table), *words)


def _entry_lines(result: Result, pair: tuple[str, str]) -> _Lines:
    if isinstance(pair, str) or len(pair) != 2:
        raise ConfigError(f"entries is {pair!r}; give two names, (cause, effect)")
    cause, effect = pair
    for name in pair:
        if name not in result.clients:
            raise RunError(f"no client {name!r}; the run has {', '.join(result.clients)}")
    if cause == effect:
        raise RunError(f"entries names {cause!r} twice; give two different clients")
    table = result.entries()
    block = table.loc[(table["cause"] == cause) & (table["effect"] == effect)]
    names = [f"({row}, {col})" for row, col in zip(block["row"], block["col"], strict=True)]
    centre, low, high = _numbers(block, "estimate", "ci_low", "ci_high")
    title = f"{shorten(cause)} → {shorten(effect)}"
    words = title, "entry (row, col) of the block", "interval excludes 0", "interval holds 0"
    return _Lines(names, centre, low, high, (low > 0) | (high < 0), *words)


def _numbers(table: pd.DataFrame, *names: str) -> list[np.ndarray]:
    return [table[name].to_numpy(dtype=float, na_value=np.nan) for name in names]


def _is_wide(lines: _Lines) -> bool:
    ends = np.concatenate([lines.centre, lines.low, lines.high])
    ends = ends[np.isfinite(ends) & (ends > 0)]
    return len(ends) > 0 and bool(ends.max() > WIDE * ends.min())


def _draw(ax: Axes, lines: _Lines, *, is_log: bool) -> None:
    y = np.arange(len(lines.names))
    low, border = lines.low, None
    if is_log:
        ends = np.concatenate([lines.centre, lines.low])
        border = 0.6 * float(ends[np.isfinite(ends) & (ends > 0)].min())
        low = np.where(low > 0, low, np.where(np.isnan(low), np.nan, border))
        ax.set_xscale("log")
    known = np.isfinite(low) & np.isfinite(lines.high)
    ax.hlines(y[known], low[known], lines.high[known], color=BLUE, lw=1.4, zorder=2)
    if border is not None:
        ax.set_xlim(left=border)
        cut = known & (lines.low <= 0)
        ax.plot(np.full(cut.sum(), border), y[cut], "<", color=BLUE, ms=4, clip_on=False)
    style: dict[str, Any] = {"ls": "", "marker": "o", "ms": 5.5, "mec": BLUE, "zorder": 3}
    shown = lines.centre > 0 if is_log else np.isfinite(lines.centre)
    for chosen, fill in ((lines.is_filled & shown, BLUE), (~lines.is_filled & shown, "white")):
        ax.plot(lines.centre[chosen], y[chosen], mfc=fill, **style)
    ax.set_yticks(y, lines.names, fontsize=8.5, **PLAIN)
    ax.set_ylim(len(y) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0, pad=7)
    if not is_log and np.nanmin(np.concatenate([lines.centre, low])) >= 0:
        ax.set_xlim(left=0.0)
    tidy(ax, grid="x")


def _legend(ax: Axes, lines: _Lines) -> None:
    from matplotlib.lines import Line2D

    style: dict[str, Any] = {"ls": "-", "lw": 1.4, "color": BLUE, "marker": "o", "ms": 5.5}
    handles = []
    if lines.is_filled.any():
        handles.append(Line2D([], [], mfc=BLUE, mec=BLUE, label=lines.filled, **style))
    if not lines.is_filled.all():
        handles.append(Line2D([], [], mfc="white", mec=BLUE, label=lines.hollow, **style))
    set_legend(ax, handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
