"""Small charts: a histogram of p-values and a quantile plot."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from fedgranger.report.markup import escape

__all__ = ["draw_p_histogram", "draw_quantiles"]

SIZE = 220.0
EDGE = 30.0


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
