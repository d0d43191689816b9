"""`fedgranger evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import Json, Run, busy


@examples(
    "fedgranger evaluate run --truth data/truth.json",
    "fedgranger evaluate run --truth known-edges.csv --json",
)
def evaluate(
    run: Run,
    truth: Annotated[
        Path,
        typer.Option(
            help="truth.json of the simulation, or a known graph: .csv, .graphml or "
            "node-link .json."
        ),
    ],
    json_output: Json = False,
) -> None:
    """Compare a run with what is known to be true; also written to RUN/evaluation.json."""
    with busy(f"reading {run}"):
        from fedgranger.cli.evaluate_screen import show_scores
        from fedgranger.results import Result

        result = Result.load(run)
    show_scores(result, run, truth, json_output=json_output)
