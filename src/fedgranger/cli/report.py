"""`fedgranger report`."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.console import Run, friendly, out, print_line
from fedgranger.errors import RunError
from fedgranger.report.html import write_run_report
from fedgranger.results import Result


@friendly
def report(
    run: Run,
    target: Annotated[
        Path | None, typer.Option("--out", help="File to write; default RUN/report.html.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write the report of a run again: one page that needs no network."""
    result = Result.load(run)
    path = run / "report.html" if target is None else target
    if path.is_dir():
        raise RunError(f"{path}: is a folder; give --out a file name such as {path}/report.html")
    write_run_report(path, result, run)
    print_line(f"written to {path}")
    if open_page and not webbrowser.open(path.resolve().as_uri()):
        out.print("no browser was found; open the file yourself")
