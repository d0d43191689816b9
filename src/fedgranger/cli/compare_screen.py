"""What `fedgranger compare` shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from rich.markup import escape

from fedgranger.cli.console import out, print_json, print_line
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.data.known_graph import read_known_graph
from fedgranger.edge_test_kinds import CORRECTIONS
from fedgranger.evaluation.comparison import Comparison, compare_runs, compare_with_graph
from fedgranger.option_fields import check_choice
from fedgranger.results import Result
from fedgranger.text import counted, format_digits

COLOURS = {
    "appeared": "green",
    "extra": "yellow",
    "disappeared": "red",
    "missed": "red",
    "absent": "dim",
    "not tested": "dim",
}


def find_changes(
    first: Path, second: Path, alpha: float | None, correction: str | None
) -> Comparison:
    """Compare a run with another, or with a known graph."""
    if correction is not None:
        check_choice("--correction", correction, CORRECTIONS)
    result = Result.load(first)
    if second.is_file():
        graph = read_known_graph(second, result.clients)
        return compare_with_graph(result, graph, alpha=alpha, correction=correction)
    return compare_runs(result, Result.load(second), alpha=alpha, correction=correction)


def show_changes(
    found: Comparison, first: Path, second: Path, all_pairs: bool, *, json_output: bool
) -> None:
    """What changed, in a table or as JSON."""
    if json_output:
        print_json(_plain(found, first, second, all_pairs))
    else:
        _show(found, first, second, all_pairs)


def _show(found: Comparison, first: Path, second: Path, all_pairs: bool) -> None:
    print_line(found.headline)
    out.print(f"[dim]1:[/] {escape(str(first))}   [dim]2:[/] {escape(str(second))}", soft_wrap=True)
    rows = _shown(found.edges, all_pairs)
    if len(rows):
        out.print()
        out.print(_edge_changes(rows))
    if second.is_dir() and (found.only_first or found.only_second):
        out.print()
    for number, clients in ((1, found.only_first), (2, found.only_second)):
        for name, count in clients.items() if second.is_dir() else ():
            edges = counted(count, "supported edge")
            print_line(f"client '{name}' is only in {number}: {edges} with it not compared")
    if second.is_dir():
        _show_settings(found)
    if found.notes:
        out.print()
    for note in found.notes:
        print_line(note, "[dim]note:[/] ")


def _shown(edges: pd.DataFrame, all_pairs: bool) -> pd.DataFrame:
    shown = [all_pairs or change not in ("absent", "not tested") for change in edges["change"]]
    return edges.loc[shown]


def _edge_changes(rows: pd.DataFrame) -> NarrowTable:
    """Both runs' values in one cell, so that the table fits a terminal of 80 columns."""
    has_intervals = "intervals" in rows and bool(rows["intervals"].notna().any())
    names = ["change", "cause", "effect"]
    columns = [*names, "strength", "q", *(["intervals"] if has_intervals else [])]
    lines = []
    for row in rows.to_dict("records"):
        cells = [row["change"], escape(row["cause"]), escape(row["effect"])]
        cells += [_both(row, "strength", 3), _both(row, "q_value", 2)]
        lines.append([*cells, *([row["intervals"] or ""] if has_intervals else [])])
    styles = [COLOURS.get(change) for change in rows["change"]]
    return NarrowTable(columns, lines, names, ("intervals", "strength"), styles)


def _both(row: dict[Any, Any], name: str, digits: int) -> str:
    if name in row:
        return format_digits(row[name], digits, empty="?")
    first, second = (
        format_digits(row[f"{name}_{which}"], digits, empty="?") for which in ("first", "second")
    )
    return f"{first:>7} -> {second}"


def _show_settings(found: Comparison) -> None:
    data = {True: "the same data", False: "different data", None: "data not known to be the same"}
    out.print(f"\n{data[found.is_same_data]}, ", end="")
    if found.settings.empty:
        out.print("the same options")
        return
    out.print("different options:")
    columns = ("option", "1", "2")
    rows = ((escape(str(value)) for value in row) for _, row in found.settings.iterrows())
    out.print(NarrowTable(columns, rows, columns))


def _plain(found: Comparison, first: Path, second: Path, all_pairs: bool) -> dict[str, Any]:
    rows = [
        {name: None if pd.isna(value) else value for name, value in row.items()}
        for row in _shown(found.edges, all_pairs).to_dict("records")
    ]
    return {
        "headline": found.headline,
        "first": str(first),
        "second": str(second),
        "edges": rows,
        "only_first": found.only_first,
        "only_second": found.only_second,
        "is_same_data": found.is_same_data,
        "settings": {
            row["option"]: [row["first"], row["second"]]
            for row in found.settings.to_dict("records")
        },
        "notes": list(found.notes),
    }
