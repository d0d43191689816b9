"""Quantile-quantile plot with a band for every order statistic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedgranger.errors import DataError
from fedgranger.option_fields import check_choice
from fedgranger.plot.canvas import BLUE, GREY, choose_axes, set_legend, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TAILS = (0.025, 0.975)
MANY = 2000
"""From this many points on, vector files hold them as an image."""


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
    check_choice("distribution", distribution, ("normal", "uniform"))
    x = known_numbers(values, "values")
    if distribution == "uniform" and (x.min() < 0 or x.max() > 1):
        worst = x.min() if x.min() < 0 else x.max()
        raise DataError(f"values: {worst:g} is no p-value; give numbers between 0 and 1")
    if np.isinf(x).any():
        raise DataError("values: some are infinite; leave them out or give finite numbers")
    rank, few = np.arange(1, len(x) + 1), _few(len(x))
    if distribution == "normal":
        observed, scale_fn = np.sort(x), _normal_quantile
        labels = "standard normal quantile", "observed"
    else:
        observed, scale_fn = _minus_log(np.sort(x)), _minus_log
        labels = "expected −log10 p", "observed −log10 p"
    expected = scale_fn(order_quantile(0.5, rank, len(x)))
    low, high = (scale_fn(order_quantile(tail, few, len(x))) for tail in TAILS)
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


def order_quantile(chance: float, rank: np.ndarray, count: int) -> np.ndarray:
    """Quantile of the order statistic of this rank among `count` uniform numbers."""
    from scipy import stats  # slow to import

    return stats.beta.ppf(chance, rank, count + 1 - rank)


def _few(count: int) -> np.ndarray:
    """Ranks enough to draw the band: all of a few, otherwise closer together in the tails."""
    if count <= MANY:
        return np.arange(1, count + 1)
    tail = np.unique(np.geomspace(1, count, 200).round().astype(int))
    return np.unique(np.concatenate([tail, count + 1 - tail]))


def known_numbers(values: ArrayLike, name: str) -> np.ndarray:
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


def _normal_quantile(chance: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri

    return ndtri(chance)


def _minus_log(p: np.ndarray) -> np.ndarray:
    """−log10 p, with p = 0 (too small for a float) at the smallest one there is."""
    return -np.log10(np.maximum(p, np.finfo(np.float64).tiny))
