"""A comma-separated list of edges, for spreadsheets and scripts."""

from __future__ import annotations

import re
from typing import Unpack

from fedgranger.export.graph import Choice, Scalar, check_names, collect_graph
from fedgranger.results import Result
from fedgranger.run_folder import plain_cell

__all__ = ["to_csv"]

NOT_TEXT = re.compile("\x00")


def to_csv(result: Result, **choice: Unpack[Choice]) -> str:
    """Return one line per edge with all columns of `Result.edges`; missing values are empty.

    Names that a spreadsheet would compute stand behind an apostrophe.

    Args:
        result: the run.
        **choice: `alpha`, `correction`, `all_edges`, see `collect_graph`.

    Raises:
        ConfigError: a name has a character that a text file cannot hold.
    """
    graph = collect_graph(result, **choice)
    check_names(graph, NOT_TEXT, "a text file")
    rows = [["cause", "effect", *graph.columns]]
    rows += [
        [
            plain_cell(cause),
            plain_cell(effect),
            *(_cell(values.get(name)) for name in graph.columns),
        ]
        for cause, effect, values in graph.edges
    ]
    return "".join(",".join(_quote(cell) for cell in row) + "\n" for row in rows)


def _cell(value: Scalar | None) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quote(text: str) -> str:
    """The csv module of Python 3.11 leaves a lone carriage return without quotes."""
    if re.search(r'[,"\r\n]|^\s|\s$', text):
        return '"' + text.replace('"', '""') + '"'
    return text
