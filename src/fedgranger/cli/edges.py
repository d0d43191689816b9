"""`fedgranger edges`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.console import friendly, out
from fedgranger.cli.tables import edge_table
from fedgranger.errors import ConfigError
from fedgranger.results import Result

__all__ = ["edges"]


@friendly
def edges(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    top: Annotated[int | None, typer.Option(help="Show only the strongest N.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """List the edges of a run, strongest first."""
    if top is not None and top < 1:
        raise ConfigError(f"--top is {top}; it must be at least 1")
    table = Result.load(run).edges(sort=True)
    if json_output:
        typer.echo(table.head(top if top is not None else len(table)).to_json(orient="records"))
        return
    out.print(edge_table(table, top))
