"""`federation init` and `add-client`: who belongs to a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedgranger.cli.console import friendly, out
from fedgranger.cli.federation.common import AuthorityFolder, AuthorityKey, federation
from fedgranger.flare.certificate_checks import MEMBERS, fingerprint, read_certificate
from fedgranger.flare.identity import root_path
from fedgranger.flare.kits import add_client, make_kits, prepare_kits


@federation.command()
@friendly
def init(
    folder: Annotated[Path, typer.Argument(help="New folder for the parties' kits.")],
    server: Annotated[str, typer.Option(help="Host name or address of the server.")],
    clients: Annotated[str, typer.Option(help="Names of the clients, with commas between.")],
    port: Annotated[int, typer.Option(help="Port of the server.")] = 8002,
    local: Annotated[
        bool, typer.Option("--local", help="Make all keys here: for trying it on one machine.")
    ] = False,
) -> None:
    """Make the authority, and a kit for every party; each party makes its own key."""
    names = [name.strip() for name in clients.split(",") if name.strip()]
    kits = (make_kits if local else prepare_kits)(folder, server, names, port)
    for party, kit in kits.items():
        out.print(f"{escape(party):<20} {escape(str(kit))}", soft_wrap=True)
    root = read_certificate(root_path(kits["server"]))
    out.print(f"\nfingerprint of this federation: {fingerprint(root.public_key())}", soft_wrap=True)
    if local:
        out.print("All keys were made here: for one machine. Otherwise leave --local out.")
    else:
        out.print(
            "Send every party its folder and tell it the fingerprint by telephone; its README.md "
            "says what to do. Sign what comes back with 'fedgranger federation sign'.",
            soft_wrap=True,
        )
    out.print(
        "Keep 'authority' offline: its rootCA.key can let in new parties; it may lie elsewhere "
        "(--key).",
        soft_wrap=True,
    )


@federation.command("add-client")
@friendly
def add(
    authority: AuthorityFolder,
    name: Annotated[str, typer.Argument(help="Name of the new client.")],
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Where to make its kit; default: beside.")
    ] = None,
    key: AuthorityKey = None,
) -> None:
    """Make a kit for one more client; the others need nothing."""
    kit = add_client(authority, name, out_folder, key)
    out.print(f"{escape(name):<20} {escape(str(kit))}", soft_wrap=True)
    out.print(
        f"\nSend it to the client and sign its request. Send {escape(str(authority / MEMBERS))} "
        "to the admin, who takes it in with 'fedgranger federation accept'.",
        soft_wrap=True,
    )
