"""Clients on a circle in matplotlib's axes: places, names around it, bends of the edges.

The page's script has a layout of its own: there the picture grows with its text, here the text has
to fit into axes of a given size, so names are measured and the circle shrinks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgranger.plot.canvas import PLAIN, axes_size
from fedgranger.text import shorten, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

SMALLEST_FONT, LARGEST_FONT = 4.0, 10.0
NAME_GAP = 11.0
"""Points between a client's place and its name."""
APART, PULL = 0.16, 0.15


def client_angles(count: int) -> np.ndarray:
    """Angles clockwise, the first client at the top (two: left and right)."""
    first = math.pi if count == 2 else math.pi / 2
    return first - 2 * math.pi * np.arange(count) / count


def bend(start: int, end: int, count: int, *, has_opposite: bool) -> float:
    """How far an edge bends to the right of its direction, as the `rad` of an arc3 connection.

    Two opposite edges bend to opposite sides and so part; the bend towards the rim is limited, or
    edges would meet the clients between their ends, and the opposite edge then bends further
    inwards. A single edge is straight. With many clients short edges are pulled inwards, away
    from the rim.
    """
    step = 2 * math.pi * ((end - start) % count) / count
    length = 2 * math.sin(step / 2)
    depth = abs(math.cos(step / 2))
    is_adjacent = (end - start) % count in (1, count - 1)
    apart = max(APART * length, 0.07) if has_opposite else 0.0
    room = (1 - depth) - (-0.02 if is_adjacent else 0.08)
    outward = min(apart / 2, room) - (PULL * depth**6 * length if count > 8 else 0.0)
    # Clockwise, the centre lies on the right for less than half a turn.
    is_outward = step > math.pi + 1e-9
    return 2 * (outward if is_outward else apart - outward) / length


def place_names(ax: Axes, names: Sequence[str], angles: np.ndarray) -> float:
    """Write the names around the unit circle and set the limits of `ax` such that they fit.

    Names stand upright while they have room and point outwards when they would touch. Call it
    last: legend and title have to have their places.

    Returns:
        The radius of the circle in points.
    """
    figure: Any = ax.get_figure(root=True)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    ax.set_aspect("equal")
    per_name = 2 * math.pi * 0.3 * min(axes_size(ax)) / len(names)
    side = axes_size(ax)[0] if len(names) == 2 else min(axes_size(ax))
    largest = min(LARGEST_FONT if len(names) <= 32 else 8.5, max(side / 28, 5.5))
    font = min(max(0.8 * per_name, SMALLEST_FONT), largest)
    texts = [_write(ax, name, angle, font) for name, angle in zip(names, angles, strict=True)]
    radius = _fit(ax, texts, angles)
    boxes = [text.get_window_extent() for text in texts]
    if any(one.overlaps(other) for one, other in combinations(boxes, 2)):
        for text, name, angle in zip(texts, names, angles, strict=True):
            _turn(text, name, angle)
        radius = _fit(ax, texts, angles)
    return radius


def name_lines(name: str) -> str:
    """A name in one line or two.

    Example:
        >>> name_lines("north_wing_pump_house_pressure_sensor_07").splitlines()
        ['north_wing_pump_', 'ho…sensor_07']
    """
    return "\n".join(part.strip() for part in wrap(shorten(name)))


def _write(ax: Axes, name: str, angle: float, font: float) -> Text:
    cosine, sine = math.cos(angle), math.sin(angle)
    return ax.annotate(
        name_lines(name),
        (cosine, sine),
        (NAME_GAP * cosine, NAME_GAP * sine),
        textcoords="offset points",
        ha="left" if cosine > 0.2 else "right" if cosine < -0.2 else "center",
        va="center" if abs(sine) < 0.8 else "bottom" if sine > 0 else "top",
        fontsize=font,
        annotation_clip=False,
        in_layout=False,
        **PLAIN,
    )


def _turn(text: Text, name: str, angle: float) -> None:
    """Let a name point outwards in one line, readable from left to right."""
    is_left = math.cos(angle) < -1e-9
    text.set(
        text=shorten(name, 22),
        ha="right" if is_left else "left",
        va="center",
        rotation=math.degrees(angle) + (180 if is_left else 0),
        rotation_mode="anchor",
    )


def _fit(ax: Axes, texts: Sequence[Text], angles: np.ndarray) -> float:
    """Make the circle as large as it can be with all names inside the axes; return its radius.

    A name keeps its size in points while its client moves, so what it needs on each side is known
    for every scale; the centre moves away from long names.
    """
    places = np.column_stack([np.cos(angles), np.sin(angles)])
    points = 72 / ax.get_figure(root=True).dpi  # pyright: ignore[reportOptionalMemberAccess]
    boxes = np.array([text.get_window_extent().get_points() for text in texts])
    offsets = points * (boxes - ax.transData.transform(places)[:, None, :])
    lower = np.minimum(offsets[:, 0], -NAME_GAP)
    upper = np.maximum(offsets[:, 1], NAME_GAP)
    size = np.array(axes_size(ax))

    def needed(scale: float) -> tuple[np.ndarray, np.ndarray]:
        return (-scale * places - lower).max(axis=0), (scale * places + upper).max(axis=0)

    smallest, largest = 0.15 * float(size.min()), 0.5 * float(size.max())
    for _ in range(30):
        scale = (smallest + largest) / 2
        if (np.add(*needed(scale)) <= 0.99 * size).all():
            smallest = scale
        else:
            largest = scale
    before, after = needed(smallest)
    low = -(before + (size - before - after) / 2) / smallest
    high = low + size / smallest
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])
    return smallest
