"""`fedgranger evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.console import friendly, out
from fedgranger.cli.tables import score_table
from fedgranger.data.truth import Truth
from fedgranger.evaluation.metrics import evaluate as score
from fedgranger.results import Result, write_atomically

__all__ = ["evaluate"]


@friendly
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    truth: Annotated[Path, typer.Option(help="truth.json of the simulation.")],
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Compare a run with the truth of a simulation; also written to RUN/evaluation.json."""
    scores = score(Result.load(run), Truth.read(truth))
    text = json.dumps(scores, indent=1) + "\n"
    write_atomically(run / "evaluation.json", lambda path: path.write_text(text, encoding="utf-8"))
    if json_output:
        typer.echo(json.dumps(scores))
        return
    out.print(score_table(scores))
    tested = scores.get("debiased") or scores.get("asymptotic") or {}
    coverage = tested.get("coverage", {})
    for name, label in (("null_entries", "zero entries"), ("all_entries", "all entries")):
        if coverage.get(name) is not None:
            out.print(f"intervals that hold the true value, {label}: {coverage[name]:.3f}")
