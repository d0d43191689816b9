"""`fedgranger rca`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fedgranger.cli.console import friendly, progress_report
from fedgranger.cli.options import with_options
from fedgranger.cli.tables import SHOWN_SUSPECTS, print_rankings
from fedgranger.data.align import regular_panel
from fedgranger.data.panel import Panel
from fedgranger.data.panel_files import read_panel
from fedgranger.data.reading_options import FileOptions, as_measured
from fedgranger.errors import ConfigError, DataError
from fedgranger.federation.watching import WatchOptions
from fedgranger.flare.simulation import watch_simulated
from fedgranger.option_fields import check_choice
from fedgranger.rca import OnlineAnalysis, Ranking, gather, rank
from fedgranger.rca.knowledge import strength_matrix
from fedgranger.rca.ranking import rankings_text
from fedgranger.report.html import write_run_report
from fedgranger.results import ROOT_CAUSE_FILE, Result
from fedgranger.run_folder import write_atomically


@dataclass(frozen=True, kw_only=True)
class NewDataOptions(FileOptions, WatchOptions):
    """How new data are written, and how they are watched."""


@friendly
@with_options(NewDataOptions)
def rca(
    run: Annotated[Path, typer.Argument(help="Run folder, fitted on normal data.")],
    data: Annotated[Path, typer.Option("--data", help="New data: same clients and sensors.")],
    window: Annotated[
        list[str] | None,
        typer.Option(
            help="FIRST:LAST+1 in steps, or FROM/TO in the data's own time; may be repeated. "
            "Without it, alarms are raised as the data arrive."
        ),
    ] = None,
    partition: Annotated[Path | None, typer.Option(help="Client -> columns of one table.")] = None,
    top: Annotated[int, typer.Option(help="Suspects to show.", min=1)] = SHOWN_SUSPECTS,
    runtime: Annotated[
        str,
        typer.Option(help="inprocess, or flare: every client a process of FLARE's simulator."),
    ] = "inprocess",
    json_output: Annotated[bool, typer.Option("--json", help="Print rca.json's text.")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Rank the clients by how likely they started an anomaly, with the evidence."""
    options = NewDataOptions.from_mapping(given)
    asked = WatchOptions(**{name: getattr(options, name) for name in WatchOptions.names()})
    check_choice("runtime", runtime, ("inprocess", "flare"))
    result = Result.load(run)
    panel = read_panel(data, partition, as_measured(options))
    if window and runtime == "flare":
        raise ConfigError("--window is for one process; leave it or --runtime flare out")
    panel = regular_panel(panel).panel  # short gaps are missing rows, as between parties
    if runtime == "flare":
        found = watch_simulated(result, panel, asked)
    elif window:
        found = _given(result, panel, window, asked.scorer)
    else:
        found = _online(result, panel, asked)
    text = rankings_text(asked.scorer, found)
    write_atomically(run / ROOT_CAUSE_FILE, lambda path: path.write_text(text, encoding="utf-8"))
    write_run_report(run / "report.html", result, run)
    if json_output:
        typer.echo(text, nl=False)
        return
    print_rankings(found, top, run / ROOT_CAUSE_FILE)


def _given(result: Result, panel: Panel, windows: list[str], scorer: str) -> list[Ranking]:
    ranges = {text: _steps(text, panel) for text in windows}
    evidence = gather(result, panel)
    strengths = strength_matrix(result, evidence.clients)
    return [
        rank(
            evidence.steps(slice(first, stop)),
            strengths,
            edges=result.edges(),
            scorer=scorer,
            name=f"window {text}",
            start=evidence.smoothed()[first - 1] if first else 1.0,
        )
        for text, (first, stop) in ranges.items()
    ]


def _steps(text: str, panel: Panel) -> tuple[int, int]:
    """Step range of a window's text, which must lie inside the data."""
    try:
        if "/" in text:
            kind = panel.time.dtype
            ends = [
                np.datetime64(part.strip()) if kind.kind == "M" else float(part)
                for part in text.split("/", 1)
            ]
            if not panel.time[0] <= ends[0] <= ends[1]:
                first, stop = -1, 0
            else:
                first, stop = (int(np.searchsorted(panel.time, end)) for end in ends)
            stop += stop < panel.num_steps and bool(panel.time[stop] == ends[1])
        else:
            first, stop = (int(part) for part in text.split(":"))
    except ValueError:
        raise ConfigError(
            f"--window '{text}' is neither steps such as 160:960 nor times such as "
            f"{panel.time[0]}/{panel.time[-1]}"
        ) from None
    if not 0 <= first < stop <= panel.num_steps:
        raise DataError(
            f"--window '{text}' is not inside the data, which have steps 0:{panel.num_steps} "
            f"({panel.time[0]}/{panel.time[-1]})"
        )
    return first, stop


def _online(result: Result, panel: Panel, asked: WatchOptions) -> list[Ranking]:
    """The last ranking of every alarm, the data fed in batches."""
    analysis, found = OnlineAnalysis(result, scorer=asked.scorer, quiet=asked.quiet), {}
    with progress_report() as report:
        for first in range(0, panel.num_steps, asked.steps):
            stop = min(first + asked.steps, panel.num_steps)
            for alarm in analysis.feed(panel.slice(first, stop)):
                found[alarm.step] = alarm.ranking
            report("analysis", stop, panel.num_steps)
    return list(found.values())
