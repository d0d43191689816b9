"""The training chart: mean local and server loss over the passes, on a log axis."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedgranger.report.markup import escape

__all__ = ["draw_training_chart"]

WIDTH, HEIGHT = 440.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 12.0, 34.0, 42.0
MAX_POINTS = 600
SERIES = (("local_loss", "local loss", "local"), ("server_loss", "server loss", "server"))


class _Line(NamedTuple):
    label: str
    css_class: str
    points: list[tuple[float, float]]


class _Axis(NamedTuple):
    """Maps `low..high` to pixels `start..stop`."""

    low: float
    high: float
    start: float
    stop: float

    def place(self, value: float) -> float:
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
    if not lines:
        return ""
    passes = [x for line in lines for x, _ in line.points]
    losses = [math.log10(y) for line in lines for _, y in line.points]
    x_axis = _Axis(*_widen(min(passes), max(passes), 0.5), LEFT, WIDTH - RIGHT)
    y_axis = _Axis(*_widen(min(losses), max(losses), 0.1), HEIGHT - BOTTOM, TOP)
    title = f"Training: {' and '.join(line.label for line in lines)} over passes"
    marks = [
        f"<svg class='fg-chart' viewBox='0 0 {WIDTH:g} {HEIGHT:g}' role='img' "
        f"aria-label='{escape(title)}' font-size='12'>",
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(_describe(lines))}</desc>",
        *_y_ticks(y_axis),
        *_x_ticks(x_axis, passes),
        f"<text x='{(LEFT + WIDTH - RIGHT) / 2:g}' y='{HEIGHT - 6:g}' "
        "text-anchor='middle'>pass</text>",
        "<text x='4' y='16'>mean loss (log scale)</text>",
        *(_line_mark(line, x_axis, y_axis) for line in lines),
        *(_legend_mark(line, row) for row, line in enumerate(lines)),
        "</svg>",
    ]
    return "\n".join(marks)


def _mean_lines(trace: pd.DataFrame) -> list[_Line]:
    if "pass_index" not in trace.columns:
        return []
    passes = trace["pass_index"].to_numpy(dtype=float, na_value=np.nan)
    lines = []
    for column, label, css_class in SERIES:
        if column not in trace.columns:
            continue
        losses = trace[column].to_numpy(dtype=float, na_value=np.nan)
        is_given = np.isfinite(losses) & np.isfinite(passes)
        distinct, group = np.unique(passes[is_given], return_inverse=True)
        means = np.bincount(group, weights=losses[is_given]) / np.bincount(group)
        points = [(float(x), float(y)) for x, y in zip(distinct, means, strict=True) if y > 0]
        if points:
            lines.append(_Line(label, css_class, _thin(points)))
    return lines


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep at most about `MAX_POINTS` points, the last one among them."""
    stride = math.ceil(len(points) / MAX_POINTS)
    return points[-1::-stride][::-1]


def _widen(low: float, high: float, margin: float) -> tuple[float, float]:
    """Give a range without extent some room, so that an axis can be drawn."""
    return (low - margin, high + margin) if high - low < 1e-9 else (low, high)


def _line_mark(line: _Line, x_axis: _Axis, y_axis: _Axis) -> str:
    spots = [(x_axis.place(x), y_axis.place(math.log10(y))) for x, y in line.points]
    if len(spots) == 1:
        x, y = spots[0]
        return f"<circle class='{line.css_class}' cx='{x:.1f}' cy='{y:.1f}' r='4'/>"
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    return f"<polyline class='line {line.css_class}' points='{path}'/>"


def _legend_mark(line: _Line, row: int) -> str:
    x = 206 + 116 * row
    return (
        f"<line class='line {line.css_class}' x1='{x}' y1='12' x2='{x + 30}' y2='12'/>"
        f"<text x='{x + 36}' y='16'>{escape(line.label)}</text>"
    )


def _y_ticks(axis: _Axis) -> list[str]:
    marks = []
    for value in _log_ticks(axis.low, axis.high):
        y = axis.place(math.log10(value))
        marks.append(
            f"<line class='grid' x1='{LEFT:g}' y1='{y:.1f}' x2='{WIDTH - RIGHT:g}' y2='{y:.1f}'/>"
            f"<text x='{LEFT - 7:g}' y='{y + 4:.1f}' text-anchor='end'>{value:.4g}</text>"
        )
    return marks


def _x_ticks(axis: _Axis, passes: Sequence[float]) -> list[str]:
    marks = []
    for value in _whole_ticks(min(passes), max(passes)):
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


def _describe(lines: Sequence[_Line]) -> str:
    return "; ".join(
        f"{line.label} from {line.points[0][1]:.3g} at pass {line.points[0][0]:g} "
        f"to {line.points[-1][1]:.3g} at pass {line.points[-1][0]:g}"
        for line in lines
    )
