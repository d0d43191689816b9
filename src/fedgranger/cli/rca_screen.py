"""What `fedgranger rca` does and shows."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import typer
from rich.markup import escape

from fedgranger.cli.console import (
    out,
    print_json,
    print_line,
    print_note,
    print_warning,
    progress_report,
)
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.cli.rca_window import window_name, window_steps
from fedgranger.cli.tables import print_rankings
from fedgranger.data.align import regular_panel
from fedgranger.data.panel import Panel
from fedgranger.data.reading_options import FileOptions, kept_options
from fedgranger.data.reading_progress import followed
from fedgranger.disk import write_text
from fedgranger.errors import DataError
from fedgranger.federation.agreed_options import WatchOptions
from fedgranger.flare.simulation import watch_simulated
from fedgranger.rca import OnlineAnalysis, Ranking, gather, rank
from fedgranger.rca.alarms import Alarm, strength_matrix
from fedgranger.rca.excursions import Levels, find_excursions, joined
from fedgranger.rca.incidents import add_incidents, read_incidents
from fedgranger.rca.joined_alarms import join_alarms
from fedgranger.rca.new_data import panel_for, surprising_sensors
from fedgranger.rca.ranking import rankings_text, with_sensors
from fedgranger.report.html import write_run_report
from fedgranger.results import ROOT_CAUSE_FILE, Result
from fedgranger.text import counted

ALARM = 4
"""Exit status when an alarm was raised."""


class Analysis(NamedTuple):
    """A run, the new data that it is asked about, and how."""

    result: Result
    run: Path
    data: Path
    partition: Path | None
    files: FileOptions
    asked: WatchOptions

    def read(self) -> Panel:
        """Read the new data; short gaps are missing rows, as between parties."""
        given = {k: v for k, v in kept_options(self.files, "files").items() if k != "of"}
        if self.partition is not None:
            given["partition"] = str(self.partition)
        return regular_panel(panel_for(self.result, self.data, given)).panel


def show_suspects(
    analysis: Analysis, window: list[str] | None, runtime: str, top: int, *, json_output: bool
) -> None:
    """Rank the clients of every alarm or window; all of it is written to the run too."""
    result, asked = analysis.result, analysis.asked
    with progress_report() as report, followed(report, analysis.data):
        panel = analysis.read()
    _print_notes(panel, set())
    if window:
        ranges = {text: window_steps(text, panel) for text in window}
        found = _given(result, panel, ranges, asked.scorer)
        levels = joined([find_excursions(result, panel.slice(*ends)) for ends in ranges.values()])
    else:
        levels = find_excursions(result, panel)
        if runtime == "flare":
            found = watch_simulated(result, panel, asked)
        else:
            found = join_alarms(_online(result, panel, asked), levels)
    text = _write(analysis, found, levels)
    if json_output:
        typer.echo(text, nl=False)
    else:
        sentences = levels.sentences(is_calm=not found)
        print_rankings(found, top, analysis.run / ROOT_CAUSE_FILE, sentences)
    if found and not window:
        raise typer.Exit(ALARM)


def _print_notes(panel: Panel, noted: set[str]) -> None:
    """What reading did to the data, each once: in files that grow, the counts in them grow."""
    for note in panel.notes:
        words = re.sub(r"\d+(\.\d+)?", "", note)
        if words not in noted:
            noted.add(words)
            print_note(note)


def _write(analysis: Analysis, found: list[Ranking], levels: Levels) -> str:
    """Write the analysis, the history of incidents and the report; return the analysis' text."""
    excursions = [one.to_mapping() for one in levels.found]
    run, text = analysis.run, rankings_text(analysis.asked.scorer, found, excursions)
    write_text(run / ROOT_CAUSE_FILE, text)
    add_incidents(run, str(analysis.data), found)
    write_run_report(run / "report.html", analysis.result, run)
    return text


