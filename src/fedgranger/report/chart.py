"""Line charts over training, on a log axis: losses, and variances with their two sources."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedgranger.report.markup import escape

__all__ = ["Axis", "Line", "draw_lines", "draw_training_chart", "draw_variance_chart"]

WIDTH, HEIGHT = 440.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 20.0, 34.0, 42.0
MAX_POINTS = 600
DECADES = 8
"""A line that falls further below the others than this is cut off, so the rest stays readable."""
LOSSES = (("local_loss", "local loss", "local"), ("server_loss", "server loss", "server"))
SOURCES = (
    ("total", "total", "total"),
    ("data", "from data", "data"),
    ("prior", "from prior", "prior"),
)


class Line(NamedTuple):
    """A named series of positive values; the class decides colour and dash."""

    label: str
    css_class: str
    points: list[tuple[float, float]]


class Axis(NamedTuple):
    """Maps `low..high` to pixels `start..stop`."""

    low: float
    high: float
    start: float
    stop: float

    def place(self, value: float) -> float:
        """Pixel of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)


def draw_training_chart(trace: pd.DataFrame) -> str:
    """Draw the losses of a run, averaged over clients (and rounds) within each pass.

    Args:
        trace: columns `pass_index`, `local_loss`, `server_loss`; others are ignored. Values that
            a log axis cannot show (zero, negative, not finite) are left out.

    Returns:
        The SVG text for use inside a page, or an empty string if there is nothing to show.
    """
    lines = _mean_lines(trace)
    title = f"Training: {' and '.join(line.label for line in lines)} over passes"
    return draw_lines(lines, title, "pass", "mean loss (log scale)")


def draw_variance_chart(table: pd.DataFrame, quantity: str, heading: str) -> str:
    """Draw one quantity over the rounds of the first pass, summed over clients and causes.

    Args:
        table: `uncertainty.csv`: round, quantity, total, prior, data.
        quantity: which one.
        heading: its name for people.
    """
    rows = table.loc[table["quantity"] == quantity]
    sums = rows.groupby("round")[[name for name, _, _ in SOURCES]].sum(min_count=1)
    lines = []
    for column, label, css_class in SOURCES:
        values = sums[column].to_numpy(dtype=float, na_value=np.nan)
        points = [
            (float(x), float(y)) for x, y in zip(sums.index, values, strict=True) if y > 0
        ]  # NaN fails the comparison
        if points:
            lines.append(Line(label, css_class, _thin(points)))
    return draw_lines(_cut(lines), f"{heading} over the rounds of the first pass", "round", "")


def draw_lines(lines: Sequence[Line], title: str, x_label: str, y_label: str) -> str:
    """Draw lines on a log axis with a legend and a description in words; empty without lines."""
    if not lines:
        return ""
    xs = [x for line in lines for x, _ in line.points]
    logs = [math.log10(y) for line in lines for _, y in line.points]
    x_axis = Axis(*_widen(min(xs), max(xs), 0.5), LEFT, WIDTH - RIGHT)
    y_axis = Axis(*_widen(min(logs), max(logs), 0.1), HEIGHT - BOTTOM, TOP)
    marks = [
        f"<svg class='fg-chart' viewBox='0 0 {WIDTH:g} {HEIGHT:g}' role='img' "
        f"aria-label='{escape(title)}' font-size='12'>",
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(_describe(lines, x_label))}</desc>",
        *_y_ticks(y_axis),
        *_x_ticks(x_axis, xs),
        f"<text x='{(LEFT + WIDTH - RIGHT) / 2:g}' y='{HEIGHT - 6:g}' "
        f"text-anchor='middle'>{escape(x_label)}</text>",
        f"<text x='4' y='16'>{escape(y_label)}</text>",
        *(_line_mark(line, x_axis, y_axis) for line in lines),
        *_legend(lines),
        "</svg>",
    ]
    return "\n".join(marks)


def _mean_lines(trace: pd.DataFrame) -> list[Line]:
    if "pass_index" not in trace.columns:
        return []
    passes = trace["pass_index"].to_numpy(dtype=float, na_value=np.nan)
    lines = []
    for column, label, css_class in LOSSES:
        if column not in trace.columns:
            continue
        losses = trace[column].to_numpy(dtype=float, na_value=np.nan)
        is_given = np.isfinite(losses) & np.isfinite(passes)
        distinct, group = np.unique(passes[is_given], return_inverse=True)
        means = np.bincount(group, weights=losses[is_given]) / np.bincount(group)
        points = [(float(x), float(y)) for x, y in zip(distinct, means, strict=True) if y > 0]
        if points:
            lines.append(Line(label, css_class, _thin(points)))
    return lines


