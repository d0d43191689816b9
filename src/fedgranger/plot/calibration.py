"""Is a 5 % test a 5 % test? Rejection rates of null p-values against the nominal level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedgranger.errors import DataError
from fedgranger.plot.canvas import CYCLE, GREY, choose_axes, set_legend, tidy
from fedgranger.plot.qq import known_numbers
from fedgranger.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COVERAGE = 0.95
USUAL = 0.05
STYLES = ("-", "--", "-.", ":")
LEVELS = np.geomspace(0.001, 1.0, 121)


def calibration(null_p: ArrayLike | Mapping[str, ArrayLike], *, ax: Axes | None = None) -> Axes:
    """Draw the share of null p-values at or below each nominal level, on logarithmic axes.

    On the line, a test at level α rejects a true null hypothesis with probability α; above it the
    test rejects too often, below it the test is cautious. The band holds the rate of an exact test
    with a chance of 95 % at each level (binomial, for independent p-values; those of one data set
    are not quite independent, so read it as the least that is to be expected).

    Args:
        null_p: p-values of edges that do not exist, or a mapping from names to such arrays. NaN
            are left out.
        ax: where to draw; default a new figure.
    """
    groups = null_p if isinstance(null_p, Mapping) else {"": null_p}
    if not groups:
        raise DataError("null_p is an empty mapping; give at least one array of p-values")
    arrays = {str(name): _p_values(values, str(name)) for name, values in groups.items()}
    is_crowded = len(arrays) > 3
    legend: dict[str, Any] = {"fontsize": 7} if is_crowded else {}
    if ax is None and is_crowded:
        legend = {"bbox_to_anchor": (1.0, 1.0)}  # beside the axes: this figure has no neighbours
    ax = choose_axes(ax, 7.2 if is_crowded else 4.6, 4.4)
    sizes = sorted({len(p) for p in arrays.values()})
    handles = []
    for k, (name, p) in enumerate(arrays.items()):
        rate = rejection_rate(p, LEVELS)
        prefix = f"{shorten(name)}: " if name else ""
        handles += ax.plot(
            LEVELS,
            np.where(rate > 0, rate, np.nan),
            color=CYCLE[k % len(CYCLE)],
            ls=STYLES[(k // len(CYCLE)) % len(STYLES)],
            lw=1.6,
            label=f"{prefix}{100 * float(rejection_rate(p, USUAL)):.1f} % at 5 %",
        )
    count = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    bands = [
        ax.fill_between(
            LEVELS, *_band(size), color=GREY, alpha=max(0.22 / len(sizes), 0.08), lw=0, zorder=0
        )
        for size in sizes
    ]
    bands[0].set_label(f"95 % band, n = {count}")
    (line,) = ax.plot(LEVELS, LEVELS, color=GREY, lw=1, label="exact test", zorder=1)
    ax.axvline(USUAL, color=GREY, lw=0.8, ls=":", zorder=1)
    ax.set(xscale="log", yscale="log", xlabel="nominal level", ylabel="rejection rate")
    ax.set(xlim=(LEVELS[0], 1.0), ylim=(LEVELS[0], 1.3))
    tidy(ax)
    set_legend(ax, [*handles, line, bands[0]], loc="upper left", **legend)
    return ax


def rejection_rate(p: np.ndarray, level: float | np.ndarray) -> np.ndarray:
    """Share of the p-values at or below each level."""
    return np.searchsorted(np.sort(p), level, side="right") / len(p)


def _band(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the central 95 % of the rejection rate of an exact test."""
    from scipy import stats  # slow to import

    tail = (1 - COVERAGE) / 2
    low, high = (stats.binom.ppf(chance, size, LEVELS) / size for chance in (tail, 1 - tail))
    return np.maximum(low, 1e-6), high


def _p_values(values: ArrayLike, name: str) -> np.ndarray:
    title = f"null_p[{name!r}]" if name else "null_p"
    p = known_numbers(values, title)
    if p.min() < 0 or p.max() > 1:
        worst = p.min() if p.min() < 0 else p.max()
        raise DataError(f"{title}: {worst:g} is no p-value; give numbers between 0 and 1")
    return p
