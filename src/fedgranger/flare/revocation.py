"""Let a FLARE process refuse parties whose certificates were revoked, and end their connections.

FLARE knows no such lists, and hands out session tokens that outlive a certificate; so the check is
made where a connection begins, on the certificate that TLS has verified, and again when FLARE asks
a party who it is. A list that comes while the process runs counts within seconds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgranger.errors import RunError
from fedgranger.flare.certificate_checks import (
    REVOKED,
    check_not_revoked,
    common_name,
    revoked_serials,
)

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

CHECK_SECONDS = 2.0
REPEAT_SECONDS = 60.0  # one line a minute for a party that goes on trying


class Revoked:
    """The serial numbers that a kit knows to be revoked, read again when the list changes.

    A list that cannot be read, or that is not the authority's, leaves the last good one in force.
    """

    def __init__(self, kit: Path, report: Callable[..., None]) -> None:
        self._kit, self._report = kit, report
        self._seen: tuple[int, ...] | None = None
        self._serials: set[int] = set()
        self._reported: dict[int, float] = {}
        self._lock = threading.Lock()

    def serials(self) -> set[int]:
        """The serial numbers in force."""
        with self._lock:
            try:
                found = (self._kit / "startup" / REVOKED).stat()
                seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            except FileNotFoundError:
                return self._serials
            if seen != self._seen:
                self._seen = seen
                try:
                    self._serials = revoked_serials(self._kit)
                except (RunError, OSError) as error:
                    self._log_event("list of revoked certificates not used", reason=str(error))
            return self._serials

    def refuses(self, certificate: Certificate, address: str) -> str:
        """Why a certificate is refused; empty when it is not."""
        try:
            check_not_revoked(certificate, self.serials())
        except RunError as error:
            serial, now = certificate.serial_number, time.monotonic()
            if now > self._reported.get(serial, -REPEAT_SECONDS) + REPEAT_SECONDS:
                self._reported[serial] = now
                name = common_name(certificate.subject)
                self._log_event("revoked", reason=str(error), sender=name, address=address)
            return str(error)
        return ""

    def _log_event(self, event: str, **facts: str) -> None:
        """A refusal stands even when it cannot be written down: the disk may be full."""
        with contextlib.suppress(OSError):
            self._report(event, **facts)


def refuse_revoked(kit: Path, report: Callable[..., None]) -> None:
    """Patch this process; to be called once, before FLARE makes its first connection."""
    revoked = Revoked(kit, report)
    _guard_connections(revoked)
    _guard_identities(revoked)


def _guard_connections(revoked: Revoked) -> None:
    """Of the server's port: FLARE's gRPC service starts a stream per connection."""
    import grpc
    from cryptography import x509
    from nvflare.fuel.f3.drivers.grpc_driver import Servicer

    original = Servicer.Stream
    streams: dict[Any, Certificate] = {}

    def stream(self: Any, requests: Any, context: Any) -> Iterator[Any]:
        shown = context.auth_context().get("x509_pem_cert")
        if not shown:
            yield from original(self, requests, context)
            return
        certificate = x509.load_pem_x509_certificate(shown[0])
        reason = revoked.refuses(certificate, str(context.peer()))
        if reason:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)
        streams[context] = certificate
        try:
            yield from original(self, requests, context)
        finally:
            streams.pop(context, None)

    def watch() -> None:
        while True:
            time.sleep(CHECK_SECONDS)
            serials = revoked.serials()
            for context, certificate in list(streams.items()):
                if certificate.serial_number in serials:
                    revoked.refuses(certificate, str(context.peer()))
                    context.cancel()
                    streams.pop(context, None)

    Servicer.Stream = stream  # type: ignore[method-assign]
    threading.Thread(target=watch, name="revoked certificates", daemon=True).start()


def _guard_identities(revoked: Revoked) -> None:
    """Of registration, of the admin's login and, at a client, of its server."""
    from nvflare.private.fed.utils.identity_utils import IdentityVerifier, InvalidAsserterCert

    original = IdentityVerifier.verify_common_name

    def verify(self: Any, *args: Any, **kwargs: Any) -> bool:
        certificate = kwargs["asserter_cert"]
        reason = revoked.refuses(certificate, "")
        if reason:
            raise InvalidAsserterCert(reason)
        return original(self, *args, **kwargs)

    IdentityVerifier.verify_common_name = verify  # type: ignore[method-assign]
