"""What all pictures share: matplotlib, colours, files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedgranger.plot.canvas import require_matplotlib

GREY = "#666666"
SETTINGS: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "fedgranger",
}


def pyplot() -> Any:
    """Return pyplot, drawing to files.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    require_matplotlib()
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(SETTINGS)
    return plt


def colours(count: int) -> Sequence[Any]:
    """Dark to light along viridis: ordered, and apart for colour-blind eyes and in grey."""
    plt = pyplot()
    top = 0.85
    return [plt.get_cmap("viridis")(top * k / max(count - 1, 1)) for k in range(count)]


def scientific(value: float) -> str:
    """A power of ten for legends and titles, in mathtext: 10⁻³, or 1, 10."""
    exponent = f"{value:.0e}".split("e")
    if exponent[0] == "1" and not -1 < int(exponent[1]) < 2:
        return rf"$10^{{{int(exponent[1])}}}$"
    return f"{value:g}"


def save(figure: Any, folder: Path, name: str) -> None:
    """Write NAME.png and NAME.svg and forget the figure."""
    figure.savefig(folder / f"{name}.png", dpi=150)
    figure.set_layout_engine("none")  # the second file keeps the places of the first
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    pyplot().close(figure)
