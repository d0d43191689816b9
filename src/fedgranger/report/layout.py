"""Geometry of the graph picture: clients on a circle, labels around it, curved edges inside.

The centre is (0, 0) and y points down, as in SVG. Labels stand upright while they have room
and turn to the radial direction when they would touch each other.
"""

import math
import unicodedata
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

from fedgranger.text import shorten

__all__ = ["Box", "Curve", "Label", "Layout", "curve_between", "place_clients", "text_width"]

LABEL_GAP = 6.0
PADDING = 8.0
LINE_HEIGHT = 1.2
WRAP_CHARS = 16
CURVATURE = 0.16
PULL = 0.15


class Point(NamedTuple):
    """A point or a direction."""

    x: float
    y: float


class Box(NamedTuple):
    """An upright rectangle."""

    left: float
    top: float
    right: float
    bottom: float


class Label(NamedTuple):
    """Text lines with the anchor and baseline of the first line; `rotation` in degrees."""

    lines: tuple[str, ...]
    at: Point
    anchor: str
    rotation: float
    box: Box


class Layout(NamedTuple):
    """Everything that depends on the clients alone."""

    radius: float
    node_radius: float
    font_size: float
    max_width: float
    positions: tuple[Point, ...]
    labels: tuple[Label, ...]
    view: Box


class Curve(NamedTuple):
    """A quadratic curve from `start` to `end`, and the corners of its arrowhead, tip first."""

    start: Point
    control: Point
    end: Point
    head: tuple[Point, Point, Point]


def text_width(text: str, font_size: float) -> float:
    """Estimate from above the width of a line in a wide sans-serif face."""
    return font_size * sum(_char_width(char) for char in text)


def place_clients(names: Sequence[str]) -> Layout:
    """Put the clients clockwise on a circle, the first at the top (two: left and right)."""
    count = len(names)
    font_size = 13.0 if count <= 32 else 11.0
    node_radius = 6.0 if count <= 12 else 5.0 if count <= 32 else 4.0
    radius = max(
        90 + 32 * math.log2(max(count, 2) / 2),
        count * font_size * LINE_HEIGHT / (2 * math.pi),
    )
    first = -math.pi if count == 2 else -math.pi / 2
    angles = [first + 2 * math.pi * index / count for index in range(count)]
    inset = node_radius + LABEL_GAP
    labels = _place_labels(_upright_label, names, angles, radius + inset, font_size)
    if _collide(labels):
        wider = 1.25 * radius
        labels = _place_labels(_upright_label, names, angles, wider + inset, font_size)
        radius = radius if _collide(labels) else wider
    if _collide(labels):
        labels = _place_labels(_radial_label, names, angles, radius + inset, font_size)
    positions = tuple(_polar(radius, angle) for angle in angles)
    edge_box = Box(*_bounds(positions, node_radius + 6))
    boxes = [edge_box, *(label.box for label in labels)]
    view = Box(
        min(box.left for box in boxes) - PADDING,
        min(box.top for box in boxes) - PADDING,
        max(box.right for box in boxes) + PADDING,
        max(box.bottom for box in boxes) + PADDING,
    )
    max_width = 4.5 if count <= 12 else 3.5 if count <= 32 else 2.5
    return Layout(radius, node_radius, font_size, max_width, positions, labels, view)


def curve_between(layout: Layout, cause: int, effect: int, width: float) -> Curve:
    """Bend an edge to the right of its direction, so that a pair's two edges part.

    The bend towards the rim is limited such that the curve stays clear of the clients between
    the two ends; the opposite edge then bends further inwards by the same amount. With many
    clients, short edges are pulled towards the centre, or they would all lie along the rim.
    """
    p, q = layout.positions[cause], layout.positions[effect]
    length = math.dist(p, q)
    normal = Point(-(q.y - p.y) / length, (q.x - p.x) / length)
    middle = Point((p.x + q.x) / 2, (p.y + q.y) / 2)
    count = len(layout.positions)
    is_adjacent = (cause - effect) % count in (1, count - 1)
    depth = math.hypot(*middle) / layout.radius
    rim = (1 - depth) * layout.radius
    pull = PULL * depth * length if count > 8 else 0.0
    apart = max(CURVATURE * length, 10.0)
    clearance = -4.0 if is_adjacent else layout.node_radius + 5.0
    outward = min(apart / 2, rim - clearance) - pull
    is_outward = normal.x * middle.x + normal.y * middle.y > 0
    bend = outward if is_outward else apart - outward
    control = Point(middle.x + 2 * bend * normal.x, middle.y + 2 * bend * normal.y)
    start = _towards(p, control, layout.node_radius + 2)
    tip = _towards(q, control, layout.node_radius + 2)
    head_length = min(6 + 1.5 * width, 0.2 * length)
    base = _towards(tip, control, head_length)
    half = max(0.42 * head_length, 0.9 * width)
    along = Point((tip.x - base.x) / head_length, (tip.y - base.y) / head_length)
    left = Point(base.x - half * along.y, base.y + half * along.x)
    right = Point(base.x + half * along.y, base.y - half * along.x)
    return Curve(start, control, base, (tip, left, right))


