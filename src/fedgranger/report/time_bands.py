"""The section on edges over time: a picture per edge, a line per edge, and what drifts."""

import numpy as np
import pandas as pd

from fedgranger.inference.followed_edges import (
    FollowedEdge,
    change_sentences,
    followed_edges,
    over_time_doubt,
)
from fedgranger.report.pairs import MAX_ROWS
from fedgranger.report.view import Chart, Column, Section, Table
from fedgranger.tested_facts import InferenceFacts
from fedgranger.text import format_number, format_probability

MOST_PICTURES = 24
COLUMNS = ("cause", "effect", "over time", "found from - to", "least", "most", "p")
HEADINGS = ("from", "to", "strength", "band from", "to", "edge")
TABLE_CAPTION = "Edges over time, most certain first"


def time_bands_view(over_time: pd.DataFrame | None, inference: InferenceFacts) -> Section | None:
    """Strengths with bands that hold all along the record; None when edges were not followed."""
    if over_time is None or over_time.empty:
        return None
    edges = followed_edges(over_time, MAX_ROWS)
    tested = [edge for edge in edges if np.isfinite(edge.p_value)]
    drawn = tested[:MOST_PICTURES]
    highest = float(np.nanmax([edge.stretches["ci_high"].max() for edge in drawn] or [1.0]))
    changes = change_sentences(inference)
    tests = None if inference.drift is None else inference.drift.num_tests
    return {
        "charts": tuple(_chart(k, edge, highest) for k, edge in enumerate(drawn)),
        "table": _table(edges),
        "more": len(over_time[["cause", "effect"]].drop_duplicates()) - len(edges),
        "confidence": f"{100 * inference.confidence:g} %",
        "doubt": over_time_doubt(inference),
        "changes": changes,
        "num_tests": None if changes else tests,
    }


def _table(edges: list[FollowedEdge]) -> Table:
    rows = []
    for edge in edges:
        strengths = format_number(edge.least), format_number(edge.most)
        words = (edge.cause, edge.effect, edge.path, edge.when or "–")
        rows.append([*words, *strengths, format_probability(edge.p_value)])
    columns = [Column(name, is_number=k > 3) for k, name in enumerate(COLUMNS)]
    return Table(TABLE_CAPTION, columns, rows)


def _chart(place: int, edge: FollowedEdge, highest: float) -> Chart:
    own = edge.stretches
    numbers = own[["strength", "ci_low", "ci_high"]].to_numpy(dtype=np.float64)
    drawn = [
        [*(float(f"{x:.6g}") if np.isfinite(x) else None for x in row), mark == "#"]
        for row, mark in zip(numbers, edge.path, strict=True)
    ]
    words = {"#": "yes", ".": "no", "?": "not tested"}
    cells = [
        [str(start), str(end), *map(format_number, row), words[mark]]
        for start, end, row, mark in zip(own["start"], own["end"], numbers, edge.path, strict=True)
    ]
    ends = _short_times(str(own["start"].iloc[0]), str(own["end"].iloc[-1]))
    data = {"kind": "followed", "rows": drawn, "ends": ends, "highest": highest}
    title = f"{edge.cause} → {edge.effect}"
    seen = f"found from {edge.when}" if edge.when else "found in no stretch"
    least, most = format_number(edge.least), format_number(edge.most)
    span = f"strength {least} to {most} in {len(own)} stretches"
    return Chart(f"followed-{place}", title, f"{seen}; {span}", data, HEADINGS, cells)


def _short_times(start: str, end: str) -> list[str]:
    """First and last time, short enough for an axis: days, or hours within one day."""
    if "T" not in start:
        return [start, end]
    place = 0 if start[:10] != end[:10] else 1
    return [time.split("T")[place] for time in (start, end)]
