"""`federation start`: what a party does at its own site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedgranger.cli.console import friendly, out
from fedgranger.cli.federation.common import Kit, federation, say
from fedgranger.errors import ConfigError, RunError
from fedgranger.runtime.flare.kits import require_flare, role_of
from fedgranger.runtime.flare.settings import ClientSettings, write_settings
from fedgranger.runtime.flare.supervisor import become_supervisor

__all__ = ["start"]


@federation.command()
@friendly
def start(
    kit: Kit,
    data: Annotated[Path | None, typer.Option(help="The client's .csv or .parquet file.")] = None,
    time_column: Annotated[str, typer.Option(help="Name of the time column.")] = "auto",
    interval: Annotated[
        float | None, typer.Option(help="Sampling interval in seconds (or units of the column).")
    ] = None,
    missing: Annotated[str, typer.Option(help="error, or mask empty cells.")] = "error",
    constant: Annotated[str, typer.Option(help="error, or drop constant sensors.")] = "error",
) -> None:
    """Run this party until Ctrl-C; it comes back by itself when its process dies."""
    require_flare()
    role, name = role_of(kit)
    if role == "admin":
        raise RunError(f"{kit}: is the admin's kit; use 'federation run'")
    if role == "client":
        _take_settings(kit, name, data, time_column, interval, missing, constant)
    elif data is not None:
        raise ConfigError("the server has no data; leave --data out")
    who = "server" if role == "server" else f"client '{name}'"
    out.print(f"{escape(who)} starts; Ctrl-C ends it, {escape(str(kit))}/console.txt has more")
    become_supervisor(kit)


def _take_settings(
    kit: Path,
    name: str,
    data: Path | None,
    time_column: str,
    interval: float | None,
    missing: str,
    constant: str,
) -> None:
    """Check that the data can be read before anybody else is involved."""
    from fedgranger.data.reading import read_client

    if data is None:
        raise ConfigError(f"client '{name}' needs its data: --data FILE")
    _, times, notes = read_client(
        name, data, time_column=time_column, missing=missing, constant=constant
    )
    for note in notes:
        say(note)
    if interval is not None and times.dtype.kind == "M":
        interval *= 1e9
    write_settings(
        kit, ClientSettings(str(data.resolve()), time_column, interval, missing, constant)
    )