def _char_width(char: str) -> float:
    if unicodedata.combining(char):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return 1.15
    if char in "mwMW@%…":
        return 1.0
    if char in "iljIft.,:;'|![]()/ -":
        return 0.42
    if not char.isascii() or char.isupper() or char in "&<>=+~#":
        return 0.85
    return 0.66


def _polar(radius: float, angle: float) -> Point:
    return Point(radius * math.cos(angle), radius * math.sin(angle))


def _towards(start: Point, goal: Point, distance: float) -> Point:
    share = distance / max(math.dist(start, goal), 1e-9)
    return Point(start.x + share * (goal.x - start.x), start.y + share * (goal.y - start.y))


def _wrap(name: str) -> tuple[str, ...]:
    """Break a name of more than 16 characters after the separator nearest its middle."""
    if len(name) <= WRAP_CHARS:
        return (name,)
    half = len(name) / 2
    breaks = [i + 1 for i, char in enumerate(name[:-1]) if char in " _-./:," and i > 0]
    at = min(breaks, key=lambda i: abs(i - half), default=round(half))
    if max(at, len(name) - at) > 1.5 * WRAP_CHARS:
        at = round(half)
    return (name[:at].rstrip(), name[at:].lstrip())


def _place_labels(
    place_fn: Callable[[str, float, float, float], Label],
    names: Sequence[str],
    angles: Sequence[float],
    reach: float,
    font_size: float,
) -> tuple[Label, ...]:
    pairs = zip(names, angles, strict=True)
    return tuple(place_fn(name, angle, reach, font_size) for name, angle in pairs)


def _collide(labels: Sequence[Label]) -> bool:
    return any(_touch(a.box, b.box) for a, b in combinations(labels, 2))


def _upright_label(name: str, angle: float, reach: float, font_size: float) -> Label:
    lines = _wrap(shorten(name, 30))
    width = max(text_width(line, font_size) for line in lines)
    height = len(lines) * font_size * LINE_HEIGHT
    at = _polar(reach, angle)
    cosine, sine = math.cos(angle), math.sin(angle)
    anchor = "start" if cosine > 0.2 else "end" if cosine < -0.2 else "middle"
    left = at.x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    top = at.y + (sine - 1) * height / 2
    box = Box(left, top, left + width, top + height)
    return Label(lines, Point(at.x, top + 0.9 * font_size), anchor, 0.0, box)


def _radial_label(name: str, angle: float, reach: float, font_size: float) -> Label:
    line = shorten(name, 30)
    width, half = text_width(line, font_size), font_size * LINE_HEIGHT / 2
    corners = [
        Point(
            r * math.cos(angle) - side * math.sin(angle),
            r * math.sin(angle) + side * math.cos(angle),
        )
        for r in (reach, reach + width)
        for side in (-half, half)
    ]
    is_left = math.cos(angle) < -1e-9
    rotation = math.degrees(angle) + (180 if is_left else 0)
    anchor = "end" if is_left else "start"
    # The baseline lies a third of the font size below the ray, seen in reading direction.
    drop = 0.34 * font_size * (-1 if is_left else 1)
    at = Point(
        reach * math.cos(angle) - drop * math.sin(angle),
        reach * math.sin(angle) + drop * math.cos(angle),
    )
    return Label((line,), at, anchor, rotation, Box(*_bounds(corners, 0.0)))


def _bounds(points: Sequence[Point], margin: float) -> tuple[float, float, float, float]:
    xs, ys = [p.x for p in points], [p.y for p in points]
    return min(xs) - margin, min(ys) - margin, max(xs) + margin, max(ys) + margin


def _touch(a: Box, b: Box, gap: float = 2.0) -> bool:
    return (
        a.left < b.right + gap
        and b.left < a.right + gap
        and a.top < b.bottom + gap
        and b.top < a.bottom + gap
    )
