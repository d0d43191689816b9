"""A party's certificate: what must be true of it before a connection is tried.

FLARE with a certificate that has ended, or that does not fit its key, tries to connect for ever
and says nothing. Here each such fault is one sentence. Nothing in this module writes.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fedgranger.errors import RunError
from fedgranger.flare.identity import (
    ADMIN,
    ADMIN_RIGHT,
    certificate_path,
    common_name_of,
    key_path,
    role_of,
    root_path,
)
from fedgranger.flare.private_files import check_private

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, CertificateRevocationList, Name

WARNING_DAYS = 30
MEMBERS = "members.json"
"""The signed list of a federation's clients, in the `startup` folder of the admin's kit."""
REVOKED = "revoked.crl"
"""The signed list of certificates that are no longer valid, in a kit's `startup` folder."""


def check_certificates(kit: Path, now: datetime) -> list[str]:
    """Check a party's key, certificate and root before it connects; say what ends soon.

    Raises:
        RunError: the party could not connect; the sentence says why and what to do.
    """
    certificate, key, root = certificate_path(kit), key_path(kit), root_path(kit)
    if not root.is_file():
        raise RunError(f"{root}: missing; ask the organiser for the kit again")
    if not certificate.is_file():
        raise RunError(
            f"{certificate}: missing; make a request with 'fedgranger federation request {kit}', "
            "have it signed, and take the certificate in with 'fedgranger federation accept'"
        )
    if not key.is_file():
        raise RunError(
            f"{key}: missing; make a new one with 'fedgranger federation renew {kit}' and have "
            "its request signed"
        )
    check_private(kit, key)
    own, trusted = read_certificate(certificate), read_certificate(root)
    check_issued(own, trusted, kit, now, certificate)
    if not _fits(key, own):
        raise RunError(
            f"{key}: does not fit {certificate.name}; take the certificate in again with "
            f"'fedgranger federation accept', or renew it with 'fedgranger federation renew {kit}'"
        )
    check_not_revoked(own, revoked_serials(kit))
    ends = (
        (certificate, own, f"renew it with 'fedgranger federation renew {kit}'"),
        (root, trusted, "the organiser must make a new federation before"),
    )
    return [
        f"{path}: ends on {day(found.not_valid_after_utc)}; {remedy}"
        for path, found, remedy in ends
        if found.not_valid_after_utc - now < timedelta(days=WARNING_DAYS)
    ]


def check_issued(
    certificate: Certificate, root: Certificate, kit: Path, now: datetime, path: Path
) -> None:
    """Refuse a certificate, read from `path`, of another authority, name, right or time."""
    from cryptography.exceptions import InvalidSignature

    for found, place in ((root, root_path(kit)), (certificate, path)):
        if now >= found.not_valid_after_utc:
            renewal = f"renew it with 'fedgranger federation renew {kit}'"
            remedy = renewal if found is certificate else "the organiser must make a new federation"
            raise RunError(f"{place}: ended on {day(found.not_valid_after_utc)}; {remedy}")
        if now < found.not_valid_before_utc:
            raise RunError(
                f"{place}: is not valid before {found.not_valid_before_utc:%Y-%m-%d %H:%M} UTC; "
                f"this machine's clock says {now:%Y-%m-%d %H:%M}: set it right"
            )
    try:
        certificate.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        raise RunError(
            f"{path}: was not signed by this federation's authority; ask its organiser to sign "
            "your request"
        ) from None
    wanted, found = common_name_of(kit), common_name(certificate.subject)
    if found != wanted:
        raise RunError(f"{path}: is the certificate of '{found}', not of '{wanted}'")
    rights = [ADMIN_RIGHT] if role_of(kit)[0] == ADMIN else []
    if _rights(certificate) != rights:
        raise RunError(
            f"{path}: gives the right {_rights(certificate)}, not {rights}; ask the organiser to "
            "sign your request again"
        )


def revoked_serials(kit: Path) -> set[int]:
    """Serial numbers of revoked certificates that a kit knows of; none when it has no list.

    Raises:
        RunError: the list is damaged or was not signed by the kit's root.
    """
    return set(revocation_times(kit / "startup" / REVOKED, root_path(kit)))


def revocation_times(path: Path, root: Path) -> dict[int, datetime]:
    """When which certificate in a list was revoked, by serial number; none without a list."""
    if not path.is_file():
        return {}
    revoked = parse_revoked(path, read_certificate(root))
    return {entry.serial_number: entry.revocation_date_utc for entry in revoked}


def parse_revoked(path: Path, root: Certificate) -> CertificateRevocationList:
    """Read a list of revoked certificates, which this root must have signed."""
    from cryptography import x509

    try:
        revoked = x509.load_pem_x509_crl(path.read_bytes())
        is_ours = revoked.issuer == root.subject and revoked.is_signature_valid(root.public_key())  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raise RunError(f"{path}: is not a list of revoked certificates") from None
    if not is_ours:
        raise RunError(f"{path}: was not signed by this federation's authority; it is not used")
    return revoked


def check_not_revoked(certificate: Certificate, serials: set[int]) -> None:
    """Refuse a certificate that the authority has withdrawn, naming its owner."""
    if certificate.serial_number in serials:
        name = common_name(certificate.subject)
        raise RunError(
            f"the certificate of '{name}' was revoked; ask the organiser whether a new request "
            "will be signed"
        )


def read_certificate(path: Path) -> Certificate:
    """Read a certificate file, or refuse what is none."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise RunError(f"{path}: is not a certificate; ask the organiser for it again") from None


def fingerprint(key: object) -> str:
    """The SHA-256 of a public key in groups that can be read out on the telephone."""
    from cryptography.hazmat.primitives import serialization

    encoded = key.public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = hashlib.sha256(encoded).hexdigest()
    return " ".join(digest[start : start + 4] for start in range(0, len(digest), 4))


def common_name(name: Name) -> str:
    """The common name in a subject; empty when it has none or several."""
    from cryptography.x509.oid import NameOID

    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if len(found) == 1 else ""


def day(time: datetime) -> str:
    """A date for a sentence."""
    return f"{time:%Y-%m-%d}"


def _rights(certificate: Certificate) -> list[str]:
    from cryptography.x509.oid import NameOID

    found = certificate.subject.get_attributes_for_oid(NameOID.UNSTRUCTURED_NAME)
    return [str(attribute.value) for attribute in found]


def _fits(key: Path, certificate: Certificate) -> bool:
    from cryptography.hazmat.primitives import serialization

    try:
        own = serialization.load_pem_private_key(key.read_bytes(), None)
    except (ValueError, TypeError):
        return False
    return own.public_key() == certificate.public_key()
