"""The organiser's authority: who belongs to a federation, and whose certificate is valid.

It holds the key that signs (`rootCA.key`, which may lie elsewhere), the list of parties, and a copy
of every certificate that it signed; never a party's private key. What a party is follows from the
list alone: a request can ask for a name, not for a right. Certificates have FLARE's own form.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fedgranger.errors import RunError
from fedgranger.flare.certificate_checks import (
    MEMBERS,
    REVOKED,
    common_name,
    read_certificate,
    revocation_times,
)
from fedgranger.flare.identity import ADMIN, ADMIN_NAME, ORGANISATION, SERVER
from fedgranger.flare.private_files import write_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

ROOT_DAYS = 5 * 365
ROOT_BITS = 3072  # longer than the parties' 2048, as it lasts longer
CLOCK_SLACK = timedelta(hours=1)  # the parties' clocks may be behind the organiser's
ROOT = "rootCA.pem"
KEY = "rootCA.key"
PARTIES = "federation.json"


@dataclass(frozen=True)
class Authority:
    """A federation as its organiser knows it, with all clients that were ever let in."""

    folder: Path
    host: str
    port: int
    clients: tuple[str, ...]

    def party_of(self, name: str) -> tuple[str, str] | None:
        """Role and name of the party with a certificate's common name; None for a stranger."""
        if name == self.host:
            return SERVER, SERVER
        if name == ADMIN_NAME:
            return ADMIN, ADMIN
        return ("client", name) if name in self.clients else None


@dataclass(frozen=True)
class Issued:
    """One certificate in the organiser's books."""

    role: str
    name: str
    serial: int
    begins: datetime
    until: datetime
    is_revoked: bool


def make_authority(
    folder: Path, host: str, port: int, clients: Sequence[str], now: datetime
) -> Authority:
    """Make the key that signs and its certificate, and write down who belongs."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from nvflare.lighter.utils import Identity, generate_cert, serialize_cert, serialize_pri_key

    key = rsa.generate_private_key(public_exponent=65_537, key_size=ROOT_BITS)
    begins = now - CLOCK_SLACK
    root = generate_cert(
        subject=Identity(ORGANISATION),
        issuer=Identity(ORGANISATION),
        signing_pri_key=key,
        subject_pub_key=key.public_key(),
        ca=True,
        not_valid_before=begins,
        not_valid_after=now + timedelta(days=ROOT_DAYS),
    )
    write_private(folder / KEY, serialize_pri_key(key))
    write_private(folder / ROOT, serialize_cert(root))
    authority = Authority(folder, host, port, tuple(clients))
    write_parties(authority, now)
    return authority


def read_authority(folder: Path) -> Authority:
    """Open the authority that `federation init` made."""
    try:
        values = json.loads((folder / PARTIES).read_text("utf-8"))
        return Authority(folder, values["host"], values["port"], tuple(values["clients"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(
            f"{folder}: is not an authority; pass the folder 'authority' that 'fedgranger "
            "federation init' made"
        ) from None


def write_parties(authority: Authority, now: datetime, key: Path | None = None) -> None:
    """Write the list of parties, and the signed list of clients for the admin."""
    from nvflare.lighter.utils import sign_content

    books = issued_certificates(authority)
    valid = {item.name for item in books if not item.is_revoked}
    out = {item.name for item in books} - valid  # all of their certificates were revoked
    members = [name for name in authority.clients if name not in out]
    text = json.dumps({"clients": members, "written": now.timestamp()})
    signature = sign_content(text, signing_key(authority.folder, key))
    values = {k: v for k, v in asdict(authority).items() if k != "folder"}
    write_private(authority.folder / PARTIES, json.dumps(values, indent=1).encode())
    signed = json.dumps({"list": text, "signature": signature}, indent=1)
    write_private(authority.folder / MEMBERS, signed.encode())


def issued_certificates(authority: Authority) -> list[Issued]:
    """All certificates that were ever signed, by party and time."""
    revoked = revocation_times(authority.folder / REVOKED, authority.folder / ROOT)
    out = []
    for path in (authority.folder / "issued").glob("*.crt"):
        found = read_certificate(path)
        role, name = authority.party_of(common_name(found.subject)) or ("", path.stem)
        serial = found.serial_number
        times = (found.not_valid_before_utc, found.not_valid_after_utc)
        out.append(Issued(role, name, serial, *times, serial in revoked))
    return sorted(out, key=lambda item: (item.name, item.begins))


def signing_key(folder: Path, key: Path | None) -> RSAPrivateKey:
    """The key that signs, from the authority's folder or wherever it is kept.

    Raises:
        RunError: it is missing, or is not the key of this authority.
    """
    path = key or folder / KEY
    if not path.is_file():
        raise RunError(f"{path}: missing; say with --key where the authority's key lies")
    try:
        found = _read_key(path.read_bytes())
    except (ValueError, TypeError):
        raise RunError(f"{path}: is not a private key") from None
    if found.public_key() != read_certificate(folder / ROOT).public_key():
        raise RunError(f"{path}: is not the key of the authority in {folder}")
    return found  # type: ignore[return-value]


@functools.lru_cache(maxsize=1)
def _read_key(pem: bytes) -> PrivateKeyTypes:
    """A key is checked once: to see that its factors are prime takes longer than to sign."""
    from cryptography.hazmat.primitives import serialization

    return serialization.load_pem_private_key(pem, None)
