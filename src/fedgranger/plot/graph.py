"""The causal graph: clients on a circle, an arrow from cause to effect for every edge."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from fedgranger.inference.answer import count_edges, counts_text
from fedgranger.plot.canvas import axes_size, choose_axes, decided_edges, set_legend, supported
from fedgranger.plot.circle import bend, client_angles, name_lines, place_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedgranger.results import Result

NARROWEST = 0.7
ROOMY = 110.0
"""Radius in points from which on arrows have their full width."""
CONFIDENCE = ((0.001, "#08306b"), (0.01, "#2b7bba"), (0.05, "#82b8dc"), (1.0, "#b9b9b9"))
"""Upper ends of the bins of q, and colours from dark to light: ordered for every eye."""


class _Arrow(NamedTuple):
    cause: int
    effect: int
    width: float
    colour: str


def graph(
    result: Result,
    *,
    alpha: float | None = None,
    correction: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the clients on a circle and an arrow from cause to effect for every supported edge.

    The wider an arrow, the stronger the edge; the darker, the more certain (bins of the adjusted
    p-value q). Where both directions of a pair are supported, each arrow bends to its right, so
    the two lie apart. Where nothing was tested no arrow is drawn.

    Args:
        result: of a fit.
        alpha: level at which an edge counts as supported; default the run's own.
        correction: for testing many edges (bh, by, holm, none); default the run's own.
        ax: where to draw; default a new figure.
    """
    table = decided_edges(result, alpha=alpha, correction=correction)
    drawn = table.loc[supported(table)]
    ax = choose_axes(ax, *_figure_size(result.clients))
    ax.set_axis_off()
    level = result.config.alpha if alpha is None else alpha
    ax.set_title(counts_text(count_edges(table), f"at q ≤ {level:g}"), fontsize=10, pad=9)
    arrows = _arrows(drawn, result.clients)
    _legend(ax, drawn, arrows)
    angles = client_angles(len(result.clients))
    radius = place_names(ax, result.clients, angles)
    _draw(ax, arrows, angles, size=min(1.0, radius / ROOMY))
    return ax


def _figure_size(clients: tuple[str, ...]) -> tuple[float, float]:
    """Inches: a square, wider for long names, flat for two clients."""
    side = min(4.6 + 0.06 * len(clients), 8.5)
    longest = max(len(line) for name in clients for line in name_lines(name).split("\n"))
    return side + 0.1 * max(longest - 8, 0), 2.2 if len(clients) == 2 else side


def _arrows(drawn: pd.DataFrame, clients: tuple[str, ...]) -> list[_Arrow]:
    """From the weakest to the strongest, which thus lies on top."""
    place = {name: index for index, name in enumerate(clients)}
    widest = 4.0 if len(clients) <= 12 else 3.0 if len(clients) <= 32 else 2.2
    strength = np.nan_to_num(drawn["strength"].to_numpy(dtype=float))
    shares = strength / max(strength.max(initial=0.0), 1e-300)
    colours = [next(colour for end, colour in CONFIDENCE if q <= end) for q in drawn["q_value"]]
    return [
        _Arrow(
            place[drawn["cause"].iloc[row]],
            place[drawn["effect"].iloc[row]],
            max(NARROWEST, widest * float(shares[row])),
            colours[row],
        )
        for row in np.argsort(shares, kind="stable")
    ]


def _draw(ax: Axes, arrows: list[_Arrow], angles: np.ndarray, *, size: float) -> None:
    """Draw arrows and clients; in small axes everything is smaller by the factor `size`."""
    from matplotlib.patches import FancyArrowPatch

    x, y = np.cos(angles), np.sin(angles)
    radius = size * (3.5 if len(x) <= 32 else 2.5)
    drawn = {(arrow.cause, arrow.effect) for arrow in arrows}
    for rank, (cause, effect, width, colour) in enumerate(arrows):
        turn = bend(cause, effect, len(x), has_opposite=(effect, cause) in drawn)
        patch = FancyArrowPatch(
            (x[cause], y[cause]),
            (x[effect], y[effect]),
            connectionstyle=f"arc3,rad={turn:.4f}",
            arrowstyle="-|>,head_length=0.9,head_width=0.38",
            mutation_scale=size * (5 + 1.9 * width),
            shrinkA=radius + size,
            shrinkB=radius + size,
            lw=size * width,
            color=colour,
            capstyle="butt",
            joinstyle="miter",
            in_layout=False,
            zorder=2 + rank / (1 + len(arrows)),
        )
        ax.add_patch(patch)
    ax.plot(x, y, "o", ms=2 * radius, color="black", zorder=4)


def _legend(ax: Axes, drawn: pd.DataFrame, arrows: list[_Arrow]) -> None:
    from matplotlib.lines import Line2D

    if not arrows:
        return
    handles = []
    used = {arrow.colour for arrow in arrows}
    ends = [0.0, *(end for end, _ in CONFIDENCE)]
    for low, (high, colour) in zip(ends, CONFIDENCE, strict=False):
        if colour in used:
            label = f"q ≤ {high:g}" if high < 1 else f"q > {low:g}"
            handles.append(Line2D([], [], color=colour, lw=3, label=label))
    widest = max(arrow.width for arrow in arrows)
    label = f"strength {drawn['strength'].max():.3g}"
    handles.append(Line2D([], [], color="black", lw=widest, label=label))
    set_legend(
        ax,
        handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=len(handles),
        fontsize=8.5 if axes_size(ax)[0] > 75 * len(handles) else 6,
        handlelength=1.4,
        columnspacing=1.2,
    )
