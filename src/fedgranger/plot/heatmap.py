"""All pairs at a glance: a matrix with effects as rows and causes as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedgranger.errors import RunError
from fedgranger.option_fields import check_choice
from fedgranger.plot.canvas import (
    PLAIN,
    axes_size,
    choose_axes,
    decided_edges,
    set_legend,
    supported,
)
from fedgranger.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

    from fedgranger.results import Result

MOST_NUMBERS = 12
"""Up to this many clients the values are written into the cells."""
SMALLEST_Q = 1e-8
"""Below this all q-values have the same colour."""
SHADES = ("#e8eef4", "#82b8dc", "#2b7bba", "#08306b")
"""From light to dark, for every eye; white is left for the diagonal."""
LABELS = {"strength": "strength (norm of the block)", "q_value": "q (adjusted p-value)"}


def heatmap(
    result: Result,
    *,
    estimate: str = "auto",
    value: str = "strength",
    alpha: float | None = None,
    correction: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw all pairs as a matrix: the row is the effect, the column the cause.

    Darker is stronger (or more certain, for q). A diamond marks an edge that the tests support, a
    cross a pair that was not tested. The diagonal is empty: a client's own past is no edge.

    Args:
        result: of a fit.
        estimate: `debiased`, `fedgc` (no tests, hence no marks), or `auto`.
        value: `strength` or `q_value`.
        alpha: level at which an edge counts as supported; default the run's own.
        correction: for testing many edges (bh, by, holm, none); default the run's own.
        ax: where to draw; default a new figure.
    """
    check_choice("value", value, tuple(LABELS))
    table = decided_edges(result, estimate=estimate, alpha=alpha, correction=correction)
    is_tested = table["p_value"].notna().to_numpy()
    if value == "q_value" and not is_tested.any():
        raise RunError("value='q_value' needs tests, and there are none; use value='strength'")
    clients = result.clients
    place = {name: index for index, name in enumerate(clients)}
    rows = np.array([place[name] for name in table["effect"]], dtype=int)
    columns = np.array([place[name] for name in table["cause"]], dtype=int)
    grid = np.full((len(clients), len(clients)), np.nan)
    grid[rows, columns] = table[value].to_numpy(dtype=float)
    ax = choose_axes(ax, *_figure_size(clients))
    image = _draw_cells(ax, grid, value)
    marks = supported(table)
    _draw_marks(ax, image, rows[marks], columns[marks], len(clients))
    untested = ~is_tested & is_tested.any()
    _draw_crosses(ax, rows[untested], columns[untested], len(clients))
    if len(clients) <= MOST_NUMBERS:
        _write_numbers(ax, image, grid, value)
    _name_cells(ax, clients)
    if marks.any() or untested.any():
        _legend(ax, has_marks=bool(marks.any()), has_crosses=bool(untested.any()))
    return ax


def _figure_size(clients: tuple[str, ...]) -> tuple[float, float]:
    """Inches for square cells with names and colour bar beside them."""
    cell = float(np.clip(6.0 / len(clients), 0.14, 0.8))
    name = 0.075 * max(len(shorten(client, 22)) for client in clients)
    below = name if name > cell else 0.2
    return cell * len(clients) + name + 1.3, cell * len(clients) + below + 0.7


def _draw_cells(ax: Axes, grid: np.ndarray, value: str) -> AxesImage:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize

    colours = LinearSegmentedColormap.from_list("fedgranger", SHADES)
    if value == "q_value":
        low = float(np.clip(np.nanmin(grid), SMALLEST_Q, 0.1))
        image = ax.imshow(grid, cmap=colours.reversed(), norm=LogNorm(low, 1.0), aspect="auto")
        extend = "min" if np.nanmin(grid) < low else "neither"
    else:
        high = float(np.nanmax(grid, initial=0.0))
        image = ax.imshow(grid, cmap=colours, norm=Normalize(0.0, high or 1.0), aspect="auto")
        extend = "neither"
    figure: Any = ax.get_figure()
    bar = figure.colorbar(image, ax=ax, extend=extend, fraction=0.046, pad=0.03)
    bar.set_label(LABELS[value], fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    return image


def _ink(image: AxesImage, value: Any) -> str:
    """Black or white, whichever is easier to see on the colour of this value."""
    red, green, blue, _ = image.cmap(image.norm(value))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def _draw_marks(
    ax: Axes, image: AxesImage, rows: np.ndarray, columns: np.ndarray, count: int
) -> None:
    grid = np.asarray(image.get_array())
    is_small = count <= MOST_NUMBERS
    colours = [_ink(image, grid[m, n]) for m, n in zip(rows, columns, strict=True)]
    size = 5.0 if is_small else min(max(_cell_size(ax, count) * 0.4, 1.2), 6.0)
    lift = 0.27 if is_small else 0.0
    ax.scatter(columns, rows - lift, s=size**2, c=colours, marker="D", lw=0, label="_supported")


def _draw_crosses(ax: Axes, rows: np.ndarray, columns: np.ndarray, count: int) -> None:
    if len(rows):
        size = max(min(0.4 * _cell_size(ax, count), 6.0), 1.2)
        ax.scatter(columns, rows, s=size**2, c="#999999", marker="x", lw=0.8, label="_untested")


def _cell_size(ax: Axes, count: int) -> float:
    """Width of a cell in points, about."""
    return min(axes_size(ax)) / count


def _write_numbers(ax: Axes, image: AxesImage, grid: np.ndarray, value: str) -> None:
    font = min(9.0, max(5.0, 0.24 * _cell_size(ax, len(grid))))
    for (m, n), number in np.ndenumerate(grid):
        if np.isfinite(number):
            text = _format_q(number) if value == "q_value" else f"{number:.2f}"
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": font}
            ax.text(n, m + 0.12, text, color=_ink(image, number), **style)


def _format_q(q: float) -> str:
    if q < SMALLEST_Q:
        return f"<{SMALLEST_Q:.0e}".replace("e-0", "e-")
    return f"{q:.2f}" if q >= 0.01 else f"{q:.0e}".replace("e-0", "e-")


def _name_cells(ax: Axes, clients: tuple[str, ...]) -> None:
    size = min(9.0, max(4.0, 0.8 * _cell_size(ax, len(clients))))
    names, places = [shorten(name, 22) for name in clients], range(len(clients))
    is_long = max(len(name) for name in names) * 0.6 * size > _cell_size(ax, len(clients))
    ax.set_yticks(places, names, fontsize=size, **PLAIN)
    turn = {"rotation": 90} if is_long else {}
    ax.set_xticks(places, names, fontsize=size, **turn, **PLAIN)
    ax.set(xlabel="cause", ylabel="effect")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _legend(ax: Axes, *, has_marks: bool, has_crosses: bool) -> None:
    from matplotlib.lines import Line2D

    handles = []
    if has_marks:
        handles.append(
            Line2D([], [], ls="", marker="D", ms=5, color="black", label="supported edge")
        )
    if has_crosses:
        handles.append(Line2D([], [], ls="", marker="x", ms=5, color="#999999", label="not tested"))
    set_legend(
        ax,
        handles,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=2,
        borderaxespad=0.2,
        handletextpad=0.2,
    )
