"""`fedgranger study`: is the confidence honest?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from fedgranger.cli.command_line import CommandGroup
from fedgranger.cli.console import leave_interrupted, out, progress_report
from fedgranger.config import RunConfig
from fedgranger.data.simulation_options import DECLARED_NOISE, SCENARIOS
from fedgranger.disk import write_atomically
from fedgranger.errors import ConfigError
from fedgranger_research.cli.recordings import recordings
from fedgranger_research.studies.calibration_study import load_records, run_study, summary_table
from fedgranger_research.studies.calibration_trials import Record, Setting
from fedgranger_research.studies.drawing import draw_calibration

study = CommandGroup(no_args_is_help=True, help="Monte Carlo studies.")


@study.callback()
def main() -> None:
    """Monte Carlo studies."""


study.command()(recordings)


@study.command()
def calibration(
    out_folder: Annotated[Path, typer.Option("--out", help="Folder for data sets and results.")],
    scenario: Annotated[
        list[str] | None,
        typer.Option(help=f"One or more of {', '.join(SCENARIOS)} (default base)."),
    ] = None,
    steps: Annotated[
        list[int] | None, typer.Option(help="One or more lengths T (default 2000).")
    ] = None,
    models: Annotated[
        str, typer.Option(help="identified, known or both, where a scenario allows it.")
    ] = "identified",
    test: Annotated[str, typer.Option(help="Edge test, as in fit.")] = "debiased",
    added_noise: Annotated[
        list[float] | None,
        typer.Option(
            help="One or more sizes of noise that clients add to every state they send, s.d. in "
            "the state's own (default 0).",
            min=0.0,
        ),
    ] = None,
    data_sets: Annotated[int, typer.Option(help="Data sets per setting.", min=2)] = 200,
    first_seed: Annotated[int, typer.Option(help="Seed of the first data set.", min=0)] = 0,
    jobs: Annotated[int, typer.Option(help="Processes.", min=1)] = 2,
    plot: Annotated[bool, typer.Option(help="Draw calibration.svg.")] = True,
) -> None:
    """Repeat simulation and tests; print size, power, coverage, F1 and FDR with their errors.

    Data sets are kept: the same command continues where it was interrupted.
    """
    kinds = {"identified": [False], "known": [True], "both": [False, True]}
    if models not in kinds:
        raise ConfigError(f"--models is '{models}'; choose one of {', '.join(kinds)}")
    options = {} if test == "debiased" else {"test": test}
    RunConfig.from_mapping({"solver": "newton" if test == "asymptotic" else "none", "test": test})
    settings = [
        Setting(name, length, known, options, noise)
        for name in scenario or ["base"]
        for length in steps or [2000]
        for noise in added_noise or [0.0]
        for known in ([True] if name in DECLARED_NOISE else kinds[models])
    ]
    try:
        with progress_report() as report:
            run_study(
                out_folder, settings, data_sets, jobs=jobs, first_seed=first_seed, report=report
            )
    except KeyboardInterrupt:
        leave_interrupted("repeat the command to continue")
    summary = summary_table(out_folder, settings, data_sets, first_seed)
    write_atomically(out_folder / "calibration.csv", lambda path: summary.to_csv(path, index=False))
    out.print(_table(summary.to_dict("records")))
    out.print(
        f"\n0.050(4) means 0.050 with a Monte Carlo standard error of 0.004, from {data_sets} data "
        "sets per setting.",
        soft_wrap=True,
    )
    if plot:
        null_p, coverage = {}, {}
        for setting, row in zip(settings, summary.to_dict("records"), strict=True):
            records = load_records(out_folder, setting, data_sets, first_seed)
            if row["num_data_sets"]:
                null_p[setting.name] = _null_p(records)
                coverage[setting.name] = (row["coverage"], row["coverage_se"])
        if null_p:
            draw_calibration(out_folder / "calibration.svg", null_p, coverage)
            where = escape(str(out_folder / "calibration.svg"))
            out.print(f"drawn in {where}", soft_wrap=True)


def _null_p(records: list[Record]) -> np.ndarray:
    return np.concatenate([record.edge_p[~record.edge_true] for record in records])


def _table(rows: list[dict[str, Any]]) -> Table:
    columns = {
        "edge size": "edge_size",
        "entry size": "entry_size",
        "power": "edge_power",
        "coverage": "coverage",
        "F1": "f1",
        "FDR": "fdr",
        "not tested": "untested",
        "delay right": "delay_right",
        "latent": "latent",
    }
    table = Table(box=None, header_style="bold")
    table.add_column("setting", no_wrap=True)
    for name in (*columns, "refused"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        values = (_with_error(row[key], row[f"{key}_se"]) for key in columns.values())
        table.add_row(escape(row["setting"]), *values, str(row["num_refused"]))
    return table


def _with_error(value: float, error: float) -> str:
    if np.isnan(value):
        return "-"
    return f"{value:.3f}" if np.isnan(error) else f"{value:.3f}({1000 * error:.0f})"
