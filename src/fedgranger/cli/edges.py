"""`fedgranger edges`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import Correction, Json, Level, ReplaceFile, Run, busy, check_new_file
from fedgranger.errors import ConfigError
from fedgranger.option_fields import check_level


@examples(
    "fedgranger edges run --alpha 0.01 --correction holm",
    "fedgranger edges run --json > edges.json",
    "fedgranger edges run --over-time --picture bands.svg",
)
def edges(
    run: Run,
    top: Annotated[int | None, typer.Option(help="Show only the first N.")] = None,
    alpha: Level = None,
    correction: Correction = None,
    estimate: Annotated[
        str,
        typer.Option(
            help="debiased (latent), readings or nonlinear, where the run has it; fedgc: FedGC's "
            "ranking, which is not a test; auto: the run's own test."
        ),
    ] = "auto",
    bound: Annotated[
        bool, typer.Option("--bound", help="Bound the chance that any reported edge is false.")
    ] = False,
    over_time: Annotated[
        bool,
        typer.Option(
            "--over-time",
            help="When each edge is there: of a run that was fit with --time-windows.",
        ),
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option(help="With --over-time, also draw it: a .png, .svg or .pdf file."),
    ] = None,
    overwrite: ReplaceFile = False,
    json_output: Json = False,
) -> None:
    """List the edges of a run, most certain first."""
    if top is not None and top < 1:
        raise ConfigError(f"--top is {top}; it must be at least 1")
    check_level("--alpha", alpha)
    check_new_file(picture, overwrite=overwrite, option="--picture")
    if over_time and (bound or alpha is not None or correction is not None or estimate != "auto"):
        raise ConfigError(
            "--over-time has the level, correction and test of the run; leave --alpha, "
            "--correction, --estimate and --bound out"
        )
    if picture is not None and not over_time:
        raise ConfigError("--picture is for --over-time; add it, or see 'fedgranger report'")
    if bound and json_output:
        raise ConfigError("--bound is a sentence; leave out --json to get it")
    with busy(f"reading {run}"):
        from fedgranger.cli.edges_screen import show_edges, show_edges_over_time
        from fedgranger.results import Result

        result = Result.load(run)
    if over_time:
        show_edges_over_time(result, top, picture, json_output=json_output)
    else:
        show_edges(result, estimate, alpha, correction, top, bound=bound, json_output=json_output)
