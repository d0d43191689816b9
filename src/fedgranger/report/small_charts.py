"""Small charts: a histogram of p-values and quantile plots."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from fedgranger.report.markup import escape

__all__ = ["draw_p_histogram", "draw_p_quantiles", "draw_quantiles"]

SIZE = 220.0
EDGE = 30.0
LEFT, FOOT = 54.0, 34.0
"""Room for the axes of the plot of p-values."""
MOST_DECADES = 5


def draw_p_histogram(p_values: np.ndarray, title: str, bins: int = 10) -> str:
    """Draw how the p-values spread over 0…1; level is what absent edges alone would give."""
    known = p_values[np.isfinite(p_values)]
    if not len(known):
        return ""
    counts, _ = np.histogram(known, bins=bins, range=(0.0, 1.0))
    top, inner = max(int(counts.max()), 1), SIZE - EDGE - 8
    width = inner / bins
    bars = "".join(
        f"<rect class='bar' x='{EDGE + k * width + 0.5:.1f}' "
        f"y='{8 + inner * (1 - count / top):.1f}' width='{width - 1:.1f}' "
        f"height='{inner * count / top:.1f}'/>"
        for k, count in enumerate(counts)
    )
    words = f"{counts[0]} of {len(known)} below {1 / bins:g}; the rest {_listed(counts[1:])}"
    return (
        f"{_open(title, words)}{bars}{_frame()}"
        f"<text x='{EDGE:g}' y='{SIZE - 6:g}' text-anchor='middle'>0</text>"
        f"<text x='{SIZE - 8:g}' y='{SIZE - 6:g}' text-anchor='middle'>1</text>"
        f"<text x='{EDGE + inner / 2:g}' y='{SIZE - 6:g}' text-anchor='middle'>p</text>"
        f"<text x='{EDGE - 4:g}' y='16' text-anchor='end'>{top}</text></svg>"
    )


def draw_quantiles(quantiles: Sequence[float | None], title: str) -> str:
    """Draw quantiles at (i + ½)/n against the standard normal's; the line is a perfect fit."""
    values = np.array([np.nan if q is None else q for q in quantiles], dtype=float)
    if not len(values) or not np.isfinite(values).all():
        return ""
    expected = stats.norm.ppf((np.arange(len(values)) + 0.5) / len(values))
    limit = float(max(np.abs(values).max(), expected.max())) * 1.05
    inner = SIZE - EDGE - 8

    def place(x: float, y: float) -> tuple[float, float]:
        return EDGE + inner * (x + limit) / (2 * limit), 8 + inner * (limit - y) / (2 * limit)

    (x0, y0), (x1, y1) = place(-limit, -limit), place(limit, limit)
    dots = "".join(
        f"<circle class='dot' cx='{place(x, y)[0]:.1f}' cy='{place(x, y)[1]:.1f}' r='2.2'/>"
        for x, y in zip(expected, values, strict=True)
    )
    words = f"outermost quantiles {values[0]:.2f} and {values[-1]:.2f}, normal {expected[-1]:.2f}"
    return (
        f"{_open(title, words)}{_frame()}"
        f"<line class='fit' x1='{x0:.1f}' y1='{y0:.1f}' x2='{x1:.1f}' y2='{y1:.1f}'/>{dots}"
        f"<text x='{EDGE + inner / 2:g}' y='{SIZE - 6:g}' text-anchor='middle'>normal</text>"
        f"<text x='{EDGE - 4:g}' y='16' text-anchor='end'>{limit:.1f}</text></svg>"
    )


def draw_p_quantiles(quantiles: Mapping[str, Sequence[float]], title: str) -> str:
    """Draw observed p-values against even ones with their band, small ones up and to the right.

    Args:
        quantiles: `level` (even), `observed`, `low` and `high` (the band), from the audit.
        title: for those who cannot see the picture.
    """
    columns = [quantiles.get(key) or [] for key in ("level", "observed", "low", "high")]
    rows = list(zip(*columns, strict=True))
    if not rows:
        return ""
    across, up = (
        _decades(min(column)) for column in zip(*((u, p) for u, p, *_ in rows), strict=True)
    )

    def place(u: float, p: float) -> tuple[float, float]:
        x, y = (min(-math.log10(max(v, 1e-300)) / n, 1.0) for v, n in ((u, across), (p, up)))
        return LEFT + (SIZE - 8 - LEFT) * x, 8 + (SIZE - FOOT - 8) * (1 - y)

    edge = [(u, low) for u, _, low, _ in rows] + [(u, high) for u, *_, high in rows][::-1]
    band = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in edge)
    dots = "".join(
        "<circle class='dot' cx='{:.1f}' cy='{:.1f}' r='2.4'/>".format(*place(u, p))
        for u, p, *_ in rows
    )
    (x0, y0), (x1, y1) = (place(v, v) for v in (1.0, 10.0 ** -min(across, up)))
    ticks = "".join(_across(place(10.0**-k, 1.0)[0], k) for k in range(across + 1))
    ticks += "".join(_up(place(1.0, 10.0**-k)[1], k) for k in range(up + 1))
    outside = sum(not low <= p <= high for _, p, low, high in rows)
    return (
        f"{_open(title, f'{outside} of {len(rows)} quantiles outside the 95 % band')}"
        f"<path class='grid' fill='none' d='M{x0:g},8 V{y0:g} H{SIZE - 8:g}'/>"
        f"<polygon class='band' points='{band}'/>"
        f"<line class='fit' x1='{x0:.1f}' y1='{y0:.1f}' x2='{x1:.1f}' y2='{y1:.1f}'/>{dots}{ticks}"
        f"<text x='{(LEFT + SIZE) / 2:g}' y='{SIZE - 4:g}' text-anchor='middle' font-size='11'>"
        "p if even</text><text x='12' y='96' font-size='11' transform='rotate(-90 12 96)' "
        "text-anchor='middle'>p on copies</text></svg>"
    )


def _decades(smallest: float) -> int:
    return min(max(1, math.ceil(-math.log10(max(smallest, 1e-300)))), MOST_DECADES)


def _across(x: float, decade: int) -> str:
    anchor = "end" if x > SIZE - 30 else "middle"
    return (
        f"<text x='{x:.1f}' y='{SIZE - FOOT + 14:g}' text-anchor='{anchor}' font-size='10'>"
        f"{10.0**-decade:g}</text>"
    )


def _up(y: float, decade: int) -> str:
    return (
        f"<text x='{LEFT - 4:g}' y='{y + 4:.1f}' text-anchor='end' font-size='10'>"
        f"{10.0**-decade:g}</text>"
    )


def _open(title: str, words: str) -> str:
    return (
        f"<svg class='fg-small' viewBox='0 0 {SIZE:g} {SIZE:g}' role='img' "
        f"aria-label='{escape(title)}' font-size='12'><title>{escape(title)}</title>"
        f"<desc>{escape(words)}</desc>"
    )


def _frame() -> str:
    low = SIZE - EDGE + 0.0
    return f"<path class='grid' fill='none' d='M{EDGE:g},8 V{low:g} H{SIZE - 8:g}'/>"


def _listed(counts: np.ndarray) -> str:
    return ", ".join(str(int(count)) for count in counts)
