"""Who belongs to a federation: `init`, `add-client`, `sign`, `revoke` at the organiser.

At a party: `request`, `renew` and `accept`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedgranger.cli.console import (
    Json,
    ReplaceFile,
    busy,
    check_new_file,
    out,
    print_beside,
    print_json,
    print_line,
)
from fedgranger.cli.federation.common import AuthorityFolder, AuthorityKey, Kit, federation
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.flare import enrolment, signing
from fedgranger.flare.authority import issued_certificates, read_authority
from fedgranger.flare.certificate_checks import MEMBERS, day, fingerprint, read_certificate
from fedgranger.flare.identity import describe, require_flare, root_path
from fedgranger.flare.kits import add_client, make_kits, prepare_kits
from fedgranger.flare.private_files import write_private


@federation.command()
def request(kit: Kit) -> None:
    """Make this party's private key, which stays here, and a request for the organiser to sign."""
    _ask(kit, is_renewal=False)


@federation.command()
def renew(kit: Kit) -> None:
    """Make a new key and request; the present certificate is used until the new one is accepted."""
    _ask(kit, is_renewal=True)


def _ask(kit: Path, *, is_renewal: bool) -> None:
    require_flare()
    with busy("making a key"):
        path, found = enrolment.make_request(kit, is_renewal=is_renewal)
    root = fingerprint(read_certificate(root_path(kit)).public_key())
    print_line(
        f"request:                {path}\n"
        f"its fingerprint:        {found}\n"
        f"federation fingerprint: {root}\n\n"
        "Send the request to the organiser and compare both fingerprints by telephone. Take in "
        "the certificate that comes back with 'fedgranger federation accept'."
    )


@federation.command()
def accept(
    kit: Kit,
    file: Annotated[Path, typer.Argument(help="What the organiser sent: .crt, .crl or .json.")],
) -> None:
    """Take in a certificate, a list of revoked ones, or (admin) the list of clients."""
    require_flare()
    print_line(enrolment.accept(kit, file, datetime.now(UTC)))


@federation.command()
def sign(
    authority: AuthorityFolder,
    file: Annotated[Path, typer.Argument(help="A party's request.csr.")],
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="Certificate to write; default: in FILE's folder, as .crt."),
    ] = None,
    days: Annotated[int, typer.Option(help="How long it lasts.")] = signing.LEAF_DAYS,
    expected: Annotated[
        str, typer.Option("--fingerprint", help="As the party told it; another is refused.")
    ] = "",
    key: AuthorityKey = None,
    overwrite: ReplaceFile = False,
) -> None:
    """Sign a party's request; name and right come from your own list of parties."""
    require_flare()
    check_new_file(out_file, overwrite=overwrite)
    now = datetime.now(UTC)
    signed = signing.sign_request(
        read_authority(authority), file, now, days=days, key=key, expected=expected
    )
    target = out_file or file.with_suffix(".crt")
    write_private(target, signed.certificate)
    for note in signed.notes:
        print_beside(note)
    print_line(
        f"party:       {describe(signed.role, signed.name)}\n"
        f"fingerprint: {signed.fingerprint}\n"
        f"until:       {day(signed.until)}\n"
        f"certificate: {target}"
    )
    if not expected:
        out.print("\nSend it only after the party told you this fingerprint by telephone.")


@federation.command()
def revoke(
    authority: AuthorityFolder,
    name: Annotated[str, typer.Argument(help="A client's name, 'server' or 'admin'.")],
    key: AuthorityKey = None,
) -> None:
    """Withdraw all certificates of a party."""
    require_flare()
    path = signing.revoke(read_authority(authority), name, datetime.now(UTC), key)
    print_line(
        f"{path}\n\nSend it to the server (and to the clients, if it was the server's own), who "
        "take it in with 'fedgranger federation accept'; running connections end within seconds. "
        f"Send {MEMBERS} beside it to the admin in the same way."
    )


@federation.command()
def certificates(authority: AuthorityFolder, json_output: Json = False) -> None:
    """List who has a certificate, until when, and which were revoked."""
    now, rows = datetime.now(UTC), []
    for item in issued_certificates(read_authority(authority)):
        state = "revoked" if item.is_revoked else "ended" if item.until <= now else "valid"
        dates = (day(item.begins), day(item.until))
        rows.append((item.name, *dates, state, f"{item.serial:x}"))
    columns = ("party", "from", "until", "state", "serial")
    if json_output:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        out.print(NarrowTable(columns, [map(escape, row) for row in rows], left=columns))


@federation.command()
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
    with busy("making keys and certificates"):
        kits = (make_kits if local else prepare_kits)(folder, server, names, port)
    for party, kit in kits.items():
        print_line(f"{party:<20} {kit}")
    root = read_certificate(root_path(kits["server"]))
    print_line(f"\nfingerprint of this federation: {fingerprint(root.public_key())}")
    if local:
        out.print("All keys were made here: for one machine. Otherwise leave --local out.")
    else:
        print_line(
            "Send every party its folder and tell it the fingerprint by telephone; its README.md "
            "says what to do. Sign what comes back with 'fedgranger federation sign'."
        )
    print_line(
        "Keep 'authority' offline: its rootCA.key can let in new parties; it may lie elsewhere "
        "(--key)."
    )


@federation.command("add-client")
def add(
    authority: AuthorityFolder,
    name: Annotated[str, typer.Argument(help="Name of the new client.")],
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", help="Where to make its kit; default: next to the folder AUTHORITY."),
    ] = None,
    key: AuthorityKey = None,
) -> None:
    """Make a kit for one more client; the others need nothing."""
    with busy("making a kit"):
        kit = add_client(authority, name, out_folder, key)
    print_line(f"{name:<20} {kit}")
    print_line(
        f"\nSend it to the client and sign its request. Send {authority / MEMBERS} to the admin, "
        "who takes it in with 'fedgranger federation accept'."
    )
