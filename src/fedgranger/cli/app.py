"""The `fedgranger` command."""

from __future__ import annotations

from typing import Annotated

import typer

from fedgranger._version import __version__
from fedgranger.cli.compare import compare
from fedgranger.cli.datasets import datasets
from fedgranger.cli.demo import demo
from fedgranger.cli.diagnose import diagnose
from fedgranger.cli.edges import edges
from fedgranger.cli.evaluate import evaluate
from fedgranger.cli.export import export
from fedgranger.cli.federation import federation
from fedgranger.cli.fit import fit
from fedgranger.cli.rca import rca
from fedgranger.cli.report import report
from fedgranger.cli.reproduce import reproduce
from fedgranger.cli.simulate import simulate
from fedgranger.cli.study import study
from fedgranger.cli.watch import watch

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Federated Granger causality: which party drives which, without sharing raw data.",
)
for command in (demo, simulate, fit, edges, diagnose, evaluate, report, rca):
    app.command()(command)
for command in (watch, compare, export):
    app.command()(command)
app.add_typer(datasets, name="datasets")
app.add_typer(federation, name="federation")
app.add_typer(study, name="study")
app.add_typer(reproduce, name="reproduce")


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"fedgranger {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Run the command line."""
    app()
