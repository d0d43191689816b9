"""`fedgranger rca`."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape

from fedgranger.cli.console import (
    friendly,
    make_table,
    out,
    print_line,
    print_note,
    print_warning,
    progress_report,
)
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
from fedgranger.rca.incidents import add_incidents, read_incidents
from fedgranger.rca.knowledge import strength_matrix
from fedgranger.rca.new_data import surprising_sensors
from fedgranger.rca.ranking import rankings_text, with_sensors
from fedgranger.report.html import write_run_report
from fedgranger.results import ROOT_CAUSE_FILE, Result
from fedgranger.run_folder import write_atomically

ALARM = 4
"""Exit status when an alarm was raised."""


@dataclass(frozen=True, kw_only=True)
class NewDataOptions(FileOptions, WatchOptions):
    """How new data are written, and how they are watched."""


@friendly
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
    top: Annotated[int, typer.Option(help="Suspects to show.", min=1)] = SHOWN_SUSPECTS,
    runtime: Annotated[
        str,
        typer.Option(help="inprocess, or flare: every client a process of FLARE's simulator."),
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
    json_output: Annotated[bool, typer.Option("--json", help="Print rca.json's text.")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Rank the clients by how likely they started an anomaly, with the evidence.

    Exit status 4: an alarm was raised (without --window).
    """
    if history:
        _print_history(run, data, json_output=json_output)
        return
    if data is None:
        raise ConfigError("rca needs --data, the folder with the new data, or --history")
    options = NewDataOptions.from_mapping(given)
    asked = WatchOptions(**{name: getattr(options, name) for name in WatchOptions.names()})
    check_choice("runtime", runtime, ("inprocess", "flare"))
    result = Result.load(run)
    read = functools.partial(read_panel, data, partition, as_measured(options))
    if follow:
        if window or runtime == "flare" or json_output:
            raise ConfigError("--follow goes without --window, --json and --runtime flare")
        _follow(result, run, data, read, asked, every, top)
        return
    panel = read()
    if window and runtime == "flare":
        raise ConfigError("--window is for one process; leave it or --runtime flare out")
    panel = regular_panel(panel).panel  # short gaps are missing rows, as between parties
    if runtime == "flare":
        found = watch_simulated(result, panel, asked)
    elif window:
        found = _given(result, panel, window, asked.scorer)
    else:
        found = _online(result, panel, asked)
    text = _write(result, run, data, asked.scorer, found)
    if json_output:
        typer.echo(text, nl=False)
    else:
        print_rankings(found, top, run / ROOT_CAUSE_FILE)
    if found and not window:
        raise typer.Exit(ALARM)


def _write(result: Result, run: Path, data: Path, scorer: str, found: list[Ranking]) -> str:
    """Write the analysis, the history of incidents and the report; return the analysis' text."""
    text = rankings_text(scorer, found)
    write_atomically(run / ROOT_CAUSE_FILE, lambda path: path.write_text(text, encoding="utf-8"))
    add_incidents(run, str(data), found)
    write_run_report(run / "report.html", result, run)
    return text


def _print_history(run: Path, data: Path | None, *, json_output: bool) -> None:
    """Every incident that was analysed before, of these data or of all."""
    Result.load(run)
    found = [entry for entry in read_incidents(run) if data is None or entry["data"] == str(data)]
    if json_output:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    if not found:
        print_line("no incident was analysed with this run")
        return
    rows = []
    for entry in found:
        first = entry["ranking"][0] if entry["is_defined"] else {}
        cells = (entry["name"], first.get("client", "no ranking"), first.get("sensors") or "–")
        rows.append([escape(str(cell)) for cell in (entry["analysed"], *cells, entry["data"])])
    columns = ("analysed", "incident", "first suspect", "its sensors", "data")
    out.print(make_table(columns, rows, left=columns))


def _follow(
    result: Result,
    run: Path,
    data: Path,
    read: Callable[[], Panel],
    asked: WatchOptions,
    every: float,
    top: int,
) -> None:
    """Analyse rows as they are written; an alarm is printed when it begins or its suspect changes.

    The last row waits for the next one: it may be half written, and half a number is a number too.
    """
    analysis = OnlineAnalysis(result, scorer=asked.scorer, quiet=asked.quiet)
    found: dict[int, Ranking] = {}
    last, refused = None, ""
    print_note(f"following {data}, read every {every:g} s; Ctrl-C ends it")
    try:
        while True:
            try:
                panel, refused = regular_panel(read()).panel, ""
            except DataError as error:
                if str(error) != refused:  # a half-written line, most often
                    refused = str(error)
                    print_warning(f"not read this time: {error}")
                time.sleep(every)
                continue
            first = 0 if last is None else int(np.searchsorted(panel.time, last, side="right"))
            stop = panel.num_steps - 1
            if first < stop:
                last, changed = panel.time[stop - 1], []
                for alarm in analysis.feed(panel.slice(first, stop)):
                    known = found.get(alarm.step)
                    if known is None or known.first != alarm.ranking.first:
                        changed.append(alarm.ranking)
                    found[alarm.step] = alarm.ranking
                _write(result, run, data, asked.scorer, list(found.values()))
                if changed:
                    print_rankings(changed, top, run / ROOT_CAUSE_FILE)
            time.sleep(every)
    except KeyboardInterrupt:
        count = len(found)
        print_line(f"followed to {last}: {count} alarm{'' if count == 1 else 's'}")
        raise typer.Exit(ALARM if found else 0) from None


def _given(result: Result, panel: Panel, windows: list[str], scorer: str) -> list[Ranking]:
    ranges = {text: _steps(text, panel) for text in windows}
    evidence = gather(result, panel)
    strengths = strength_matrix(result, evidence.clients)
    found = []
    for text, (first, stop) in ranges.items():
        ranking = rank(
            evidence.steps(slice(first, stop)),
            strengths,
            edges=result.edges(),
            scorer=scorer,
            name=f"window {text}",
            start=evidence.smoothed()[first - 1] if first else 1.0,
        )
        sensors = surprising_sensors(result, panel, slice(first, stop))
        found.append(with_sensors(ranking, sensors))
    return found


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
