"""What the admin's commands do: talk to the parties, and show what came of it."""

from __future__ import annotations

import hashlib
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from fedgranger.cli.console import (
    Amount,
    err,
    out,
    print_beside,
    print_json,
    print_line,
    print_note,
    print_warning,
)
from fedgranger.cli.federation.common import check_kit
from fedgranger.cli.fit_screen import (
    SHOWN_EDGES,
    leave_if_untested,
    plain_answer,
    print_answer,
    print_privacy,
)
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.cli.tables import ledger_table, print_rankings
from fedgranger.config import RunConfig
from fedgranger.data.common_axis import agree, unused_notes
from fedgranger.data.time_axis import TimeRange, interval_text
from fedgranger.errors import ConfigError, DataError, RunError
from fedgranger.federation.agreed_options import FederationOptions
from fedgranger.flare.session import connect
from fedgranger.flare.settings import read_members
from fedgranger.flare.submission import run_job
from fedgranger.rca.alarms import knowledge_of
from fedgranger.rca.ranking import read_rankings
from fedgranger.report.html import write_run_report
from fedgranger.results import ROOT_CAUSE_FILE, Result
from fedgranger.text import counted


def show_readiness(kit: Path, options: FederationOptions, *, json_output: bool) -> None:
    """Ask every client for its time range, version and clock, and show them."""
    names = read_members(kit)
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
    num_steps, notes = None, []
    if not problems:
        own = {name: _range(facts) for name, facts in ranges.items()}
        try:
            grid = agree(own)
            num_steps, notes = grid.num_steps, unused_notes(own, grid)
        except DataError as error:
            problems.append(str(error))
    if json_output:
        found = {"clients": ranges, "common_steps": num_steps}
        print_json({**found, "notes": notes, "problems": problems})
    else:
        out.print(NarrowTable(columns, rows, left=columns))
        if num_steps is not None:
            out.print(f"\n{num_steps} common time steps; everything is ready")
        for note in notes:
            print_note(note)
    if problems:
        raise RunError("; ".join(problems))


def run_between_parties(
    kit: Path, out_folder: Path, options: FederationOptions, *, json_output: bool
) -> None:
    """Run, write the report and show the answer with what crossed the wire."""
    names = read_members(kit)
    _check_named(options.config, names)
    digest = hashlib.sha256(f"{out_folder.resolve()}{options.to_text()}".encode()).hexdigest()
    if options.config.solver != "none":
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
    for sentence in result.manifest.inference.warnings:
        print_warning(sentence)
    for sentence in result.manifest.data.notes:
        print_note(sentence)
    if json_output:
        print_json(plain_answer(result, out_folder))
    else:
        print_answer(result, None if Amount.is_verbose else SHOWN_EDGES)
        if not Amount.is_quiet:
            _show_exchanges(result, out_folder, time.monotonic() - started)
    leave_if_untested(result)


def _show_exchanges(result: Result, out_folder: Path, seconds: float) -> None:
    training = result.manifest.training
    print_line(f"\n{training.status}")
    print_privacy(result)
    out.print("\nwhat crossed the wire:")
    out.print(ledger_table(result.manifest.bytes))
    per_round = 1000 * result.manifest.timings["seconds_per_round"]
    count = training.rounds
    rounds = f"{counted(count, 'round')} of {per_round:.0f} ms, " if count else ""
    print_line(f"\n{rounds}{seconds:.0f} s in all; written to {out_folder} (open report.html)")


def watch_sites(
    kit: Path,
    run: Path,
    options: FederationOptions,
    watched: dict[str, Any],
    top: int,
    *,
    json_output: bool,
) -> None:
    """Let the sites report on their new data, and show who is suspected."""
    result = Result.load(run)
    name = result.manifest.run
    if name is None:
        raise RunError(
            f"{run}: was not made between parties; use 'fedgranger rca {run} --data FOLDER'"
        )
    knowledge_of(result)  # says why, when the run does not know what is normal
    outcome = _run_job(kit, name, result.clients, options, run, mode="watch", watch=watched)
    if outcome["status"] != "done":
        raise RunError(outcome["sentence"])
    write_run_report(run / "report.html", result, run)
    path = run / ROOT_CAUSE_FILE
    text = path.read_text("utf-8")
    if json_output:
        typer.echo(text, nl=False)
    else:
        print_rankings(read_rankings(text), top, path)


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
    if not sys.stderr.isatty() or Amount.is_quiet:
        return
    line = f"{progress['phase']}, round {max(progress['round'], 0)}"
    err.print(f"{line:<40}", end="\r")
