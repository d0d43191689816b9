"""`federation start`, `preview`, `allow` and `log`: what a party does at its own site."""

from __future__ import annotations

import functools
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedgranger.cli.console import friendly, out
from fedgranger.cli.federation.common import (
    DataFile,
    Interval,
    Kit,
    check_kit,
    client_of,
    federation,
    print_sentence,
    read_and_check,
)
from fedgranger.cli.options import with_options
from fedgranger.errors import ConfigError, RunError
from fedgranger.flare.identity import require_flare, role_of
from fedgranger.flare.settings import (
    ClientSettings,
    audit_log,
    read_series,
    state_folder,
    write_settings,
)
from fedgranger.flare.supervisor import become_supervisor

if TYPE_CHECKING:
    from fedgranger.data.time_axis import LocalSeries
    from fedgranger.federation.policy import SitePolicy
    from fedgranger.federation.preview import Preview
    from fedgranger.flare.settings import ClientSettings

LOG_COLUMNS = ("time", "event", "run", "request", "round", "answer", "bytes", "reason")


@federation.command()
@friendly
@functools.partial(with_options, kind=ClientSettings)
def start(
    kit: Kit,
    data: DataFile = None,
    interval: Interval = None,
    watch: Annotated[
        Path | None, typer.Option(help="The client's file of new data, for 'federation watch'.")
    ] = None,
    *,
    given: dict[str, Any],
) -> None:
    """Run this party until Ctrl-C; it comes back by itself when its process dies."""
    require_flare()
    role, name = role_of(kit)
    if role == "admin":
        raise RunError(f"{kit}: is the admin's kit; use 'federation run'")
    check_kit(kit)
    if role == "client":
        settings, policy, _ = read_and_check(kit, data, interval, given)
        write_settings(kit, settings if watch is None else _watched(name, settings, policy, watch))
    elif data is not None or watch is not None:
        raise ConfigError("the server has no data; leave --data and --watch out")
    who = "server" if role == "server" else f"client '{name}'"
    out.print(f"{escape(who)} starts; Ctrl-C ends it, {escape(str(kit))}/console.txt has more")
    become_supervisor(kit)


def _watched(
    name: str, settings: ClientSettings, policy: SitePolicy, watch: Path
) -> ClientSettings:
    """The settings with the file of new data, which must be one that can be read."""
    settings = replace(settings, watch=str(watch.resolve()))
    if not policy.watch:
        print_sentence("policy.toml does not let new data be watched; set 'watch = true' there")
    read_series(name, settings, policy, is_new=True)
    return settings


