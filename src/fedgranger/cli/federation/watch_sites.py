"""`federation watch`: root causes between parties that keep their data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.console import friendly
from fedgranger.cli.federation.common import Kit, check_kit, print_sentence
from fedgranger.cli.rankings import SHOWN, print_rankings
from fedgranger.config import RunConfig, check_choice
from fedgranger.errors import RunError
from fedgranger.federation.agreed_options import FederationOptions
from fedgranger.flare.kits import require_flare
from fedgranger.flare.session import connect, run_job
from fedgranger.rca import SCORERS
from fedgranger.rca.knowledge import knowledge_of
from fedgranger.rca.ranking import read_rankings
from fedgranger.report.html import write_run_report
from fedgranger.results import ROOT_CAUSE_FILE, Result

__all__ = ["watch"]


@friendly
def watch(
    kit: Kit,
    run: Annotated[Path, typer.Argument(help="Run folder that 'federation run' wrote.")],
    scorer: Annotated[str, typer.Option(help=f"One of {', '.join(SCORERS)}.")] = "unexplained",
    batch: Annotated[int, typer.Option(help="Time steps per message.", min=1)] = 50,
    quiet: Annotated[int, typer.Option(help="Calm steps that end an alarm.", min=1)] = 50,
    top: Annotated[int, typer.Option(help="Suspects to show.", min=1)] = SHOWN,
    wait_seconds: Annotated[float, typer.Option(help="Longest wait for a party.")] = 600.0,
    on_missing: Annotated[str, typer.Option(help="stop, or drop who stays away.")] = "stop",
    clock_seconds: Annotated[float, typer.Option(help="Allowed clock difference.")] = 60.0,
) -> None:
    """Let every site watch its own new data; rank who started an anomaly, and tell the sites.

    Once through all new data that the sites have ('federation start --watch FILE'); give it again
    when there are more. What is written: RUN/rca.json and the report; at every site alarms.json.
    """
    require_flare()
    check_choice("scorer", scorer, tuple(SCORERS))
    result = Result.load(run)
    name = result.manifest.get("run")
    if name is None:
        raise RunError(
            f"{run}: was not made between parties; use 'fedgranger rca {run} --data FOLDER'"
        )
    knowledge_of(result)  # says why, when the run does not know what is normal
    options = FederationOptions(
        RunConfig(solver="none"),
        wait_seconds=wait_seconds,
        on_missing=on_missing,
        clock_seconds=clock_seconds,
    )
    check_kit(kit)
    asked = {"scorer": scorer, "steps": batch, "quiet": quiet}
    with connect(kit) as session:
        outcome = run_job(
            session,
            name,
            result.clients,
            options,
            run,
            mode="watch",
            watch=asked,
            log=print_sentence,
        )
    if outcome["status"] != "done":
        raise RunError(outcome["sentence"])
    write_run_report(run / "report.html", result, run)
    path = run / ROOT_CAUSE_FILE
    print_rankings(read_rankings(path.read_text("utf-8")), top, path)
