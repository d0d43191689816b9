"""`fedgranger compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import Correction, Json, busy
from fedgranger.errors import RunError
from fedgranger.option_fields import check_level


@examples(
    "fedgranger compare run-january run-june",
    "fedgranger compare run plant.graphml --all",
)
def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    second: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|GRAPH",
            help="Another run folder, or a known graph: truth.json, .csv, .graphml or "
            "node-link .json.",
        ),
    ],
    alpha: Annotated[float | None, typer.Option(help="Another level than the runs'.")] = None,
    correction: Correction = None,
    json_output: Json = False,
    all_pairs: Annotated[
        bool, typer.Option("--all", help="List pairs without an edge, too.")
    ] = False,
) -> None:
    """Say which edges appeared, disappeared or stayed between two runs, or against a graph."""
    check_level("--alpha", alpha)
    if first.is_file():
        raise RunError(f"{first}: is a file; give the run folder first, then the known graph")
    with busy(f"reading {first} and {second}"):
        from fedgranger.cli.compare_screen import find_changes, show_changes

        found = find_changes(first, second, alpha, correction)
    show_changes(found, first, second, all_pairs, json_output=json_output)
