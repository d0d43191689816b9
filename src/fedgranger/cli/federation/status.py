"""`federation status` and `health`: how a federation and its parties are."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedgranger.cli.console import Json, busy, out, print_json, print_line
from fedgranger.cli.federation.common import Kit, check_kit, federation
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.errors import RunError
from fedgranger.flare.certificate_checks import read_certificate
from fedgranger.flare.health import read_health
from fedgranger.flare.identity import certificate_path, require_flare, role_of
from fedgranger.flare.session import connect
from fedgranger.flare.settings import read_members
from fedgranger.text import utc_stamp

SHOWN_JOBS = 5


@federation.command()
def status(kit: Kit, json_output: Json = False) -> None:
    """Show who is connected and what is running; exit code 1 if a client is away."""
    require_flare()
    names = read_members(kit)
    check_kit(kit)
    with busy("asking the server"), connect(kit) as session:
        contacts = session.last_contacts()
        if contacts is None:
            raise RunError("the server cannot be reached; is it started, and is its port open?")
        jobs = session.jobs()
    away = [name for name in names if name not in contacts]
    if json_output:
        end = read_certificate(certificate_path(kit)).not_valid_after_utc
        facts = {
            "clients": {
                name: {"connected": name in contacts, "last_heard": _stamp(contacts.get(name))}
                for name in names
            },
            "unknown_clients": sorted(set(contacts) - set(names)),
            "jobs": jobs,
            "certificate_ends": _stamp(end.timestamp()),
        }
        print_json(facts)
    else:
        _show(names, contacts, jobs)
    if away:
        raise typer.Exit(1)


@federation.command()
def health(
    kit: Annotated[Path, typer.Argument(help="The kit of a server or client.")],
    json_output: Json = False,
) -> None:
    """Say how this party is, from its own files; exit code 1 if it is not well."""
    role, name = role_of(kit)
    if role == "admin":
        raise RunError(f"{kit}: is the admin's kit and runs nothing; use 'federation status'")
    found = read_health(kit)
    if json_output:
        print_json(found._asdict())
    else:
        who = "server" if role == "server" else f"client '{name}'"
        print_line(f"{who}: {found.sentence}")
        beat = "never" if found.beat_seconds is None else f"{found.beat_seconds:.0f} s ago"
        out.print(f"last sign of life: {beat}; {found.free_bytes / 1e9:.1f} GB of disk free")
    if not found.is_good:
        raise typer.Exit(1)


def _show(names: tuple[str, ...], contacts: dict[str, float], jobs: list[dict[str, Any]]) -> None:
    rows = []
    for name in names:
        state, contact = "[red]away[/]", ""
        if name in contacts:
            ago = max(time.time() - contacts[name], 0.0)
            state, contact = "[green]connected[/]", f"{ago:.0f} s ago"
        rows.append((escape(name), state, contact))
    columns = ("client", "state", "last heard")
    out.print(NarrowTable(columns, rows, left=columns))
    running = sum(not job["is_finished"] for job in jobs)
    out.print(f"\njobs: {len(jobs)} kept, {running} not finished")
    for job in jobs[-SHOWN_JOBS:]:
        print_line(f"  {job['submitted']}  {job['name']}  {job['state']}")


def _stamp(seconds: float | None) -> str | None:
    """Universal time."""
    return None if seconds is None else utc_stamp(seconds)
