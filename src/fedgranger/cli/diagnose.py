"""`fedgranger diagnose`: may the tests of a run be trusted, and what could they have found?"""

from __future__ import annotations

from typing import Annotated

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import Json, Run, busy


@examples("fedgranger diagnose run", "fedgranger diagnose run --strength 0.3")
def diagnose(
    run: Run,
    strength: Annotated[
        float | None,
        typer.Option(help="The power for this strength, too.", min=0.0),
    ] = None,
    json_output: Json = False,
) -> None:
    """Show residual checks, stationarity, conditioning, detectable strengths and other levels."""
    with busy(f"reading {run}"):
        from fedgranger.cli.diagnose_screen import show_diagnosis
        from fedgranger.results import Result

        result = Result.load(run)
    show_diagnosis(result, run, strength, json_output=json_output)