def print_history(run: Path, data: Path | None, *, json_output: bool) -> None:
    """Every incident that was analysed before, of these data or of all."""
    found = [entry for entry in read_incidents(run) if data is None or entry["data"] == str(data)]
    if json_output:
        print_json(found)
        return
    if not found:
        print_line("no incident was analysed with this run")
        return
    rows = []
    for entry in found:
        is_calm = all(row.get("onset", 0) is None for row in entry["ranking"])
        first = entry["ranking"][0] if entry["is_defined"] and not is_calm else {}
        nobody = "nobody: all calm" if is_calm else "no ranking"
        since = f", since {entry['since']}" if entry.get("since") is not None else ""
        incident = f"{entry['name']}{since}"
        cells = (incident, first.get("client", nobody), first.get("sensors") or "–")
        rows.append([escape(str(cell)) for cell in (entry["analysed"], *cells, entry["data"])])
    columns = ("analysed", "incident", "first suspect", "its sensors", "data")
    out.print(NarrowTable(columns, rows, left=columns))


def follow_data(analysis: Analysis, every: float, top: int) -> None:
    """Analyse rows as they are written.

    An incident is printed when it begins or its suspect changes, an alarm that joins it as a line.
    The last row waits for the next one: it may be half written, and half a number is a number too.
    """
    online = _online_analysis(analysis.result, analysis.asked)
    found: dict[int, Alarm] = {}
    suspects: dict[str, str] = {}
    strayed: set[str] = set()
    noted: set[str] = set()
    incidents: list[Ranking] = []
    last, refused, zone = None, "", ""
    print_note(f"following {analysis.data}, read every {every:g} s; Ctrl-C ends it")
    try:
        while True:
            try:
                panel, refused = analysis.read(), ""
            except DataError as error:
                if str(error) != refused:  # a half-written line, most often
                    refused = str(error)
                    print_warning(f"not read this time: {error}")
                time.sleep(every)
                continue
            _print_notes(panel, noted)
            first = 0 if last is None else int(np.searchsorted(panel.time, last, side="right"))
            stop = panel.num_steps - 1
            if first < stop:
                last = panel.time[stop - 1]
                zone = " UTC" if panel.time_zone else ""
                for alarm in online.feed(panel.slice(first, stop)):
                    found[alarm.step] = alarm
                levels = find_excursions(analysis.result, panel.slice(0, stop))
                incidents = join_alarms(found.values(), levels)
                _write(analysis, incidents, levels)
                changed = [one for one in incidents if suspects.get(one.name) != one.first]
                again = {name: one.name for one in incidents for name in one.again}
                for name in again.keys() - suspects.keys():
                    print_line(f"{name}: the same incident as '{again[name]}'")
                suspects |= {one.name: one.first for one in incidents} | again
                new = [one for one in levels.found if one.name not in strayed]
                strayed |= {one.name for one in new}
                if changed or new:
                    sentences = levels._replace(found=new).sentences(is_calm=False) if new else []
                    print_rankings(changed, top, analysis.run / ROOT_CAUSE_FILE, sentences)
            time.sleep(every)
    except KeyboardInterrupt:
        count, joined_count = len(found), len(incidents)
        words = counted(count, "alarm")
        if joined_count < count:
            words += f" of {counted(joined_count, 'incident')}"
        if strayed:
            words += f", strayed from their usual level: {', '.join(sorted(strayed))}"
        print_line(f"followed to {last}{zone}: {words}")
        raise typer.Exit(ALARM if found else 0) from None


def _given(
    result: Result, panel: Panel, ranges: Mapping[str, tuple[int, int]], scorer: str
) -> list[Ranking]:
    evidence = gather(result, panel)
    strengths = strength_matrix(result, evidence.clients)
    found = []
    for text, (first, stop) in ranges.items():
        ranking = rank(
            evidence.steps(slice(first, stop)),
            strengths,
            edges=result.edges(),
            scorer=scorer,
            name=window_name(text, panel),
            start=evidence.smoothed()[first - 1] if first else 1.0,
        )
        sensors = surprising_sensors(result, panel, slice(first, stop))
        found.append(with_sensors(ranking, sensors))
    return found


def _online_analysis(result: Result, asked: WatchOptions) -> OnlineAnalysis:
    return OnlineAnalysis(result, scorer=asked.scorer, calm_steps=asked.calm_steps)


def _online(result: Result, panel: Panel, asked: WatchOptions) -> list[Alarm]:
    """Every alarm with its last ranking, the data fed in batches."""
    analysis, found = _online_analysis(result, asked), {}
    with progress_report() as report:
        for first in range(0, panel.num_steps, asked.steps):
            stop = min(first + asked.steps, panel.num_steps)
            for alarm in analysis.feed(panel.slice(first, stop)):
                found[alarm.step] = alarm
            report("analysis", stop, panel.num_steps)
    return list(found.values())
