"""`fedgranger rca`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import RUNTIMES, RcaJson, Suspects, busy
from fedgranger.cli.options import with_options
from fedgranger.data.reading_options import FileOptions
from fedgranger.errors import ConfigError
from fedgranger.federation.agreed_options import WatchOptions
from fedgranger.option_fields import check_choice

SHOWN_SUSPECTS = 5


@dataclass(frozen=True, kw_only=True)
class NewDataOptions(FileOptions, WatchOptions):
    """How new data are written, and how they are watched."""


@examples(
    "fedgranger rca run --data today/",
    "fedgranger rca run --data today/ --window 2026-03-01T08:00/2026-03-01T09:30",
    "fedgranger rca run --data live/ --follow --every 60",
    "fedgranger rca run --history",
)
@with_options(NewDataOptions)
def rca(
    run: Annotated[Path, typer.Argument(help="Run folder, fitted on normal data.")],
    data: Annotated[
        Path | None, typer.Option("--data", help="New data: same clients and sensors.")
    ] = None,
    window: Annotated[
        list[str] | None,
        typer.Option(
            help="FIRST:LAST+1 in steps, or FROM/TO in the data's own time; may be repeated. "
            "Without it, alarms are raised as the data arrive."
        ),
    ] = None,
    partition: Annotated[Path | None, typer.Option(help="Client -> columns of one table.")] = None,
    top: Suspects = SHOWN_SUSPECTS,
    runtime: Annotated[
        str,
        typer.Option(
            help="inprocess, or flare: every client a process of FLARE's simulator.",
            rich_help_panel="Simulated parties",
        ),
    ] = "inprocess",
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Go on reading files that grow, until Ctrl-C."),
    ] = False,
    every: Annotated[
        float, typer.Option(help="Seconds between two readings with --follow.", min=0.1)
    ] = 10.0,
    history: Annotated[
        bool, typer.Option("--history", help="List the incidents that were analysed before.")
    ] = False,
    json_output: RcaJson = False,
    *,
    given: dict[str, Any],
) -> None:
    """Rank the clients by how likely they started an anomaly, with the evidence.

    Exit status 4: an alarm was raised (without --window). Sensors that strayed from their usual
    level without an alarm are named, and the status is 0.
    """
    options = NewDataOptions.from_mapping(given)
    asked = WatchOptions(**options.values_of(WatchOptions))
    check_choice("runtime", runtime, RUNTIMES)
    if data is None and not history:
        raise ConfigError("rca needs --data, the folder with the new data, or --history")
    if follow and (window or runtime == "flare" or json_output):
        raise ConfigError("--follow goes without --window, --json and --runtime flare")
    if window and runtime == "flare":
        raise ConfigError(
            "--window ranks the steps that you name, which is done in one process; --runtime flare "
            "raises alarms as the data arrive: leave one of the two out"
        )
    with busy(f"reading {run}"):
        from fedgranger.cli.rca_screen import Analysis, follow_data, print_history, show_suspects
        from fedgranger.results import Result

        result = Result.load(run)
    if history or data is None:
        print_history(run, data, json_output=json_output)
        return
    analysis = Analysis(result, run, data, partition, options, asked)
    if follow:
        follow_data(analysis, every, top)
    else:
        show_suspects(analysis, window, runtime, top, json_output=json_output)
