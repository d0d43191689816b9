"""`federation start` and `preview`: a party with its own data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fedgranger.cli.console import Json, busy, out, print_beside, print_json
from fedgranger.cli.federation.common import Kit, check_kit, client_of, federation
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.cli.options import with_options
from fedgranger.errors import ConfigError, RunError
from fedgranger.flare.identity import require_flare, role_of
from fedgranger.flare.processes import alone
from fedgranger.flare.settings import ClientSettings, audit_log, state_folder, write_settings
from fedgranger.flare.supervisor import become_supervisor
from fedgranger.text import counted

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


@federation.command()
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
    """Show what would leave this site, and how well your sensors could be reconstructed from it."""
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


def read_and_check(
    kit: Path, data: Path | None, interval: float | None, given: Mapping[str, Any]
) -> tuple[ClientSettings, SitePolicy, LocalSeries]:
    """Read a client's policy and data as its runs will, before anybody else is involved."""
    from fedgranger.federation.policy import POLICY_FILE, read_policy
    from fedgranger.flare.own_data import read_series

    name = client_of(kit)
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
    out.print(
        "\nHow much of each sensor could be reconstructed from it, with the best linear weights:"
    )
    out.print(NarrowTable(columns, rows, left=("sensor",)))


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