@federation.command()
@friendly
@functools.partial(with_options, kind=ClientSettings)
def preview(
    kit: Kit,
    data: DataFile = None,
    interval: Interval = None,
    rounds: Annotated[int, typer.Option(help="FedGC rounds to compare with.", min=0)] = 3,
    consent: Annotated[
        bool, typer.Option("--consent", help="Record in the audit log that you have seen this.")
    ] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Show what would leave this site, and how well your sensors could be told from it."""
    from fedgranger.federation.preview import make_preview

    _, policy, series = read_and_check(kit, data, interval, given)
    found = make_preview(series, policy, rounds)
    _show_preview(found, policy, series)
    if consent:
        _record_consent(kit, found, policy, series)
        out.print("\nconsent recorded ('federation log' shows it)")


def _show_preview(found: Preview, policy: SitePolicy, series: LocalSeries) -> None:
    from fedgranger.text import format_bytes

    p, d, rounds = found.state_dim, found.num_sensors, found.rounds
    out.print(
        f"{d} sensors, {found.num_steps} time steps; {p} states leave per time step.\n"
        f"The default run: time range once, {p} x {p} error covariance once, states once: about "
        f"{format_bytes(found.bytes_default)}.\n"
        f"With {rounds} rounds of FedGC: also a {p} x {p} transition matrix, filtered states once "
        f"and corrected states every round: about {format_bytes(found.bytes_rounds)}.\n"
        f"policy.toml allows {policy.rounds} rounds, {policy.questions} question(s) about these "
        f"data, {policy.runs_per_day} runs per day"
        + ("; every run waits for your word." if policy.ask else "."),
        soft_wrap=True,
    )
    table = Table(box=None, header_style="bold")
    table.add_column("sensor")
    table.add_column("R², default run", justify="right")
    table.add_column(f"R², {rounds} rounds", justify="right")
    for k in sorted(range(d), key=lambda k: -found.default[k]):
        cells = (f"{found.default[k]:.3f}", f"{found.after[k]:.3f}")
        table.add_row(escape(series.client.sensors[k]), *cells)
    out.print("\nHow much of each sensor could be told from it, with the best linear weights:")
    out.print(table)


def _record_consent(kit: Path, found: Preview, policy: SitePolicy, series: LocalSeries) -> None:
    from dataclasses import asdict

    from fedgranger.federation.secret import data_hash, read_secret

    secret = read_secret(state_folder(kit) / "secret")
    audit_log(kit).add(
        "consent",
        data=data_hash(secret, series),
        question=found.question,
        states=found.state_dim,
        sensors=found.num_sensors,
        steps=found.num_steps,
        bytes=found.bytes_default,
        largest_r2=round(float(found.default.max()), 6),
        policy=json.dumps(asdict(policy), sort_keys=True),
    )


@federation.command()
@friendly
def allow(
    kit: Kit,
    run: Annotated[str, typer.Argument(help="Name of a run that waits.")],
    question: Annotated[
        str, typer.Option(help="Allow this question without asking back; shown by this command.")
    ] = "",
) -> None:
    """Show what a run asks for that waits for this site's word (ask = true), and let it go on."""
    from fedgranger.federation.questions import ALLOWED, WAITING
    from fedgranger.federation.store import DiskFiles, Store

    client_of(kit)
    store = Store(DiskFiles(state_folder(kit)))
    found = store.load(WAITING)
    waiting: dict[str, Any] = {} if found is None else found[0]["runs"]
    if run not in waiting:
        names = ", ".join(waiting) or "none"
        raise RunError(f"no run '{run}' waits here; waiting: {names}")
    asks = waiting[run]
    for name in ("question", "options", "period"):
        out.print(f"{name}: {escape(asks[name])}", soft_wrap=True)
    if not question:
        if not sys.stdin.isatty():
            raise RunError(f"add '--question {asks['question']}' to allow what is shown above")
        typer.confirm(f"Let run '{run}' go on?", abort=True)
    elif question != asks["question"]:
        raise RunError(
            f"run '{run}' asks question {asks['question']}, not {question}; look at it once more"
        )
    before = store.load(ALLOWED)
    allowed = {} if before is None else before[0]["runs"]
    audit_log(kit).add("allowed", run=run, **asks)
    store.save(ALLOWED, {"runs": {**allowed, run: asks["question"]}}, {})
    out.print(f"run '{escape(run)}' may go on")


@federation.command()
@friendly
def log(
    kit: Kit,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that no line was changed.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON lines instead.")] = False,
) -> None:
    """Show everything that left this site or was refused; at the server, what was refused."""
    from fedgranger.federation.audit_log import read_lines
    from fedgranger.federation.audit_log import verify as check_chain

    role_of(kit)  # any party has one
    path = state_folder(kit) / "audit.jsonl"
    count = check_chain(path) if verify else 0
    lines = list(read_lines(path))
    if json_output:
        for line in lines:
            typer.echo(json.dumps(line))
    else:
        out.print(_log_table(lines))
    if verify:
        print_sentence(
            f"{count} lines, none changed; the last has hash {lines[-1]['hash'] if lines else '-'}"
        )


def _log_table(lines: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold")
    for name in LOG_COLUMNS:
        table.add_column(name, justify="right" if name in ("round", "bytes") else "left")
    for line in lines:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(float(line["time"])))
        rest = ("" if line.get(name) is None else str(line[name]) for name in LOG_COLUMNS[1:])
        table.add_row(when, *map(escape, rest))
    return table
