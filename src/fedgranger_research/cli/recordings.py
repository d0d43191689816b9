"""`fedgranger study recordings`: how often would the tests find false edges in my data?"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedgranger.cli.console import leave_interrupted, out, progress_report
from fedgranger.cli.options import FitOptions, merge, with_options
from fedgranger.disk import write_atomically, write_text
from fedgranger.errors import ConfigError
from fedgranger.unused_options import refuse_unused
from fedgranger_research.recordings.reading import read_recordings
from fedgranger_research.recordings.recording_study import RecordingStudy
from fedgranger_research.recordings.summary import pair_table, summarise_controls

DEFAULTS = {"solver": "none"}
SHOWN_REASONS = 3


@with_options(FitOptions)
def recordings(
    data: Annotated[
        Path, typer.Argument(help="Folder with one file per client, or per machine; or one table.")
    ],
    out_folder: Annotated[Path, typer.Option("--out", help="Folder for the results.")] = Path(
        "recordings-study"
    ),
    panels: Annotated[int, typer.Option(help="Panels of each kind.", min=2)] = 40,
    steps: Annotated[
        int | None, typer.Option(help="Steps per panel [most that the data have room for].", min=20)
    ] = None,
    sizes: Annotated[
        str, typer.Option(help="Added edges, in standard deviations of the effect's innovation.")
    ] = "0.2,0.5,1.0",
    unit_column: Annotated[
        str | None, typer.Option(help="Column of the table that names the machine or run.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
    config: Annotated[Path | None, typer.Option(help="TOML file with options.")] = None,
    *,
    given: dict[str, Any],
) -> None:
    """Test panels made from your recordings in which it is known that edges are absent or added.

    Null panels take each client from another machine or another stretch of time; odd panels leave
    all clients but one as recorded; added panels are null panels with one edge put in. A VAR with
    the BIC's order, tested as in textbooks, is shown beside the fit. Finished panels are kept: the
    same command continues where it was interrupted.
    """
    for name in ("constant", "models"):
        if name in given:
            raise ConfigError(
                f"--{name} has no place here: sensors that do not change in a stretch are left "
                "out, and local models are identified for every panel"
            )
    if given.get("test") == "asymptotic":  # of FedGC's own estimate
        given.setdefault("solver", "newton")
    options, run_config = merge(config, given, DEFAULTS)
    refuse_unused(run_config)
    units = read_recordings(
        data,
        partition=None if options.partition is None else Path(options.partition),
        unit_column=unit_column,
        time_column=options.time_column,
        missing=options.missing,
    )
    study = RecordingStudy(
        units, run_config, num_panels=panels, num_steps=steps, sizes=_sizes(sizes)
    )
    try:
        with progress_report() as report:
            records = study.run(out_folder / "finished.jsonl", workers=workers, report=report)
    except KeyboardInterrupt:
        leave_interrupted("repeat the command to continue")
    rows = summarise_controls(records)
    table = pair_table(records)
    write_atomically(out_folder / "p_values.csv", lambda path: table.to_csv(path, index=False))
    content = json.dumps({"question": study.question, "panels": panels, "rows": rows}, indent=1)
    write_text(out_folder / "summary.json", content + "\n")
    _show(study, records, rows, out_folder)


def _show(
    study: RecordingStudy,
    records: list[dict[str, Any]],
    rows: list[dict[str, Any]],
    folder: Path,
) -> None:
    num_units = len(study.units)
    source = "one recording" if num_units == 1 else f"{num_units} machines or runs"
    out.print(f"panels of {study.num_steps} steps from {source}\n")
    out.print(_table(rows))
    out.print(
        "\nnull, odd: share of pairs without an edge that were called one (0.050 and 0.010 are "
        "right); added: share of added edges found, which means little for a test that finds too "
        "many absent ones. In brackets: Monte Carlo standard error of the last digits, between "
        "panels" + ("." if num_units == 1 else " or machines, whichever is larger."),
        soft_wrap=True,
    )
    if num_units == 1:
        out.print(
            "All panels come from one recording, so the errors say how much the choice of "
            "stretches matters, not what another recording would show.",
            soft_wrap=True,
        )
    reasons = Counter(record["reason"] for record in records if record.get("reason"))
    for reason, count in reasons.most_common(SHOWN_REASONS):
        out.print(f"refused {count}: {escape(reason)}", soft_wrap=True)
    out.print(f"all p-values: {escape(str(folder / 'p_values.csv'))}", soft_wrap=True)


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold")
    for name in ("kind", "size", "test"):
        table.add_column(name, no_wrap=True)
    for name in ("panels", "refused", "pairs", "untested", "p < 0.05", "p < 0.01"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        size = f"{row['size']:g}" if row["size"] else ""
        counts = (str(row[name]) for name in ("panels", "refused", "pairs", "untested"))
        shares = (_share(row[f"share_{level}"], row[f"error_{level}"]) for level in (0.05, 0.01))
        table.add_row(row["kind"], size, row["test"], *counts, *shares)
    return table


def _share(share: float | None, error: float | None) -> str:
    if share is None:
        return "-"
    return f"{share:.3f}" if error is None else f"{share:.3f}({1000 * error:.0f})"


def _sizes(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        raise ConfigError(f"--sizes is '{text}'; give numbers separated by commas") from None
