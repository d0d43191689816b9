"""Formats by name, for the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Unpack

from fedgranger.config import check_choice
from fedgranger.export.dot import to_dot
from fedgranger.export.graph import Choice
from fedgranger.export.graphml import to_graphml
from fedgranger.export.node_link import to_node_link
from fedgranger.export.table import to_csv
from fedgranger.results import Result

__all__ = ["FORMATS", "export_text"]

FORMATS = ("graphml", "dot", "json", "csv")


def export_text(result: Result, format_name: str, **choice: Unpack[Choice]) -> str:
    """Return the graph in one of `FORMATS`.

    Args:
        result: the run.
        format_name: graphml, dot, json (node-link) or csv.
        **choice: `alpha`, `correction`, `all_edges`, see `collect_graph`.
    """
    check_choice("format", format_name, FORMATS)
    writers: dict[str, Callable[..., str]] = {
        "graphml": to_graphml,
        "dot": to_dot,
        "json": _to_json,
        "csv": to_csv,
    }
    return writers[format_name](result, **choice)


def _to_json(result: Result, **choice: Unpack[Choice]) -> str:
    # ASCII, so that even file names that are not valid text survive.
    return json.dumps(to_node_link(result, **choice), indent=1, allow_nan=False) + "\n"
