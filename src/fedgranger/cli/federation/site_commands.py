"""`federation start`, `preview`, `allow`, `edges`, `log`: what a party does at its own site."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fedgranger.cli.console import Json, busy, out, print_beside, print_line
from fedgranger.cli.federation.common import Kit, check_kit, federation
from fedgranger.cli.friendly import friendly
from fedgranger.cli.json_output import print_json
from fedgranger.cli.narrow_tables import make_table
from fedgranger.cli.options import with_options
from fedgranger.errors import ConfigError, RunError
from fedgranger.flare.identity import require_flare, role_of
from fedgranger.flare.processes import alone
from fedgranger.flare.settings import (
    ClientSettings,
    audit_log,
    read_edges_of_site,
    state_folder,
    write_settings,
)
from fedgranger.flare.supervisor import become_supervisor
from fedgranger.text import counted, utc_stamp

if TYPE_CHECKING:
    from fedgranger.data.time_axis import LocalSeries
    from fedgranger.federation.policy import SitePolicy
    from fedgranger.federation.preview import Preview

DataFile = Annotated[
    Path | None, typer.Option(help="The client's own file: .csv, .tsv, .txt, .xlsx or .parquet.")
]
Interval = Annotated[
    float | None, typer.Option(help="Sampling interval in seconds (or units of the column).")
]
SHARED = (
    "\nIt lets others know, of each of your edges, which of your sensors shows it best and which "
    "three move with it."
)
LOG_COLUMNS = ("time", "event", "run", "request", "round", "answer", "bytes", "reason", "sensors")


@federation.command()
@friendly
@with_options(ClientSettings)
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
    with alone(kit):  # before anything is said, or written for a party that runs
        pass
    if role == "client":
        with busy(f"reading {data or kit}"):
            from fedgranger.flare.own_data import read_series

            settings, policy, _ = read_and_check(kit, data, interval, given)
        if watch is not None:
            settings = replace(settings, watch=str(watch.resolve()))
            if not policy.watch:
                print_beside(
                    "policy.toml does not let new data be watched; set 'watch = true' there"
                )
            read_series(name, settings, policy, is_new=True)  # refuses what cannot be read
        write_settings(kit, settings)
    elif data is not None or watch is not None:
        raise ConfigError("the server has no data; leave --data and --watch out")
    who = "server" if role == "server" else f"client '{name}'"
    out.print(f"{escape(who)} starts; Ctrl-C ends it, {escape(str(kit))}/console.txt has more")
    become_supervisor(kit)


@federation.command()
@friendly
@with_options(ClientSettings)
def preview(
    kit: Kit,
    data: DataFile = None,
    interval: Interval = None,
    rounds: Annotated[int, typer.Option(help="FedGC rounds to compare with.", min=0)] = 3,
    consent: Annotated[
        bool, typer.Option("--consent", help="Record in the audit log that you have seen this.")
    ] = False,
    json_output: Json = False,
    *,
    given: dict[str, Any],
) -> None:
    """Show what would leave this site, and how well your sensors could be told from it."""
    with busy(f"reading {data or kit}"):
        from fedgranger.federation.preview import make_preview

        _, policy, series = read_and_check(kit, data, interval, given)
        found = make_preview(series, policy, rounds)
    if json_output:
        print_json({**found._asdict(), "sensors": series.client.sensors})
    else:
        _show_preview(found, policy, series)
    if consent:
        _record_consent(kit, found, policy, series)
        print_beside("consent recorded ('federation log' shows it)")


def _client_of(kit: Path) -> str:
    """The client's name; refuses a kit that is not a client's."""
    role, name = role_of(kit)
    if role != "client":
        raise RunError(f"{kit}: is not a client's kit; pass a folder 'client-…'")
    return name


def read_and_check(
    kit: Path, data: Path | None, interval: float | None, given: Mapping[str, Any]
) -> tuple[ClientSettings, SitePolicy, LocalSeries]:
    """Read a client's policy and data as its runs will, before anybody else is involved."""
    from fedgranger.federation.policy import POLICY_FILE, read_policy
    from fedgranger.flare.own_data import read_series

    name = _client_of(kit)
    if data is None:
        raise ConfigError(f"client '{name}' needs its data: --data FILE")
    policy = read_policy(kit / POLICY_FILE)
    settings = ClientSettings(str(data.resolve()), interval=interval, **given)
    if settings.models is not None:
        settings = replace(settings, models=str(Path(settings.models).resolve()))
    series, notes = read_series(name, settings, policy)
    for note in notes:
        print_beside(note)
    if interval is not None and series.time.dtype.kind == "M":  # kept in nanoseconds
        settings = replace(settings, interval=1e9 * interval)
        series = series._replace(interval=settings.interval)
    return settings, policy, series


