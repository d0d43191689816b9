"""Picture of a calibration study (matplotlib, extra `plot`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedgranger.plot.calibration import calibration, qq
from fedgranger.plot.canvas import BLUE, ORANGE, PLAIN, new_figure, tidy
from fedgranger.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_calibration(
    path: Path, null_p: Mapping[str, np.ndarray], coverage: Mapping[str, tuple[float, float]]
) -> None:
    """Rejection rates and QQ plot of null p-values per setting, and coverage with its error.

    Args:
        path: file to write (svg, png or pdf by its ending).
        null_p: p-values of edges that do not exist, per setting.
        coverage: mean and Monte Carlo standard error, per setting.
    """
    num = len(null_p)
    figure = new_figure(8.4, 3.7 * num + 0.3 * len(coverage) + 1.3)
    heights = [*([3.7] * num), 1.3 + 0.3 * len(coverage)]
    grid = figure.add_gridspec(num + 1, 2, height_ratios=heights)
    for row, (name, p) in enumerate(null_p.items()):
        left = calibration(p, ax=figure.add_subplot(grid[row, 0]))
        left.set_title(f"{shorten(name)}: absent edges", fontsize=10, **PLAIN)
        right = qq(p, distribution="uniform", ax=figure.add_subplot(grid[row, 1]))
        right.set_title("against the uniform", fontsize=10)
    _draw_coverage(figure.add_subplot(grid[num, :]), coverage)
    figure.savefig(path, dpi=110)


def _draw_coverage(ax: Axes, coverage: Mapping[str, tuple[float, float]]) -> None:
    names, y = [shorten(name) for name in coverage], range(len(coverage))
    means, errors = np.array(list(coverage.values())).reshape(-1, 2).T
    ax.axvline(0.95, color=ORANGE, lw=1.5)
    ax.errorbar(means, y, xerr=1.96 * errors, fmt="o", color=BLUE, capsize=3)
    ax.set_yticks(y, names, **PLAIN)
    ax.set_title("coverage of 95 % intervals, with its Monte Carlo error", fontsize=10)
    ax.set(xlabel="coverage", ylim=(len(names) - 0.5, -0.5))
    tidy(ax, grid="x")
