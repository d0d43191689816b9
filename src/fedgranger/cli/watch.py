"""`fedgranger watch`: a running fit seen from another terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import busy
from fedgranger.errors import ConfigError


@examples("fedgranger watch run", "fedgranger watch run --once --json")
def watch(
    run: Annotated[Path, typer.Argument(help="Run folder of a fit that is going on.")],
    once: Annotated[bool, typer.Option("--once", help="Look once and leave.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between looks.")] = 1.0,
    json_output: Annotated[
        bool, typer.Option("--json", help="Look once and print one JSON document.")
    ] = False,
) -> None:
    """Follow a running fit until it ends; Ctrl-C leaves it alone.

    Exit code 0 when the run is going on or finished, 1 when it stopped without a result.
    """
    if not 0.1 <= interval <= 3600:
        raise ConfigError(f"--interval is {interval:g}; it must lie between 0.1 and 3600 seconds")
    with busy(f"looking at {run}"):
        from fedgranger.cli.watch_screen import check_folder, show_once, show_run

        check_folder(run)
    if json_output:
        show_once(run)
    else:
        show_run(run, interval, once=once)
