"""`federation watch`: root causes between parties that keep their data."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgranger.cli.console import friendly
from fedgranger.cli.federation.common import Kit, check_kit, print_sentence
from fedgranger.cli.options import with_options
from fedgranger.cli.rankings import SHOWN, print_rankings
from fedgranger.config import RunConfig
from fedgranger.errors import RunError
from fedgranger.federation.agreed_options import FederationOptions, WaitingOptions
from fedgranger.federation.watching import WatchOptions
from fedgranger.flare.identity import require_flare
from fedgranger.flare.session import connect, run_job
from fedgranger.rca.knowledge import knowledge_of
from fedgranger.rca.ranking import read_rankings
from fedgranger.report.html import write_run_report
from fedgranger.results import ROOT_CAUSE_FILE, Result


@dataclass(frozen=True)
class SitesWatchOptions(WaitingOptions, WatchOptions):
    """What the command line of a watch between parties may set."""


@friendly
@functools.partial(with_options, kind=SitesWatchOptions)
def watch(
    kit: Kit,
    run: Annotated[Path, typer.Argument(help="Run folder that 'federation run' wrote.")],
    top: Annotated[int, typer.Option(help="Suspects to show.", min=1)] = SHOWN,
    *,
    given: dict[str, Any],
) -> None:
    """Let every site watch its own new data; rank who started an anomaly, and tell the sites.

    Once through all new data that the sites have ('federation start --watch FILE'); give it again
    when there are more. What is written: RUN/rca.json and the report; at every site alarms.json.
    """
    require_flare()
    asked = SitesWatchOptions.from_mapping(given)
    result = Result.load(run)
    name = result.manifest.get("run")
    if name is None:
        raise RunError(
            f"{run}: was not made between parties; use 'fedgranger rca {run} --data FOLDER'"
        )
    knowledge_of(result)  # says why, when the run does not know what is normal
    waiting = {name: getattr(asked, name) for name in WaitingOptions.names()}
    options = FederationOptions(RunConfig(solver="none"), **waiting)
    check_kit(kit)
    with connect(kit) as session:
        outcome = run_job(
            session,
            name,
            result.clients,
            options,
            run,
            mode="watch",
            watch={name: getattr(asked, name) for name in WatchOptions.names()},
            log=print_sentence,
        )
    if outcome["status"] != "done":
        raise RunError(outcome["sentence"])
    write_run_report(run / "report.html", result, run)
    path = run / ROOT_CAUSE_FILE
    print_rankings(read_rankings(path.read_text("utf-8")), top, path)
