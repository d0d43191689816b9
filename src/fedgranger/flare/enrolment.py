"""A party's side of its certificate: make a key and a request, take in what the organiser signed.

The private key is made here and never leaves the kit. While a request is on its way, the new key
waits beside it and the old certificate stays in use.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from fedgranger.errors import RunError
from fedgranger.flare.certificate_checks import (
    MEMBERS,
    REVOKED,
    check_issued,
    day,
    fingerprint,
    parse_revoked,
    read_certificate,
)
from fedgranger.flare.identity import (
    ADMIN,
    ORGANISATION,
    certificate_path,
    common_name_of,
    describe,
    key_path,
    role_of,
    root_path,
)
from fedgranger.flare.private_files import write_private
from fedgranger.flare.settings import write_members

REQUEST = "request.csr"
PENDING_KEY = "request.key"


def make_request(kit: Path, *, is_renewal: bool) -> tuple[Path, str]:
    """Make a new private key and a request to sign its public half; return its fingerprint too.

    A request that is still open is kept, key and all, so that an answer on its way fits.

    Raises:
        RunError: there is a certificate already, or none to renew.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from nvflare.lighter.utils import generate_keys, serialize_pri_key, x509_name

    name = common_name_of(kit)
    certificate = certificate_path(kit)
    if certificate.is_file() and not is_renewal:
        until = day(read_certificate(certificate).not_valid_after_utc)
        raise RunError(
            f"{kit}: has a certificate until {until}; renew it with 'fedgranger federation renew'"
        )
    if is_renewal and not certificate.is_file():
        raise RunError(
            f"{kit}: has no certificate to renew; ask for the first with 'fedgranger federation "
            "request'"
        )
    request, pending = kit / REQUEST, kit / PENDING_KEY
    if not (request.is_file() and pending.is_file()):
        key, _ = generate_keys()
        asked = (
            x509.CertificateSigningRequestBuilder()
            .subject_name(x509_name(name, ORGANISATION))
            .sign(key, hashes.SHA256())
        )
        write_private(pending, serialize_pri_key(key))
        write_private(request, asked.public_bytes(serialization.Encoding.PEM))
    found = x509.load_pem_x509_csr(request.read_bytes())
    return request, fingerprint(found.public_key())


def accept(kit: Path, file: Path, now: datetime) -> str:
    """Take in a certificate, a list of revoked ones, or of clients; say what was done.

    Raises:
        RunError: it is not for this kit, or not from this federation's authority.
    """
    role_of(kit)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise RunError(f"{file}: {error.strerror}") from None
    if b"-----BEGIN CERTIFICATE-----" in content:
        return _accept_certificate(kit, file, now)
    if b"-----BEGIN X509 CRL-----" in content:
        return _accept_revoked(kit, file)
    if content.lstrip().startswith(b"{"):
        return _accept_members(kit, file)
    raise RunError(
        f"{file}: is neither a certificate nor a list that the organiser signed; ask for it again"
    )


def _accept_certificate(kit: Path, file: Path, now: datetime) -> str:
    from cryptography.hazmat.primitives import serialization

    certificate, root = read_certificate(file), read_certificate(root_path(kit))
    check_issued(certificate, root, kit, now, file)
    pending = kit / PENDING_KEY
    if not pending.is_file():
        raise RunError(
            f"{kit}: has no open request; make one with 'fedgranger federation request' or 'renew'"
        )
    key = serialization.load_pem_private_key(pending.read_bytes(), None)
    if key.public_key() != certificate.public_key():
        raise RunError(f"{file}: does not fit the key of {kit / REQUEST}; have that request signed")
    # The waiting key goes last: after a crash on the way the same command mends it.
    write_private(key_path(kit), pending.read_bytes())
    write_private(certificate_path(kit), file.read_bytes())
    (kit / REQUEST).unlink(missing_ok=True)
    pending.unlink()
    who = describe(*role_of(kit))
    return f"{who} has a certificate until {day(certificate.not_valid_after_utc)}"


def _accept_revoked(kit: Path, file: Path) -> str:
    from cryptography import x509

    root, place = read_certificate(root_path(kit)), kit / "startup" / REVOKED

    def number(path: Path) -> int:
        found = parse_revoked(path, root)
        return found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number

    if place.is_file() and number(file) < number(place):
        raise RunError(f"{file}: is older than the list that this kit has; it is not used")
    count = len(parse_revoked(file, root))
    write_private(place, file.read_bytes())
    return f"{describe(*role_of(kit))} refuses {count} revoked certificate(s) from now on"


def _accept_members(kit: Path, file: Path) -> str:
    if role_of(kit)[0] != ADMIN:
        raise RunError(f"{file}: a list of clients is for the admin's kit; pass the folder 'admin'")
    place = kit / "startup" / MEMBERS
    clients, written = _read_members(file, kit)
    if place.is_file() and written < _read_members(place, kit)[1]:
        raise RunError(f"{file}: is older than the list that this kit has; it is not used")
    write_private(place, file.read_bytes())
    write_members(kit, clients)
    return f"the federation's clients are {', '.join(clients)}"


def _read_members(file: Path, kit: Path) -> tuple[list[str], float]:
    from cryptography.exceptions import InvalidSignature
    from nvflare.lighter.utils import verify_content

    root = read_certificate(root_path(kit)).public_key()
    try:
        signed = json.loads(file.read_text("utf-8"))
        verify_content(signed["list"], signed["signature"], root)
        values = json.loads(signed["list"])
        return [str(name) for name in values["clients"]], float(values["written"])
    except (ValueError, KeyError, TypeError, InvalidSignature):
        raise RunError(
            f"{file}: is not a list of clients signed by this federation's authority"
        ) from None
