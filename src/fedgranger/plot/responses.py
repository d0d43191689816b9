"""What edges do: the effect's change, step by step after the cause's, with its band."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedgranger.errors import RunError
from fedgranger.plot.canvas import (
    PLAIN,
    check_count,
    check_result,
    choose_axes,
    first_edges,
    set_legend,
    tidy,
)
from fedgranger.text import shorten, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedgranger.results import Result


def responses(
    result: Result,
    *,
    cause: str | None = None,
    effect: str | None = None,
    max_edges: int = 4,
    ax: Axes | None = None,
) -> Axes:
    """Draw how effects change after one unit more at the sensor that shows the cause best.

    The band bounds the change at each step at the run's confidence. Effects are in the units of
    their sensors, or in standard deviations of the states where no sensors are known; name an edge
    to see it alone where units differ.

    Args:
        result: of a fit that found edges.
        cause: only edges from this client.
        effect: only edges to this client.
        max_edges: most edges drawn, the most certain ones.
        ax: where to draw; default a new figure.
    """
    check_count("max_edges", max_edges)
    check_result(result)
    table = result.responses(cause, effect)
    if table.empty:
        raise RunError("no edge was found here, so there is no response to draw")
    found = dict(list(table.groupby(["cause", "effect"], sort=False)))
    order = result.edges(sort=True)[["cause", "effect"]].itertuples(index=False, name=None)
    pairs = [pair for pair in order if pair in found]
    ax = choose_axes(ax, 6.4, 3.6)
    units, lines = set(), []
    for pair, colour in first_edges(ax, pairs, max_edges):
        own = found[pair]
        sensors = [_known(own[f"{side}_sensor"].iloc[0]) for side in ("cause", "effect")]
        label = " → ".join(_side(*both) for both in zip(pair, sensors, strict=True))
        units.add(unit_of(sensors[1]))
        ax.fill_between(own["step"], own["low"], own["high"], color=colour, alpha=0.18, lw=0)
        lines += ax.plot(own["step"], own["change"], color=colour, lw=1.6, label=label)
    ax.axhline(0, color="0.5", lw=0.8)
    ax.set_xlim(0, float(np.max(table["step"])))
    ax.set_xlabel("steps after one unit more at the cause")
    unit = units.pop() if len(units) == 1 else ""
    kind = f"change [{unit}]" if unit else "change, each effect in its own unit"
    ax.set_ylabel(f"{kind}, {100 * result.config.confidence:g} % band", **PLAIN)
    tidy(ax, grid="y")
    set_legend(ax, lines)
    return ax


def _known(sensor: object) -> str:
    return sensor if isinstance(sensor, str) else ""


def _side(client: str, sensor: str) -> str:
    return shorten(f"{client}.{sensor}" if sensor else client, 24)
