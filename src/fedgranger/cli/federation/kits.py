"""`federation init`: who belongs to a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedgranger.cli.console import friendly, out
from fedgranger.cli.federation.common import federation
from fedgranger.runtime.flare.kits import make_kits

__all__ = ["init"]


@federation.command()
@friendly
def init(
    folder: Annotated[Path, typer.Argument(help="New folder for the parties' kits.")],
    server: Annotated[str, typer.Option(help="Host name or address of the server.")],
    clients: Annotated[str, typer.Option(help="Names of the clients, with commas between.")],
    port: Annotated[int, typer.Option(help="Port of the server.")] = 8002,
) -> None:
    """Make a start-up kit for every party: certificate, key, policy, README."""
    names = [name.strip() for name in clients.split(",") if name.strip()]
    kits = make_kits(folder, server, names, port)
    for party, kit in kits.items():
        out.print(f"{escape(party):<20} {escape(str(kit))}", soft_wrap=True)
    out.print(
        "\nSend every party its folder over a safe way; each README.md says what to do. Keep "
        "'authority' offline: it can make new parties."
    )
