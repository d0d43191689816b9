"""`fedgranger benchmark`: compare methods on simulated data or on yours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.markup import escape

from fedgranger.cli.command_line import CommandGroup
from fedgranger.cli.console import leave_interrupted, out, print_line, progress_report
from fedgranger.cli.friendly import friendly
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.disk import write_atomically
from fedgranger.errors import ConfigError
from fedgranger_research.baselines.method_list import (
    NAMES,
    find_methods,
    installed_methods,
    missing_package,
)
from fedgranger_research.baselines.method_protocol import EdgeScores
from fedgranger_research.baselines.method_trials import run_method, scored_rows
from fedgranger_research.baselines.recorded_problems import read_problem
from fedgranger_research.reproduction.causal_discovery import causal_discovery_item
from fedgranger_research.reproduction.control_settings import Recordings
from fedgranger_research.reproduction.runner import Item, reproduce
from fedgranger_research.reproduction.scenario_grid import AXES, METHODS, grid_item

benchmark = CommandGroup(help="Compare methods on simulated data or on yours.")

SYNTHETIC = "synthetic"
GRID_METHODS = ",".join(METHODS)
ALL_AXES = ",".join(AXES)
Methods = Annotated[
    str, typer.Option("--methods", help="Names separated by commas; --list shows them.")
]
Added = Annotated[Path | None, typer.Option("--add", help="Python file with methods of your own.")]
Jobs = Annotated[int, typer.Option(help="Processes.", min=1)]


@benchmark.callback(invoke_without_command=True)
@friendly
def compare(
    context: typer.Context,
    methods: Methods = "debiased,var,granger-pairs",
    data: Annotated[
        str,
        typer.Option(help="'synthetic' (the paper's setting), or a folder with a file per client."),
    ] = SYNTHETIC,
    truth: Annotated[
        Path | None,
        typer.Option(help="Known edges of the folder [its truth.json, where there is one]."),
    ] = None,
    data_sets: Annotated[int, typer.Option(help="Simulated data sets.", min=1)] = 5,
    output: Annotated[Path, typer.Option("--out", help="Folder for tables and pictures.")] = Path(
        "benchmark"
    ),
    added: Added = None,
    jobs: Jobs = 1,
    show_list: Annotated[bool, typer.Option("--list", help="Show the methods.")] = False,
) -> None:
    """Compare methods: F1, areas under curves, false and missed edges, seconds, bytes.

    Finished data sets are kept: the same command continues where it was interrupted.
    """
    if context.invoked_subcommand is not None:
        return
    if show_list:
        _print_methods()
        return
    names = _names(methods, added)
    if data == SYNTHETIC:
        if truth is not None:
            raise ConfigError("--truth belongs to a folder of data; synthetic data know their own")
        _run(causal_discovery_item(data_sets, names, added), output, jobs)
        return
    _compare_on(Path(data), truth, names, added, output)


@benchmark.command()
def grid(
    methods: Methods = GRID_METHODS,
    axes: Annotated[
        str,
        typer.Option(
            help=f"What to vary, separated by commas: {', '.join(AXES)}; or 'none', for recordings "
            "alone."
        ),
    ] = ALL_AXES,
    data_sets: Annotated[int, typer.Option(help="Data sets per cell.", min=2)] = 5,
    recordings: Annotated[
        Path | None,
        typer.Option(
            help="Recordings, as for 'study recordings': panels without true edges are made of "
            "them, where every reported edge is false."
        ),
    ] = None,
    partition: Annotated[
        Path | None, typer.Option(help="File that maps clients to columns of the recordings.")
    ] = None,
    unit_column: Annotated[
        str | None, typer.Option(help="Column of the recordings that names the machine or run.")
    ] = None,
    output: Annotated[Path, typer.Option("--out", help="Folder for tables and pictures.")] = Path(
        "benchmark"
    ),
    added: Added = None,
    jobs: Jobs = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Few cells, short data.")] = False,
) -> None:
    """Find where methods break: one thing at a time departs from the paper's setting.

    Finished cells are kept: the same command continues where it was interrupted.
    """
    chosen = [axis.strip() for axis in axes.split(",") if axis.strip() not in ("", "none")]
    if not chosen and recordings is None:
        raise ConfigError("--axes leaves nothing to compare; name an axis or give --recordings")
    for axis in chosen:
        if axis not in AXES:
            raise ConfigError(f"--axes has '{axis}'; choose among {', '.join(AXES)}")
    if recordings is not None and not recordings.exists():
        raise ConfigError(f"--recordings: '{recordings}' does not exist; give a folder or a table")
    source = None if recordings is None else Recordings(recordings, partition, unit_column)
    item = grid_item(data_sets, _names(methods, added), chosen, source, added)
    _run(item, output, jobs, quick=quick)


def _run(item: Item, output: Path, jobs: int, *, quick: bool = False) -> None:
    try:
        with progress_report() as report:
            numbers = reproduce(item, output, quick=quick, jobs=jobs, report=report)
    except KeyboardInterrupt:
        leave_interrupted("repeat the command to continue")
    out.print(escape(item.markdown(numbers)), soft_wrap=True)
    print_line(f"written: {output / item.name}.csv and .md")
    if item.draw is not None:
        item.draw(output, numbers)
        print_line(f"drawn: {output / item.name}.png and .svg")


def _names(text: str, added: Path | None) -> list[str]:
    """The methods that were asked for; nothing is computed when one cannot be used."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ConfigError("--methods is empty; give names separated by commas (--list shows them)")
    find_methods(names, added)
    for name in names:
        package = missing_package(name)
        if package is not None:
            raise ConfigError(
                f"method '{name}' needs the package '{package}', which is not installed; "
                "install the peers with: pip install 'fedgranger[peers]'"
            )
    return names


