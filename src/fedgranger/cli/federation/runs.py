"""`federation check`, `run` and `watch`: what the admin does."""

from __future__ import annotations

import hashlib
import sys
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedgranger.cli.console import (
    err,
    friendly,
    make_table,
    out,
    print_beside,
    print_line,
    print_note,
    print_warning,
)
from fedgranger.cli.federation.common import Kit, check_kit
from fedgranger.cli.fit import check_folder, leave_if_untested, print_answer, print_privacy
from fedgranger.cli.options import merge, with_options
from fedgranger.cli.tables import SHOWN_SUSPECTS, ledger_table, print_rankings
from fedgranger.config import RunConfig
from fedgranger.data.time_axis import TimeRange, agree, interval_text
from fedgranger.errors import ConfigError, DataError, RunError
from fedgranger.federation.agreed_options import (
    ExchangeOptions,
    FederationOptions,
    WaitingOptions,
)
from fedgranger.federation.watching import WatchOptions
from fedgranger.flare.identity import require_flare
from fedgranger.flare.session import connect, run_job
from fedgranger.flare.settings import read_members
from fedgranger.rca.knowledge import knowledge_of
from fedgranger.rca.ranking import read_rankings
from fedgranger.report.html import write_run_report
from fedgranger.results import ROOT_CAUSE_FILE, Result

DEFAULTS = {"solver": "none"}
"""States leave once; FedGC's rounds are asked for by name."""


@dataclass(frozen=True)
class FederatedRunOptions(RunConfig, ExchangeOptions):
    """What the command line of a federated run may set."""


@dataclass(frozen=True)
class SitesWatchOptions(WaitingOptions, WatchOptions):
    """What the command line of a watch between parties may set."""


PRIVATE = ("augmentation_prior_location", "augmentation_prior_scale")
"""Options that no client would follow."""


@friendly
def check(
    kit: Kit,
    wait_seconds: Annotated[float, typer.Option(help="How long to wait for parties.")] = 60.0,
) -> None:
    """Test connection, certificates, versions, clocks and common time, without a run."""
    require_flare()
    names = read_members(kit)
    options = FederationOptions(RunConfig(solver="none"), wait_seconds=wait_seconds)
    ranges = _run_job(kit, "check", names, options, None, mode="check").get("ranges", {})
    rows, problems = [], []
    for name in names:
        facts = ranges.get(name, {})
        if facts.get("kind") != "range":
            reason = facts.get("sentence", "it did not answer; its own log says why")
            problems.append(f"client '{name}': {reason}")
            continue
        offset = facts["clock"] - facts["asked"]
        if abs(offset) > options.clock_seconds:
            problems.append(f"client '{name}': its clock is {offset:+.0f} s from the server's")
        kind = facts["time_kind"]
        cells = [_time(facts[key], kind) for key in ("first", "last")]
        cells.append(interval_text(Fraction(facts["interval"]), kind))
        rows.append((escape(name), facts["version"], f"{offset:+.1f} s", *cells))
    columns = ("client", "version", "clock", "rows begin", "rows end", "interval")
    out.print(make_table(columns, rows, left=columns))
    if not problems:
        try:
            grid = agree({name: _range(facts) for name, facts in ranges.items()})
            out.print(f"\n{grid.num_steps} common time steps; everything is ready")
        except DataError as error:
            problems.append(str(error))
    if problems:
        raise RunError("; ".join(problems))


