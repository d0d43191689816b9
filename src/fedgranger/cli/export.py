"""`fedgranger export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.console import Correction, Level, Run, friendly, print_beside
from fedgranger.errors import ConfigError, RunError
from fedgranger.export.formats import FORMATS, export_text
from fedgranger.results import Result
from fedgranger.run_folder import write_atomically


@friendly
def export(
    run: Run,
    format_name: Annotated[
        str,
        typer.Option(
            "--format", help="graphml, dot (Graphviz), json (node-link: d3, networkx) or csv."
        ),
    ],
    out_file: Annotated[
        Path | None, typer.Option("--out", help="File to write; default the terminal.")
    ] = None,
    alpha: Level = None,
    correction: Correction = None,
    all_edges: Annotated[
        bool, typer.Option("--all-edges", help="Every pair of clients, not only supported edges.")
    ] = False,
) -> None:
    """Write the graph of a run for another tool."""
    if format_name not in FORMATS:
        raise ConfigError(f"--format is '{format_name}'; it must be one of {', '.join(FORMATS)}")
    if out_file is not None and out_file.is_dir():
        raise RunError(f"{out_file}: is a folder; give --out a file")
    result = Result.load(run)
    text = export_text(result, format_name, alpha=alpha, correction=correction, all_edges=all_edges)
    if out_file is None:
        typer.echo(text, nl=False)
        return
    out_file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out_file, lambda path: path.write_bytes(text.encode("utf-8")))
    print_beside(f"written to {out_file}")
