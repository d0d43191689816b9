"""What all plots share: axes, colours, edges that are checked and decided.

Importing this module does not import matplotlib, and nothing here touches pyplot or a backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedgranger.disk import write_atomically
from fedgranger.errors import ConfigError, RunError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedgranger.results import Result

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#777777"
CYCLE = (BLUE, ORANGE, "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Okabe and Ito's colours without yellow, which is lost on white."""

Edge = tuple[str, str]
"""Cause and effect."""
PLAIN: dict[str, Any] = {"parse_math": False, "usetex": False}
"""For every text that holds a name: a dollar sign is a dollar sign."""


def new_figure(width: float, height: float) -> Figure:
    """Make a figure that pyplot does not know, `width` by `height` inches."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def require_matplotlib() -> None:
    """Say what to install when matplotlib is absent."""
    try:
        import matplotlib as mpl  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigError(
            "drawing needs matplotlib; install it with: pip install 'fedgranger[plot]'"
        ) from None


def choose_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """Return `ax`, or the axes of a new figure of this size in inches, which notebooks show."""
    if ax is None:
        figure = new_figure(width, height)
        from fedgranger.plot.shown_axes import ShownAxes

        return figure.add_subplot(axes_class=ShownAxes)
    if not (hasattr(ax, "plot") and hasattr(ax, "transData")):
        raise ConfigError(
            f"ax is {type(ax).__name__}; give matplotlib Axes, such as the second value of "
            "plt.subplots(), or leave it out"
        )
    return ax


def save_figure(ax: Axes, path: Path) -> None:
    """Write the figure of these axes; the ending of the name says which kind of picture.

    Raises:
        ConfigError: matplotlib does not know that ending, or the file cannot be written.
    """
    figure: Any = ax.get_figure(root=True)
    kinds = figure.canvas.get_supported_filetypes()
    kind = path.suffix.removeprefix(".").lower()
    if kind not in kinds:
        raise ConfigError(f"{path}: no kind of picture; end its name with .png, .svg or .pdf")
    try:
        write_atomically(path, lambda part: figure.savefig(part, format=kind, dpi=150))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error})") from None


def axes_size(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes in points."""
    figure: Any = ax.get_figure(root=True)
    points = 72 / figure.dpi
    return points * ax.bbox.width, points * ax.bbox.height


def tidy(ax: Axes, *, grid: str | None = None) -> None:
    """Remove the upper and right frame; draw a light grid along 'x', 'y' or 'both'."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    if grid is not None:
        ax.grid(visible=True, axis=grid, color="#dddddd", linewidth=0.6)  # pyright: ignore[reportArgumentType]


def set_legend(ax: Axes, handles: Iterable[Any], **options: Any) -> None:
    """Draw a legend of these handles without a frame; labels are never read as formulas."""
    handles = list(handles)
    labels = [handle.get_label() for handle in handles]
    legend = ax.legend(handles, labels, **{"frameon": False, "fontsize": 8.5, **options})
    for text in legend.get_texts():
        text.set(**PLAIN)


def first_edges(ax: Axes, edges: Sequence[Edge], most: int) -> Iterator[tuple[Edge, str]]:
    """The first edges, each with a colour; the title says so where there are more."""
    title = f"the {most} most certain of {len(edges)} edges" if most < len(edges) else ""
    ax.set_title(title, fontsize=10, **PLAIN)
    return zip(edges[:most], cycle(CYCLE), strict=False)


def check_count(name: str, value: int) -> None:
    """Refuse what is no number of things to draw."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} is {value!r}; give a whole number of at least 1")


def check_result(result: object) -> None:
    """Refuse what is no result."""
    if not hasattr(result, "edges_over_time"):
        raise RunError(
            f"result is {type(result).__name__}; give what fg.fit or fg.Result.load returned"
        )


def decided_edges(
    result: Result,
    *,
    estimate: str = "auto",
    alpha: float | None = None,
    correction: str | None = None,
) -> pd.DataFrame:
    """`result.edges(...)`, refusing a level or correction that would have no effect.

    Raises:
        ConfigError: `alpha` is not a level.
        RunError: `result` is no result, or a decision is asked of a run without tests.
    """
    check_result(result)
    for name, value in (("alpha", alpha), ("correction", correction)):
        if value is not None and (result.inference is None or estimate == "fedgc"):
            raise RunError(
                f"{name}={value!r} needs tests, which this estimate does not have; leave it out, "
                "or fit with test='debiased'"
            )
    if alpha is not None and not (isinstance(alpha, (int, float)) and 0 < alpha < 1):
        raise ConfigError(f"alpha is {alpha!r}; it must lie between 0 and 1 (exclusive)")
    return result.edges(estimate=estimate, alpha=alpha, correction=correction)


def supported(table: pd.DataFrame) -> np.ndarray:
    """True where a test supports the edge; False where it does not or was not made."""
    return table["is_edge"].eq(True).fillna(False).to_numpy(dtype=np.bool_)
