"""Whether a client is connected to its server, in words, in a file that its supervisor reads."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import threading
import time
from pathlib import Path

from fedgranger.flare.identity import server_address
from fedgranger.flare.private_files import write_private
from fedgranger.flare.settings import state_folder

STATUS = "status.json"
PATIENCE_SECONDS = 4.0
SHORT_SECONDS = 3.0
"""A connection that the server ends sooner was not wanted."""
SHORT = (
    "the server ends the connection at once; another process with this kit may be connected, or "
    "the certificate was revoked (the server's log says which)"
)


class Connection:
    """Follows a client's link to the server and writes down every change."""

    def __init__(self, kit: Path) -> None:
        self._kit, self._path = kit, state_folder(kit) / STATUS
        self._since, self._is_up, self._short = time.time(), False, 0
        self._server = server_address(kit)
        self._where = "{}:{}".format(*self._server)
        self._write("connecting", f"connecting to the server {self._where}")
        threading.Thread(target=self._watch, daemon=True).start()

    def changed(self, is_up: bool) -> None:
        """The link came up or went down."""
        now = time.time()
        if self._is_up and not is_up and now - self._since < SHORT_SECONDS:
            self._short += 1
        elif self._is_up:
            self._short = 0
        self._is_up, self._since = is_up, now
        if not is_up:
            reason = SHORT if self._short else "the server ended the connection"
            self._write("connecting", f"not connected: {reason}")
        elif not self._short:
            self._write("connected", f"connected to the server {self._where}")

    def warned(self, sentence: str) -> None:
        """Something the user of this site must know; the link stays as it is."""
        self._write("connected" if self._is_up else "connecting", sentence)

    def _watch(self) -> None:
        """While there is no link, find out why."""
        time.sleep(PATIENCE_SECONDS)
        while True:
            now = time.time()
            if self._is_up and self._short and now - self._since > SHORT_SECONDS:
                self._short = 0
                self._write("connected", f"connected to the server {self._where}")
            if not self._is_up and not self._short and now - self._since > PATIENCE_SECONDS:
                reason = probe(self._kit, *self._server)
                if reason and not self._is_up:
                    self._write("connecting", f"not connected: {reason}")
            time.sleep(1.0 if self._is_up and self._short else PATIENCE_SECONDS)

    def _write(self, state: str, sentence: str) -> None:
        content = {"state": state, "sentence": sentence, "since": time.time(), "pid": os.getpid()}
        with contextlib.suppress(OSError):  # a full disk must not end the process
            write_private(self._path, (json.dumps(content) + "\n").encode())


def probe(kit: Path, host: str, port: int) -> str:
    """Try to shake hands as FLARE would, and say in words why it fails; empty: it does not."""
    startup = kit / "startup"
    try:
        context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
        context.load_cert_chain(str(startup / "client.crt"), str(startup / "client.key"))
    except (OSError, ssl.SSLError) as error:
        return f"the kit's certificate, key or root cannot be used ({error})"
    context.set_alpn_protocols(["h2"])
    where = f"{host}:{port}"
    try:
        with (
            socket.create_connection((host, port), PATIENCE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
            return "" if secure.recv(64) else f"{where} refused this party's certificate"
    except ssl.SSLCertVerificationError as error:
        return f"the certificate of {where} is not accepted here ({error.verify_message})"
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return f"{where} refused this party's certificate ({reason})"
    except ConnectionRefusedError:
        return f"nobody listens at {where}; is the server started, and is its port open?"
    except socket.gaierror:
        return f"the name '{host}' is not known here; look at the server's name in the kit"
    except TimeoutError:
        return f"{where} does not answer; a firewall may be in between"
    except OSError as error:
        return f"{where} cannot be reached ({error.strerror or error})"
