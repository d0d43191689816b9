"""Certificates: `request`, `renew`, `accept` at a party; `sign`, `revoke` at the organiser."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedgranger.cli.console import friendly, out
from fedgranger.cli.federation.common import (
    AuthorityFolder,
    AuthorityKey,
    Kit,
    federation,
    print_sentence,
)
from fedgranger.flare import enrolment, signing
from fedgranger.flare.authority import issued_certificates, read_authority
from fedgranger.flare.certificate_checks import MEMBERS, day, fingerprint, read_certificate
from fedgranger.flare.identity import describe, require_flare, root_path
from fedgranger.flare.private_files import write_private


@federation.command()
@friendly
def request(kit: Kit) -> None:
    """Make this party's private key, which stays here, and a request for the organiser to sign."""
    _ask(kit, is_renewal=False)


@federation.command()
@friendly
def renew(kit: Kit) -> None:
    """Make a new key and request; the present certificate is used until the new one is accepted."""
    _ask(kit, is_renewal=True)


def _ask(kit: Path, *, is_renewal: bool) -> None:
    require_flare()
    path, found = enrolment.make_request(kit, is_renewal=is_renewal)
    root = fingerprint(read_certificate(root_path(kit)).public_key())
    out.print(f"request:                {escape(str(path))}", soft_wrap=True)
    out.print(f"its fingerprint:        {found}", soft_wrap=True)
    out.print(f"federation fingerprint: {root}", soft_wrap=True)
    out.print(
        "\nSend the request to the organiser and compare both fingerprints by telephone. Take in "
        "the certificate that comes back with 'fedgranger federation accept'.",
        soft_wrap=True,
    )


@federation.command()
@friendly
def accept(
    kit: Kit,
    file: Annotated[Path, typer.Argument(help="What the organiser sent: .crt, .crl or .json.")],
) -> None:
    """Take in a certificate, a list of revoked ones, or (admin) the list of clients."""
    require_flare()
    out.print(escape(enrolment.accept(kit, file, datetime.now(UTC))), soft_wrap=True)


@federation.command()
@friendly
def sign(
    authority: AuthorityFolder,
    file: Annotated[Path, typer.Argument(help="A party's request.csr.")],
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Certificate to write; default: beside it, .crt.")
    ] = None,
    days: Annotated[int, typer.Option(help="How long it lasts.")] = signing.LEAF_DAYS,
    expected: Annotated[
        str, typer.Option("--fingerprint", help="As the party told it; another is refused.")
    ] = "",
    key: AuthorityKey = None,
) -> None:
    """Sign a party's request; name and right come from your own list of parties."""
    require_flare()
    now = datetime.now(UTC)
    signed = signing.sign_request(
        read_authority(authority), file, now, days=days, key=key, expected=expected
    )
    target = out_file or file.with_suffix(".crt")
    write_private(target, signed.certificate)
    for note in signed.notes:
        print_sentence(note)
    out.print(f"party:       {escape(describe(signed.role, signed.name))}", soft_wrap=True)
    out.print(f"fingerprint: {signed.fingerprint}", soft_wrap=True)
    out.print(f"until:       {day(signed.until)}")
    out.print(f"certificate: {escape(str(target))}", soft_wrap=True)
    if not expected:
        out.print("\nSend it only after the party told you this fingerprint by telephone.")


@federation.command()
@friendly
def revoke(
    authority: AuthorityFolder,
    name: Annotated[str, typer.Argument(help="A client's name, 'server' or 'admin'.")],
    key: AuthorityKey = None,
) -> None:
    """Withdraw all certificates of a party."""
    require_flare()
    path = signing.revoke(read_authority(authority), name, datetime.now(UTC), key)
    out.print(
        f"{escape(str(path))}\n\nSend it to the server (and to the clients, if it was the server's "
        "own), who take it in with 'fedgranger federation accept'; running connections end within "
        f"seconds. Send {MEMBERS} beside it to the admin in the same way.",
        soft_wrap=True,
    )


@federation.command()
@friendly
def certificates(authority: AuthorityFolder) -> None:
    """List who has a certificate, until when, and which were revoked."""
    now = datetime.now(UTC)
    table = Table(box=None, header_style="bold")
    for column in ("party", "from", "until", "state", "serial"):
        table.add_column(column)
    for item in issued_certificates(read_authority(authority)):
        state = "revoked" if item.is_revoked else "ended" if item.until <= now else "valid"
        row = (item.name, day(item.begins), day(item.until), state, f"{item.serial:x}")
        table.add_row(*map(escape, row))
    out.print(table)
