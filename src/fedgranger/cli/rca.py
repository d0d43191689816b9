"""`fedgranger rca`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from fedgranger.cli.console import friendly, out, progress_report
from fedgranger.config import check_choice
from fedgranger.data.panel import Panel
from fedgranger.errors import ConfigError, DataError
from fedgranger.rca import SCORERS, OnlineAnalysis, Ranking, gather, rank
from fedgranger.rca.new_data import strength_matrix
from fedgranger.report.run import write_run_report
from fedgranger.results import ROOT_CAUSE_FILE, Result
from fedgranger.run_folder import write_atomically

__all__ = ["rca"]

SHOWN = 5


@friendly
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
    scorer: Annotated[str, typer.Option(help=f"One of {', '.join(SCORERS)}.")] = "unexplained",
    batch: Annotated[int, typer.Option(help="Steps that arrive at a time.", min=1)] = 50,
    quiet: Annotated[int, typer.Option(help="Calm steps that end an alarm.", min=1)] = 50,
    partition: Annotated[Path | None, typer.Option(help="Client -> columns of one table.")] = None,
    time_column: Annotated[str, typer.Option(help="Time column, auto or none.")] = "auto",
    top: Annotated[int, typer.Option(help="Suspects to show.", min=1)] = SHOWN,
    json_output: Annotated[bool, typer.Option("--json", help="Print rca.json's text.")] = False,
) -> None:
    """Rank the clients by how likely they started an anomaly, with the evidence."""
    check_choice("scorer", scorer, tuple(SCORERS))
    result = Result.load(run)
    panel = Panel.read(  # as measured: the run's monitors treat new data like the training data
        data,
        partition=partition,
        time_column=time_column,
        missing="mask",
        constant="keep",
        difference="none",
        suspect="keep",
    )
    if window:
        found = _given(result, panel, window, scorer)
    else:
        found = _online(result, panel, scorer, batch, quiet)
    content = {"scorer": scorer, "windows": [ranking.to_mapping() for ranking in found]}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(run / ROOT_CAUSE_FILE, lambda path: path.write_text(text, encoding="utf-8"))
    write_run_report(run / "report.html", result, run)
    if json_output:
        typer.echo(text, nl=False)
        return
    if not found:
        out.print("No client left its normal range: nothing to explain.")
    for ranking in found:
        _show(ranking, top)
    out.print(f"written to {escape(str(run / ROOT_CAUSE_FILE))} and the report", soft_wrap=True)


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
    """Step range of a window's text.

    Raises:
        ConfigError: it cannot be read.
        DataError: it lies outside the data.
    """
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


def _online(result: Result, panel: Panel, scorer: str, batch: int, quiet: int) -> list[Ranking]:
    """The last ranking of every alarm, the data fed in batches."""
    analysis, found = OnlineAnalysis(result, scorer=scorer, quiet=quiet), {}
    with progress_report() as report:
        for first in range(0, panel.num_steps, batch):
            stop = min(first + batch, panel.num_steps)
            for alarm in analysis.feed(panel.slice(first, stop)):
                found[alarm.step] = alarm.ranking
            report("analysis", stop, panel.num_steps)
    return list(found.values())


def _show(ranking: Ranking, top: int) -> None:
    out.print(f"[bold]{escape(ranking.name)}[/]: ", end="")
    if not ranking.is_defined:
        out.print(escape(ranking.evidence[0]), soft_wrap=True)
        return
    share = ranking.table["probability"].iloc[0]
    out.print(
        f"[bold]{escape(ranking.first)}[/] (first in {100 * share:.0f} % of resamples)",
        soft_wrap=True,
    )
    table = Table(box=None, header_style="bold")
    table.add_column("client", no_wrap=True)
    for name in ("score", "95 % range", "first", "surprise", "explained", "mostly by", "onset"):
        table.add_column(name, justify="left" if name == "mostly by" else "right", no_wrap=True)
    for row in ranking.table.head(top).to_dict("records"):
        explained = row["explained"] if np.isfinite(row["explained"]) else 0.0
        is_named = isinstance(row["explained_by"], str) and explained > 0.005
        table.add_row(
            escape(str(row["client"])),
            f"{row['score']:.2f}",
            f"{row['ci_low']:.2f} to {row['ci_high']:.2f}",
            f"{100 * row['probability']:.0f} %",
            f"{row['surprise']:.3g}" if np.isfinite(row["surprise"]) else "not seen",
            f"{100 * explained:.0f} %",
            escape(row["explained_by"]) if is_named else "–",
            f"{row['onset']:.0f}" if np.isfinite(row["onset"]) else "–",
        )
    out.print(table)
    for sentence in ranking.evidence:
        out.print(f"  {escape(sentence)}", soft_wrap=True)
    out.print()
