"""Sign a party's request, and withdraw a party's certificates: what only the organiser can do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fedgranger.errors import ConfigError, RunError
from fedgranger.flare.authority import (
    CLOCK_SLACK,
    ROOT,
    Authority,
    issued_certificates,
    signing_key,
    write_parties,
)
from fedgranger.flare.certificate_checks import (
    REVOKED,
    common_name,
    day,
    fingerprint,
    read_certificate,
    revocation_times,
)
from fedgranger.flare.identity import ADMIN, ADMIN_RIGHT, ORGANISATION, SERVER, describe
from fedgranger.flare.private_files import write_private

if TYPE_CHECKING:
    from cryptography.x509 import CertificateSigningRequest, KeyUsage

LEAF_DAYS = 365
SMALLEST_BITS = 2048


@dataclass(frozen=True)
class Signed:
    """A certificate that was just signed, and what the organiser should know.

    Attributes:
        certificate: as a file's content.
        fingerprint: of the party's public key, to compare by telephone.
        notes: sentences on earlier certificates of the same party.
    """

    role: str
    name: str
    certificate: bytes
    fingerprint: str
    until: datetime
    notes: tuple[str, ...]


def sign_request(
    authority: Authority,
    request: Path,
    now: datetime,
    *,
    days: int = LEAF_DAYS,
    key: Path | None = None,
    expected: str = "",
) -> Signed:
    """Sign a party's request; its role comes from the organiser's list.

    The certificate must end before the root. `key` says where the authority's key lies, if not in
    its folder; `expected` is the fingerprint that the party told by another way, if it did.

    Raises:
        ConfigError: `days` is not possible.
        RunError: the request is damaged, or from nobody in the list, or not the one expected.
    """
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID
    from nvflare.lighter.utils import Identity, generate_cert, serialize_cert

    asked = _read_request(request)
    wanted = common_name(asked.subject)
    party = authority.party_of(wanted)
    if party is None:
        raise RunError(
            f"{request}: '{wanted}' does not belong to this federation; let a new client in with "
            "'fedgranger federation add-client'"
        )
    role, name = party
    found = fingerprint(asked.public_key())
    if expected and "".join(expected.split()).lower() != found.replace(" ", ""):
        raise RunError(
            f"{request}: its fingerprint is {found}, not the one given; it is not the request "
            f"that {describe(role, name)} made"
        )
    root = read_certificate(authority.folder / ROOT)
    until = now + timedelta(days=days)
    left = (root.not_valid_after_utc - now).days
    if not 1 <= days <= left:
        raise ConfigError(
            f"days is {days}; the root ends on {day(root.not_valid_after_utc)}: give 1 to {left}"
        )
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role != ADMIN:  # a client listens too, for its own jobs on its own machine
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    certificate = generate_cert(
        subject=Identity(wanted, ORGANISATION, ADMIN_RIGHT if role == ADMIN else ""),
        issuer=Identity(common_name(root.subject)),
        signing_pri_key=signing_key(authority.folder, key),
        subject_pub_key=asked.public_key(),
        server_default_host=authority.host if role == SERVER else None,
        not_valid_before=now - CLOCK_SLACK,
        not_valid_after=until,
        extra_extensions=[
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_signatures_only(), True),
            (x509.ExtendedKeyUsage(usages), False),
        ],
    )
    notes = tuple(
        f"{describe(role, name)} also has a certificate until {day(other.until)}; if that key was "
        "lost, revoke first and sign then"
        for other in issued_certificates(authority)
        if (other.role, other.name) == party and other.until > now and not other.is_revoked
    )
    content = serialize_cert(certificate)
    place = authority.folder / "issued" / f"{name}-{certificate.serial_number:x}.crt"
    write_private(place, content)
    write_parties(authority, now, key)
    return Signed(role, name, content, found, until, notes)


def revoke(authority: Authority, name: str, now: datetime, key: Path | None = None) -> Path:
    """Withdraw all certificates of a party; returns the signed list of all withdrawn ones.

    Raises:
        RunError: the party has no valid certificate.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    books = issued_certificates(authority)
    chosen = {
        item.serial
        for item in books
        if item.name == name and not item.is_revoked and item.until > now
    }
    if not chosen:
        raise RunError(
            f"'{name}' has no valid certificate; 'fedgranger federation certificates' lists them"
        )
    root = read_certificate(authority.folder / ROOT)
    signer = signing_key(authority.folder, key)
    path = authority.folder / REVOKED
    before = revocation_times(path, authority.folder / ROOT)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(root.subject)
        .last_update(now)
        .next_update(root.not_valid_after_utc)  # it counts until a newer one comes
        .add_extension(x509.CRLNumber(len(before) + len(chosen)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    times = {**before, **dict.fromkeys(chosen, now)}
    for serial, since in times.items():
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since).build()
        )
    content = builder.sign(signer, hashes.SHA256())
    write_private(path, content.public_bytes(serialization.Encoding.PEM))
    write_parties(authority, now, key)
    return path


def _read_request(path: Path) -> CertificateSigningRequest:
    """A request whose sender has the private key; FLARE's signatures need RSA."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import rsa

    try:
        request = x509.load_pem_x509_csr(path.read_bytes())
    except ValueError:
        request = None
    if request is None or not request.is_signature_valid:
        raise RunError(f"{path}: is not a signing request; ask the party for 'request.csr' again")
    key = request.public_key()
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < SMALLEST_BITS:
        raise RunError(
            f"{path}: its key is not RSA of at least {SMALLEST_BITS} bits; make it with "
            "'fedgranger federation request'"
        )
    return request


def _signatures_only() -> KeyUsage:
    """What a party's key may do: prove who speaks; neither sign certificates nor lists."""
    from cryptography import x509

    denied = (
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(digital_signature=True, **dict.fromkeys(denied, False))