@friendly
@with_options(FederatedRunOptions, DEFAULTS)
def run(
    kit: Kit,
    out_folder: Annotated[Path, typer.Option("--out", help="Run folder to write.")],
    config: Annotated[Path | None, typer.Option(help="TOML file with options.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace what the run folder holds.")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Learn which client drives which; resumes after faults, and when the command is repeated.

    Exit status 0; 2: refused or failed; 3: the run is written but nothing could be tested.
    """
    require_flare()
    check_folder(out_folder, resume=False, overwrite=overwrite)
    exchange = {name: given.pop(name) for name in ExchangeOptions.names() if name in given}
    _, run_config = merge(config, given, DEFAULTS)
    for name in PRIVATE:
        if getattr(run_config, name) != getattr(RunConfig(), name):
            raise ConfigError(
                f"{name}: in a federation every site draws θ⁰ from a secret; leave the option out"
            )
    options = FederationOptions(run_config, **exchange)
    names = read_members(kit)
    _check_named(run_config, names)
    digest = hashlib.sha256(f"{out_folder.resolve()}{options.to_text()}".encode()).hexdigest()
    if run_config.solver != "none":
        print_beside(
            "FedGC's rounds show the server p more combinations of a client's d sensors each: "
            "after about d/p rounds it holds every sensor up to a linear map. Clients whose "
            "policy.toml does not allow rounds will refuse."
        )
    started = time.monotonic()
    outcome = _run_job(kit, f"run-{digest[:12]}", names, options, out_folder, report=_show)
    if outcome["status"] != "done":
        raise RunError(outcome["sentence"])
    result = Result.load(out_folder)
    write_run_report(out_folder / "report.html", result)
    training = result.manifest["training"]
    print_answer(result, 10)
    print_line(f"\n{training['status']}")
    for sentence in result.manifest["inference"]["warnings"]:
        print_warning(sentence)
    for sentence in result.manifest["data"]["notes"]:
        print_note(sentence)
    print_privacy(result)
    out.print("\nwhat crossed the wire:")
    out.print(ledger_table(result.manifest["bytes"]))
    per_round = 1000 * result.manifest["timings"]["seconds_per_round"]
    rounds = f"{training['rounds']} rounds of {per_round:.0f} ms, " if training["rounds"] else ""
    print_line(
        f"\n{rounds}{time.monotonic() - started:.0f} s in all; written to {out_folder} "
        "(open report.html)"
    )
    leave_if_untested(result)


@friendly
@with_options(SitesWatchOptions)
def watch(
    kit: Kit,
    run: Annotated[Path, typer.Argument(help="Run folder that 'federation run' wrote.")],
    top: Annotated[int, typer.Option(help="Suspects to show.", min=1)] = SHOWN_SUSPECTS,
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
    watched = {name: getattr(asked, name) for name in WatchOptions.names()}
    outcome = _run_job(kit, name, result.clients, options, run, mode="watch", watch=watched)
    if outcome["status"] != "done":
        raise RunError(outcome["sentence"])
    write_run_report(run / "report.html", result, run)
    path = run / ROOT_CAUSE_FILE
    print_rankings(read_rankings(path.read_text("utf-8")), top, path)


def _run_job(kit: Path, *job: Any, **settings: Any) -> dict[str, Any]:
    """`run_job` with the connection of a kit, which is checked first."""
    check_kit(kit)
    with connect(kit) as session:
        return run_job(session, *job, log=print_beside, **settings)


def _check_named(config: RunConfig, names: tuple[str, ...]) -> None:
    named = set(config.state_dim) if isinstance(config.state_dim, dict) else set()
    if config.couplings != "all":
        named |= {name for pair in config.couplings for name in pair}
    unknown = sorted(named - set(names))
    if unknown:
        raise ConfigError(
            f"the options name a client '{unknown[0]}' that the federation does not have; "
            f"the clients are {', '.join(sorted(names))}"
        )


def _range(facts: dict[str, Any]) -> TimeRange:
    first, last, interval = (Fraction(facts[key]) for key in ("first", "last", "interval"))
    stretches = tuple((start, stop) for start, stop in facts["stretches"])
    return TimeRange(facts["time_kind"], first, last, interval, stretches)


def _time(number: str, kind: str) -> str:
    if kind == "numbers":
        return f"{float(Fraction(number)):g}"
    seconds = float(Fraction(number)) / 1e9
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def _show(progress: dict[str, Any]) -> None:
    """One line that is written over."""
    if not sys.stderr.isatty():
        return
    line = f"{progress['phase']}, round {max(progress['round'], 0)}"
    err.print(f"{line:<40}", end="\r")
