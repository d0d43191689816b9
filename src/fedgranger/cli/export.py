"""`fedgranger export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import (
    Correction,
    Level,
    ReplaceFile,
    Run,
    busy,
    check_new_file,
    print_beside,
)
from fedgranger.errors import RunError
from fedgranger.option_fields import check_choice, check_level

FORMATS = ("graphml", "dot", "json", "csv")


@examples(
    "fedgranger export run --format graphml --out graph.graphml",
    "fedgranger export run --format dot | dot -Tsvg > graph.svg",
)
def export(
    run: Run,
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            help="graphml, dot (Graphviz), json (node-link: d3, networkx) or csv.",
            autocompletion=lambda: list(FORMATS),
        ),
    ],
    out_file: Annotated[
        Path | None, typer.Option("--out", help="File to write; default the terminal.")
    ] = None,
    overwrite: ReplaceFile = False,
    alpha: Level = None,
    correction: Correction = None,
    all_edges: Annotated[
        bool, typer.Option("--all-edges", help="Every pair of clients, not only supported edges.")
    ] = False,
) -> None:
    """Write the graph of a run for another tool."""
    check_choice("--format", format_name, FORMATS)
    check_level("--alpha", alpha)
    if out_file is not None and out_file.is_dir():
        raise RunError(f"{out_file}: is a folder; give --out a file")
    check_new_file(out_file, overwrite=overwrite)
    with busy(f"reading {run}"):
        from fedgranger.disk import write_text
        from fedgranger.export.formats import export_text
        from fedgranger.results import Result

        result = Result.load(run)
    text = export_text(result, format_name, alpha=alpha, correction=correction, all_edges=all_edges)
    if out_file is None:
        typer.echo(text, nl=False)
        return
    out_file.parent.mkdir(parents=True, exist_ok=True)
    write_text(out_file, text)
    print_beside(f"written to {out_file}")
