"""Why a client does not reach its server: try the same connection and say what happens.

Only asked when FLARE has not connected for a while. It opens one TLS connection with the kit's own
certificate, sends nothing over it and closes it.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

__all__ = ["explain_silence", "server_address"]

SECONDS = 5.0
FILES = ("rootCA.pem", "client.crt", "client.key")


def server_address(kit: Path) -> tuple[str, int]:
    """Host and port of the federation's server, from the kit of the server or of a client."""
    for name in ("fed_client.json", "fed_server.json"):
        path = kit / "startup" / name
        if path.is_file():
            content = json.loads(path.read_text("utf-8"))
            host, _, port = content["servers"][0]["service"]["target"].rpartition(":")
            return host, int(port)
    return "", 0


def explain_silence(kit: Path, seconds: float = SECONDS) -> str:
    """One sentence on what stands between this client and the server, with a remedy."""
    import ssl

    host, port = server_address(kit)
    where, startup = f"{host}:{port}", kit / "startup"
    missing = next((name for name in FILES if not (startup / name).is_file()), None)
    if missing is not None:
        return f"startup/{missing} is missing in the kit; ask who made the kits for it"
    root, certificate, key = (str(startup / name) for name in FILES)
    try:
        context = ssl.create_default_context(cafile=root)
        context.load_cert_chain(certificate, key)
        context.set_alpn_protocols(["h2"])
    except (ssl.SSLError, OSError) as error:
        return f"the kit's certificate or key cannot be read ({_words(error)}); ask for a new kit"
    try:
        with (
            socket.create_connection((host, port), seconds) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            is_answered = bool(secure.recv(1))  # a refused certificate is only told here
    except ssl.SSLCertVerificationError as error:
        return (
            f"{where} shows a certificate that this kit does not accept "
            f"({error.verify_message}); the kit and the server must come from the same "
            "'federation init', and clock and certificates must be valid today"
        )
    except ssl.SSLError as error:
        return (
            f"{where} does not accept this kit's certificate ({_words(error)}); it may have "
            "expired, or come from another federation: ask who made the kits for a new one"
        )
    except socket.gaierror:
        return f"the name '{host}' is not known here; ask who looks after your network"
    except ConnectionRefusedError:
        return f"nothing listens at {where}; is the server started, and is its port open?"
    except TimeoutError:
        return f"{where} does not answer within {seconds:.0f} s; a firewall may stand between"
    except OSError as error:
        return f"{where} cannot be reached ({_words(error)}); check network and firewall"
    if not is_answered:
        return f"{where} closes the connection at once; is it this federation's server?"
    return (
        f"{where} answers and accepts the certificate, but has not let this client in; its "
        "console says why, and the same kit may be in use elsewhere"
    )


def _words(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else str(error.strerror or error)


if __name__ == "__main__":
    sys.stdout.write(explain_silence(Path(sys.argv[1])))