def _cut(lines: list[Line]) -> list[Line]:
    """Leave out points more than eight decades below the largest."""
    largest = max((y for line in lines for _, y in line.points), default=0.0)
    floor = largest * 10.0**-DECADES
    kept = [line._replace(points=[(x, y) for x, y in line.points if y >= floor]) for line in lines]
    return [line for line in kept if line.points]


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep at most about `MAX_POINTS` points, the last one among them."""
    stride = math.ceil(len(points) / MAX_POINTS)
    return points[-1::-stride][::-1]


def _widen(low: float, high: float, margin: float) -> tuple[float, float]:
    """Give a range without extent some room, so that an axis can be drawn."""
    return (low - margin, high + margin) if high - low < 1e-9 else (low, high)


def _line_mark(line: Line, x_axis: Axis, y_axis: Axis) -> str:
    spots = [(x_axis.place(x), y_axis.place(math.log10(y))) for x, y in line.points]
    if len(spots) == 1:
        x, y = spots[0]
        return f"<circle class='{line.css_class}' cx='{x:.1f}' cy='{y:.1f}' r='4'/>"
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    return f"<polyline class='line {line.css_class}' points='{path}'/>"


def _legend(lines: Sequence[Line]) -> list[str]:
    step = 116 if len(lines) <= 2 else 98
    first = WIDTH - RIGHT - step * len(lines)
    return [
        f"<line class='line {line.css_class}' x1='{first + step * k:g}' y1='12' "
        f"x2='{first + step * k + 26:g}' y2='12'/>"
        f"<text x='{first + step * k + 31:g}' y='16'>{escape(line.label)}</text>"
        for k, line in enumerate(lines)
    ]


def _y_ticks(axis: Axis) -> list[str]:
    marks = []
    for value in _log_ticks(axis.low, axis.high):
        y = axis.place(math.log10(value))
        marks.append(
            f"<line class='grid' x1='{LEFT:g}' y1='{y:.1f}' x2='{WIDTH - RIGHT:g}' y2='{y:.1f}'/>"
            f"<text x='{LEFT - 7:g}' y='{y + 4:.1f}' text-anchor='end'>{value:.4g}</text>"
        )
    return marks


def _x_ticks(axis: Axis, xs: Sequence[float]) -> list[str]:
    marks = []
    for value in _whole_ticks(min(xs), max(xs)):
        x, y = axis.place(value), HEIGHT - BOTTOM
        marks.append(
            f"<line class='grid' x1='{x:.1f}' y1='{y:g}' x2='{x:.1f}' y2='{y + 5:g}'/>"
            f"<text x='{x:.1f}' y='{y + 18:g}' text-anchor='middle'>{value:g}</text>"
        )
    return marks


def _log_ticks(low: float, high: float) -> list[float]:
    """Return two to six round values between 10**low and 10**high."""
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    if last - first >= 2:
        stride = math.ceil((last - first) / 5)
        return [10.0**power for power in range(first, last + 1, stride)]
    for digits in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)):
        ticks = [
            digit * 10.0**power
            for power in range(math.floor(low) - 1, math.ceil(high) + 1)
            for digit in digits
            if low - 1e-9 <= math.log10(digit * 10.0**power) <= high + 1e-9
        ]
        if 2 <= len(ticks) <= 7:
            return ticks
    return [10**low, 10 ** ((low + high) / 2), 10**high]


def _whole_ticks(low: float, high: float) -> list[float]:
    """Return at most six whole numbers at a round distance."""
    step = 1.0
    for power in range(12):
        step = next((d * 10.0**power for d in (1, 2, 5) if (high - low) / (d * 10**power) <= 5), 0)
        if step:
            break
    first = math.ceil(low / step)
    return [step * index for index in range(first, math.floor(high / step) + 1)]


def _describe(lines: Sequence[Line], x_label: str) -> str:
    return "; ".join(
        f"{line.label} from {line.points[0][1]:.3g} at {x_label} {line.points[0][0]:g} "
        f"to {line.points[-1][1]:.3g} at {x_label} {line.points[-1][0]:g}"
        for line in lines
    )
