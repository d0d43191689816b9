"""`fedgranger report`."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import (
    Json,
    ReplaceFile,
    Run,
    busy,
    check_new_file,
    print_beside,
    print_json,
    print_line,
)
from fedgranger.errors import RunError


@examples("fedgranger report run --open", "fedgranger report run --out for-the-plant.html")
def report(
    run: Run,
    target: Annotated[
        Path | None, typer.Option("--out", help="File to write; default RUN/report.html.")
    ] = None,
    overwrite: ReplaceFile = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    json_output: Json = False,
) -> None:
    """Write the report of a run again: one page that needs no network."""
    path = run / "report.html" if target is None else target
    if path.is_dir():
        raise RunError(f"{path}: is a folder; give --out a file name such as {path}/report.html")
    check_new_file(target, overwrite=overwrite)
    with busy(f"reading {run}"):
        from fedgranger.report.html import write_run_report
        from fedgranger.results import Result

        write_run_report(path, Result.load(run), run)
    if json_output:
        print_json({"written": path})
    else:
        print_line(f"written to {path}")
    if open_page and not webbrowser.open(path.resolve().as_uri()):
        print_beside("no browser was found; open the file yourself")
