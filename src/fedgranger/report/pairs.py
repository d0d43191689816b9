"""Sections on pairs of clients: graph with its controls, matrix, intervals, table."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from fedgranger.report.graph import draw_graph
from fedgranger.report.markup import Column, table
from fedgranger.report.payload import DRAWN, MAX_ROWS, page_reasons
from fedgranger.report.selection import by_strength, edge_flags, has_test
from fedgranger.text import format_number

__all__ = ["forest_section", "graph_section", "matrix_section", "pairs_section"]

SMALLEST_SHOWN = 1e-99
CONTROLS = """<form id="controls" hidden aria-label="What counts as an edge">
<label>level α <input id="alpha" type="number" min="0" max="1" step="0.01" inputmode="decimal" \
list="levels"></label>
<datalist id="levels"><option>0.001<option>0.01<option>0.05<option>0.1<option>0.2</datalist>
<label>correction <select id="correction"><option value="bh">Benjamini–Hochberg</option>
<option value="by">Benjamini–Yekutieli</option><option value="holm">Holm</option>
<option value="none">none</option></select></label>
<label>test <select id="test"></select></label>
<button id="reset" type="button">reset</button>
<button id="theme" type="button" aria-pressed="false">dark</button>
<output id="status" role="status"><strong id="count"></strong> <span id="own"></span></output>
<p id="chosen-question" hidden></p>
</form>"""
LEGEND = """<ul class="legend" aria-label="Confidence">
<li class="grade-high">q ≤ 0.001</li><li class="grade-mid">q ≤ 0.01</li>
<li class="grade-low">q above 0.01</li></ul>"""


def graph_section(clients: Sequence[str], pairs: pd.DataFrame) -> str:
    """Return the controls and the graph as the run decided it; without a test it has no arrows."""
    if not clients:
        return ""
    is_tested = has_test(pairs)
    which = DRAWN["test" if is_tested else "none"]
    return (
        f"{CONTROLS if len(pairs) else ''}\n"
        "<section id='graph'><h2>Graph</h2>\n<figure><div class='scroll'>\n"
        f"{draw_graph(clients, pairs, standalone=False)}</div>\n"
        f"{LEGEND if is_tested else ''}<figcaption><span id='drawn'>{which}</span>"
        "</figcaption></figure>\n"
        "<div id='detail' hidden></div></section>"
    )


def matrix_section(pairs: pd.DataFrame) -> str:
    """Return the frame that the script fills with all pairs."""
    if pairs.empty:
        return ""
    marked = " Framed: edges." if has_test(pairs) else ""
    return (
        "<section id='matrix'><h2>Matrix</h2>\n<figure><div class='scroll' id='matrix-stage' "
        f"tabindex='0' role='region' aria-label='Matrix'>{_without_script()}</div>"
        "<figcaption>Rows are effects, columns are causes; the fuller the colour, the "
        "stronger."
        f"{marked} Small numbers: the interval of the strength. A cross: not tested."
        "</figcaption></figure></section>"
    )


def forest_section(pairs: pd.DataFrame) -> str:
    """Return the frame that the script fills with strengths and intervals."""
    if pairs.empty:
        return ""
    return (
        "<section id='forest'><h2>Strength of each edge</h2>\n<figure>"
        f"<ul id='forest-stage' class='forest'><li>{_without_script()}</li></ul>"
        "<p class='caption' id='forest-more'></p><figcaption>Frobenius norm of the pair's block "
        "with its interval, which begins at 0 exactly when the edge's own test, without "
        "correction, finds nothing at that confidence.</figcaption></figure></section>"
    )


def pairs_section(pairs: pd.DataFrame, facts: Mapping[str, Any]) -> str:
    """Return the table of pairs: supported edges first, then by strength.

    Args:
        pairs: the edge table.
        facts: of its test; why a pair was not tested.
    """
    if pairs.empty:
        return ""
    flags, reasons = edge_flags(pairs), page_reasons(pairs, facts)
    order = sorted(by_strength(pairs), key=lambda row: flags[row] is not True)[:MAX_ROWS]
    headings = ("strength", "interval", "statistic", "df", "p-value", "q-value")
    columns = [Column("cause"), Column("effect"), *(Column(name, True) for name in headings)]
    columns.append(Column("edge"))
    records = pairs.to_dict("records")
    rows = [_row(records[row], flags[row], reasons[row]) for row in order]
    is_cut = len(pairs) > MAX_ROWS
    note = f"<p>The first {MAX_ROWS} of {len(pairs)} pairs; edges.csv has all.</p>\n"
    body = table(columns, rows, caption="Pairs of clients, edges first, then by strength")
    return (
        f"<section id='edges'><h2>Pairs</h2>\n{note if is_cut else ''}<div id='pairs'>{body}</div>"
        "</section>"
    )


def _row(pair: Mapping[Hashable, Any], flag: bool | None, reason: str | None) -> list[str]:
    low, high = pair.get("ci_low"), pair.get("ci_high")
    has_range = low is not None and high is not None and pd.notna(low) and pd.notna(high)
    degrees = pair.get("df")
    return [
        pair["cause"],
        pair["effect"],
        format_number(pair["strength"]),
        f"{format_number(low)} to {format_number(high)}" if has_range else "–",
        _number(pair.get("statistic")),
        f"{degrees:.0f}" if degrees is not None and pd.notna(degrees) else "–",
        _probability(pair.get("p_value")),
        _probability(pair.get("q_value")),
        {True: "yes", False: "no", None: f"not tested: {reason}" if reason else "not tested"}[flag],
    ]


def _number(value: float | None) -> str:
    return format_number(None if value is None or pd.isna(value) else float(value))


def _probability(value: float | None) -> str:
    if value is not None and pd.notna(value) and value < SMALLEST_SHOWN:
        return "<1e-99"
    return _number(value)


def _without_script() -> str:
    return "<noscript>This picture needs scripts; the table below has its numbers.</noscript>"