def _show_preview(found: Preview, policy: SitePolicy, series: LocalSeries) -> None:
    from fedgranger.text import format_bytes

    p, d, rounds = found.state_dim, found.num_sensors, found.rounds
    with_rounds = (
        f"With {counted(rounds, 'round')} of FedGC: also a {p} x {p} transition matrix, filtered "
        "states once "
        f"and corrected states every round: about {format_bytes(found.bytes_rounds)}.\n"
    )
    if policy.epsilon < math.inf:
        with_rounds = (
            f"Shown with the least noise that policy.toml lets out (epsilon = {policy.epsilon:g}, "
            "all of it spent at once).\n"
        )
    out.print(
        f"{counted(d, 'sensor')}, {found.num_steps} time steps; "
        f"{counted(p, 'state leaves', 'states leave')} per time step.\n"
        f"The default run: time range once, {p} x {p} error covariance once, states once: about "
        f"{format_bytes(found.bytes_default)}.\n"
        f"{with_rounds}policy.toml allows {counted(policy.rounds, 'round')}, "
        f"{counted(policy.questions, 'question')} about these data, "
        f"{counted(policy.runs_per_day, 'run')} per day"
        + ("; every run waits for your word." if policy.ask else ".")
        + (SHARED if policy.share_sensors else ""),
        soft_wrap=True,
    )
    rows = (
        (escape(series.client.sensors[k]), f"{found.default[k]:.3f}", f"{found.after[k]:.3f}")
        for k in sorted(range(d), key=lambda k: -found.default[k])
    )
    columns = ("sensor", "R², default run", f"R², {counted(rounds, 'round')}")
    out.print("\nHow much of each sensor could be told from it, with the best linear weights:")
    out.print(make_table(columns, rows, left=("sensor",)))


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

    _client_of(kit)
    store = Store(DiskFiles(state_folder(kit)))
    found = store.load(WAITING)
    waiting: dict[str, Any] = {} if found is None else found[0]["runs"]
    if run not in waiting:
        names = ", ".join(waiting) or "none"
        raise RunError(f"no run '{run}' waits here; waiting: {names}")
    asks = waiting[run]
    for name in ("question", "options", "period"):
        print_line(f"{name}: {asks[name]}")
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
def edges(kit: Kit, json_output: Json = False) -> None:
    """Show what the last run told this site: what its own edges do, in its sensors; all pairs."""
    name = _client_of(kit)
    pairs, own = read_edges_of_site(state_folder(kit))
    if json_output:
        print_json({"own_edges": own, "pairs": pairs})
        return
    for one in own.values():
        print_line(one["sentence"])
    touching = [pair for pair in pairs if name in (pair["cause"], pair["effect"])]
    found = sum(bool(pair["is_edge"]) for pair in touching)
    if not found and not own:
        print_line("no edge from or to this site was found")
    elif len(own) < found:
        print_line(f"edges of this site without a course to tell: {found - len(own)}")
    columns = ("cause", "effect", "edge", "p-value", "strength")
    tested = [pair for pair in pairs if pair["p_value"] is not None]
    rows = (
        (
            escape(pair["cause"]),
            escape(pair["effect"]),
            {True: "yes", False: "no"}.get(pair["is_edge"], ""),
            f"{pair['p_value']:.3g}",
            _short(pair),
        )
        for pair in sorted(tested, key=lambda pair: pair["p_value"])
    )
    out.print(make_table(columns, rows, left=("cause", "effect", "edge")))
    if len(tested) < len(pairs):
        print_line(f"pairs that were not tested: {len(pairs) - len(tested)}")


def _short(pair: Mapping[str, Any]) -> str:
    return "" if pair["strength"] is None else f"{pair['strength']:.3g}"


@federation.command()
@friendly
def log(
    kit: Kit,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that no line was changed.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Show everything that left this site or was refused; at the server, what was refused."""
    from fedgranger.federation.audit_log import read_lines
    from fedgranger.federation.audit_log import verify as check_chain

    role_of(kit)  # any party has one
    path = state_folder(kit) / "audit.jsonl"
    count = check_chain(path) if verify else 0
    lines = list(read_lines(path))
    if json_output:
        print_json(lines)
    else:
        rows = []
        for line in lines:
            line["sensors"] = ", ".join(line.get("sensors") or ())
            rest = ("" if line.get(name) is None else str(line[name]) for name in LOG_COLUMNS[1:])
            rows.append((utc_stamp(float(line["time"])), *map(escape, rest)))
        shown = len(LOG_COLUMNS) - (not any(row[-1] for row in rows))  # no sensor was told
        columns, rows = LOG_COLUMNS[:shown], [row[:shown] for row in rows]
        left = [name for name in columns if name not in ("round", "bytes")]
        out.print(make_table(columns, rows, left=left))
        listed = {line["answer"]: line["fields"] for line in lines if line.get("fields")}
        for kind, fields in listed.items():
            print_line(f"fields of '{kind}': {fields}")
    if verify:
        print_beside(
            f"{counted(count, 'line')}, none changed; the last has hash "
            f"{lines[-1]['hash'] if lines else '-'}"
        )
