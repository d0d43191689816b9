"""Is a 5 % test a 5 % test? Rejection rates of null p-values, and quantiles with their band."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedgranger.errors import DataError
from fedgranger.option_fields import check_choice
from fedgranger.plot.canvas import BLUE, CYCLE, GREY, choose_axes, set_legend, tidy
from fedgranger.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TAILS = (0.025, 0.975)
"""Ends of a band that holds 95 %."""
USUAL = 0.05
STYLES = ("-", "--", "-.", ":")
LEVELS = np.geomspace(0.001, 1.0, 121)
MANY = 2000
"""From this many points on, vector files hold them as an image."""


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
    arrays = {
        str(name): _p_values(values, f"null_p[{str(name)!r}]" if str(name) else "null_p")
        for name, values in groups.items()
    }
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

    low, high = (stats.binom.ppf(chance, size, LEVELS) / size for chance in TAILS)
    return np.maximum(low, 1e-6), high


def _p_values(values: ArrayLike, title: str) -> np.ndarray:
    p = _known_numbers(values, title)
    if p.min() < 0 or p.max() > 1:
        worst = p.min() if p.min() < 0 else p.max()
        raise DataError(f"{title}: {worst:g} is no p-value; give numbers between 0 and 1")
    return p


def qq(values: ArrayLike, *, distribution: str = "normal", ax: Axes | None = None) -> Axes:
    """Draw ordered values against the quantiles they should have.

    `normal`: against the standard normal, as they are: z-values that are too wide are steeper
    than the line. `uniform`: p-values under the null hypothesis, as −log10 p; above the line they
    are too small (edges would be found that are not there), below it the test is cautious.

    The band holds each point with a chance of 95 % (its order statistic has a beta distribution),
    for independent values. It is pointwise: one point in twenty may lie outside.

    Args:
        values: numbers; NaN are left out. For `uniform` between 0 and 1.
        distribution: `normal` or `uniform`.
        ax: where to draw; default a new figure.
    """
    from scipy import special, stats  # slow to import

    check_choice("distribution", distribution, ("normal", "uniform"))
    is_normal = distribution == "normal"
    x = _known_numbers(values, "values") if is_normal else _p_values(values, "values")
    if np.isinf(x).any():
        raise DataError("values: some are infinite; leave them out or give finite numbers")

    def quantile(chance: float, rank: np.ndarray) -> np.ndarray:
        """Of the order statistic of this rank, on the scale of the axes."""
        uniform = stats.beta.ppf(chance, rank, len(x) + 1 - rank)
        return special.ndtri(uniform) if is_normal else _minus_log(uniform)

    if is_normal:
        observed, labels = np.sort(x), ("standard normal quantile", "observed")
    else:
        observed, labels = _minus_log(np.sort(x)), ("expected −log10 p", "observed −log10 p")
    few = _few(len(x))
    expected = quantile(0.5, np.arange(1, len(x) + 1))
    low, high = (quantile(tail, few) for tail in TAILS)
    ax = choose_axes(ax, 4.4, 4.2)
    ends = np.array([expected.min(), expected.max()])
    (line,) = ax.plot(ends, ends, color=GREY, lw=1, label="expected", zorder=1)
    band = ax.fill_between(
        expected[few - 1],
        low,
        high,
        color=GREY,
        alpha=0.25,
        lw=0,
        label="pointwise 95 % band",
        zorder=0,
    )
    style: dict[str, Any] = {"color": BLUE, "ms": 4, "rasterized": len(x) > MANY}
    (points,) = ax.plot(expected, observed, ".", label=f"{len(x)} values", **style)
    ax.set(xlabel=labels[0], ylabel=labels[1])
    tidy(ax)
    set_legend(ax, (points, line, band), loc="upper left")
    return ax


def _few(count: int) -> np.ndarray:
    """Ranks enough to draw the band: all of a few, otherwise closer together in the tails."""
    if count <= MANY:
        return np.arange(1, count + 1)
    tail = np.unique(np.geomspace(1, count, 200).round().astype(int))
    return np.unique(np.concatenate([tail, count + 1 - tail]))


def _known_numbers(values: ArrayLike, name: str) -> np.ndarray:
    """A flat array of the numbers that are there.

    Raises:
        DataError: the values are no numbers, or there are none.
    """
    try:
        x = np.asarray(values, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise DataError(
            f"{name}: {type(values).__name__} cannot be read as numbers; give an array or a list"
        ) from None
    x = x[~np.isnan(x)]
    if not len(x):
        raise DataError(f"{name}: there are no numbers in it; give at least one")
    return x


def _minus_log(p: np.ndarray) -> np.ndarray:
    """−log10 p, with p = 0 (too small for a float) at the smallest one there is."""
    return -np.log10(np.maximum(p, np.finfo(np.float64).tiny))
