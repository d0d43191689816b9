"""The causal graph as an SVG picture."""

from collections.abc import Sequence
from importlib import resources

import pandas as pd

from fedgranger.errors import DataError
from fedgranger.report.layout import Label, Layout, curve_between, place_clients
from fedgranger.report.markup import escape
from fedgranger.report.selection import select_edges
from fedgranger.text import format_number, shorten

__all__ = ["draw_graph", "graph_style"]

MIN_WIDTH = 0.8
MIN_OPACITY = 0.5
CROWD = 80
"""From this many edges on, weak ones are drawn fainter."""
MAX_LISTED = 12
READABLE_SHARE = 0.55
"""A picture is never shrunk below this share of its natural size; it scrolls instead."""


def draw_graph(
    clients: Sequence[str],
    edges: pd.DataFrame,
    *,
    max_edges: int | None = None,
    standalone: bool = True,
) -> str:
    """Draw the clients on a circle and the directed edges between them.

    With a test (`is_edge` has values) exactly the supported edges are drawn; otherwise none, unless
    a number of the strongest pairs is asked for. Width and opacity grow with the strength; an edge
    bends to the right of its direction, so the two directions of a pair lie apart.

    Args:
        clients: all client names, in the order around the circle.
        edges: columns `cause`, `effect`, `strength` and, if a test was run, `is_edge`.
        max_edges: most edges drawn when there is no test; default none.
        standalone: True for a file of its own (name space, size, colours for light and dark);
            False for a picture inside a page that has `graph_style()` in its style sheet.

    Returns:
        The SVG text.

    Raises:
        DataError: if there is no client, a name occurs twice, or an edge names nobody.
    """
    names = [str(name) for name in clients]
    if not names:
        raise DataError("graph: no clients given; pass at least one client name")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"graph: client {twice!r} is given more than once; names must differ")
    drawn = select_edges(edges, max_edges)
    layout = place_clients(names)
    title = f"Causal graph of {_count(len(names), 'client')}: {_count(len(drawn.edges), 'edge')}"
    if not drawn.is_tested:
        title += ", the strongest (not tested)" if len(drawn.edges) else " (nothing was tested)"
    content = [
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(_describe(drawn.edges))}</desc>",
        *([f"<style>{graph_style()}</style>"] if standalone else []),
        "<g class='fg-edges'>",
        *_edge_marks(names, drawn.edges, layout),
        "</g>",
        "<g class='fg-clients'>",
        *(_client_mark(name, index, layout) for index, name in enumerate(names)),
        "</g>",
    ]
    return "\n".join([_open_tag(layout, title, standalone), *content, "</svg>"]) + "\n"


def graph_style() -> str:
    """Return the style rules of the picture, for light and dark."""
    return (
        resources.files("fedgranger.report")
        .joinpath("assets/graph.css")
        .read_text(encoding="utf-8")
    )


def _open_tag(layout: Layout, title: str, standalone: bool) -> str:
    view = layout.view
    width, height = view.right - view.left, view.bottom - view.top
    if standalone:
        size = f"xmlns='http://www.w3.org/2000/svg' width='{width:.0f}' height='{height:.0f}'"
    else:
        size = f"style='min-width:{READABLE_SHARE * width:.0f}px;max-width:{1.35 * width:.0f}px'"
    return (
        f"<svg {size} viewBox='{view.left:.2f} {view.top:.2f} {width:.2f} {height:.2f}' "
        f"class='fg-graph' role='img' aria-label='{escape(title)}' "
        f"font-size='{layout.font_size:g}'>"
    )


def _edge_marks(names: list[str], edges: pd.DataFrame, layout: Layout) -> list[str]:
    """Draw the edges, weakest first, so that the strongest lie on top."""
    index_of = {name: index for index, name in enumerate(names)}
    strongest = max((abs(s) for s in edges["strength"] if abs(s) >= 0), default=0.0)
    faintest = max(0.2, MIN_OPACITY * min(1.0, CROWD / max(len(edges), 1)))
    marks = []
    rows = list(zip(edges["cause"], edges["effect"], edges["strength"], strict=True))
    for cause, effect, strength in reversed(rows):
        for name in (cause, effect):
            if name not in index_of:
                raise DataError(f"graph: an edge names client {name!r}, who is not in the list")
        share = abs(strength) / strongest if strongest > 0 and abs(strength) >= 0 else 0.0
        width = max(MIN_WIDTH, layout.max_width * share)
        opacity = faintest + (1 - faintest) * share
        curve = curve_between(layout, index_of[cause], index_of[effect], width)
        corners = " ".join(f"{x:.2f},{y:.2f}" for x, y in curve.head)
        marks.append(
            f"<g class='fg-edge' opacity='{opacity:.2f}'>"
            f"<title>{escape(_edge_text(cause, effect, strength))}</title>"
            f"<path class='fg-line' stroke-width='{width:.2f}' "
            f"d='M{curve.start.x:.2f},{curve.start.y:.2f} "
            f"Q{curve.control.x:.2f},{curve.control.y:.2f} "
            f"{curve.end.x:.2f},{curve.end.y:.2f}'/>"
            f"<polygon class='fg-head' points='{corners}'/></g>"
        )
    return marks


def _client_mark(name: str, index: int, layout: Layout) -> str:
    at, label = layout.positions[index], layout.labels[index]
    return (
        f"<g class='fg-client'><title>{escape(name)}</title>"
        f"<circle cx='{at.x:.2f}' cy='{at.y:.2f}' r='{layout.node_radius:g}'/>"
        f"{_label_mark(label, layout.font_size)}</g>"
    )


def _label_mark(label: Label, font_size: float) -> str:
    x, y = label.at
    turn = f" transform='rotate({label.rotation:.2f} {x:.2f} {y:.2f})'" if label.rotation else ""
    lines = "".join(
        f"<tspan x='{x:.2f}' y='{y + row * 1.2 * font_size:.2f}'>{escape(line)}</tspan>"
        for row, line in enumerate(label.lines)
    )
    return f"<text text-anchor='{label.anchor}'{turn}>{lines}</text>"


def _edge_text(cause: str, effect: str, strength: float) -> str:
    return f"{cause} → {effect}: strength {format_number(strength)}"


def _describe(edges: pd.DataFrame) -> str:
    """List the strongest edges in words, for those who cannot see the picture."""
    if edges.empty:
        return "No edges are drawn."
    top = edges.head(MAX_LISTED)
    listed = "; ".join(
        _edge_text(shorten(c, 30), shorten(e, 30), s)
        for c, e, s in zip(top["cause"], top["effect"], top["strength"], strict=True)
    )
    more = len(edges) - len(top)
    return f"{listed}; and {more} weaker." if more else f"{listed}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