def _compare_on(
    folder: Path, truth: Path | None, names: list[str], added: Path | None, output: Path
) -> None:
    """Every method once on the user's data: scores where the truth is known, else the edges."""
    problem, is_known = read_problem(folder, truth)
    clients = problem.columns.names
    rows: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    with progress_report() as report:
        for done, (name, method) in enumerate(find_methods(names, added).items()):
            report("methods", done, len(names))
            found = run_method(name, method, problem)
            edges += _edges(name, found, clients)
            if is_known:
                rows += scored_rows(name, method, found, problem)
        report("methods", len(names), len(names))
    table = pd.DataFrame(edges)
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(output / "edges.csv", lambda path: table.to_csv(path, index=False))
    reported = table.loc[table["is_edge"]].groupby("method", sort=False).size()
    possible = len(clients) * (len(clients) - 1)
    shown = [[name, f"{int(reported.get(name, 0))} of {possible}"] for name in names]
    out.print(NarrowTable(["method", "edges reported"], shown, left=("method",)))
    if is_known:
        scores = pd.DataFrame(rows)
        write_atomically(output / "scores.csv", lambda path: scores.to_csv(path, index=False))
        out.print(_scores(scores))
    else:
        print_line(
            "The true edges are not known, so nothing is scored; give them with --truth. How often "
            "a method reports edges where none can be: 'fedgranger benchmark grid --recordings'."
        )
    print_line(f"written: {output / 'edges.csv'}" + (" and scores.csv" if is_known else ""))


def _edges(name: str, found: EdgeScores, clients: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {
            "method": name,
            "cause": cause,
            "effect": effect,
            "score": float(found.client_score[m, n]),
            "is_edge": bool(found.is_client_edge[m, n]),
        }
        for m, effect in enumerate(clients)
        for n, cause in enumerate(clients)
        if m != n
    ]


def _scores(scores: pd.DataFrame) -> Any:
    columns = {"F1": "f1", "AUC-ROC": "auc_roc", "AUC-PR": "auc_pr", "FP": "fp", "FN": "fn"}
    columns |= {"size": "size", "power": "power", "seconds": "seconds", "bytes": "bytes_sent"}
    chosen = scores.loc[scores["level"] == "clients"].to_dict("records")
    cells = [
        [str(row["method"]), *(_number(row[key]) for key in columns.values())] for row in chosen
    ]
    return NarrowTable(["method", *columns], cells, left=("method",))


def _number(value: float) -> str:
    if np.isnan(value):
        return "–"
    return f"{value:.0f}" if float(value).is_integer() and value > 1 else f"{value:.3g}"


def _print_methods() -> None:
    ready = installed_methods()
    rows = []
    for name, method in find_methods(NAMES).items():
        note = "" if name in ready else " (needs the extra 'peers')"
        rows.append([name, method.mode, escape(method.words + note)])
    out.print(
        NarrowTable(["method", "mode", "what it is"], rows, left=("method", "mode", "what it is"))
    )
