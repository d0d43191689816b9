"""Whose kit a folder is, and under which name its owner's certificate is issued.

A party has a role (`server`, `client` or `admin`) and a name. FLARE knows it by the common name of
its certificate: the server by its host, the admin by an address, a client by its name.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from pathlib import Path

from fedgranger.errors import ConfigError, RunError

ADMIN = "admin"
SERVER = "server"
ORGANISATION = "fedgranger"
ENTRY = "fedgranger.flare.entry"
"""The module with which every process of FLARE's is started."""
ADMIN_NAME = f"{ADMIN}@{ORGANISATION}.local"
"""The user who may start runs."""
ADMIN_RIGHT = "project_admin"
"""The one right that FLARE finds in a certificate; only the admin's has it."""

LONGEST_NAME = 64  # of a certificate's common name (RFC 5280)
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
SAFE_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
CONFIGURATIONS = {SERVER: "fed_server.json", "client": "fed_client.json", ADMIN: "fed_admin.json"}


def require_flare() -> None:
    """Refuse in words when the engine is not installed."""
    if importlib.util.find_spec("nvflare") is None:
        raise ConfigError(
            "a federation needs NVIDIA FLARE; install it with: pip install 'fedgranger[flare]'"
        )


def check_server(host: str, port: int) -> None:
    """Refuse an address that clients could not use or a certificate could not name."""
    if not SAFE_HOST.fullmatch(host):
        raise ConfigError(f"server is {host!r}; give a host name or an address")
    if len(host) > LONGEST_NAME:
        raise ConfigError(
            f"server is {host!r}, {len(host)} characters; a certificate takes {LONGEST_NAME}: give "
            "a shorter name or the address"
        )
    if not 1 <= port <= 65_535:
        raise ConfigError(f"port is {port}; it must lie between 1 and 65535")


def check_client_name(name: str, host: str) -> None:
    """Refuse a name that is not safe in a path, or that is another party's."""
    if not SAFE_NAME.fullmatch(name) or name in (SERVER, ADMIN):
        raise ConfigError(
            f"client name {name!r}: use letters, digits, '-' and '_' only, and neither "
            f"'{SERVER}' nor '{ADMIN}'"
        )
    if name.lower() == host.lower():
        raise ConfigError(
            f"client name {name!r} is the server's host; give the client a name of its own"
        )


def role_of(kit: Path) -> tuple[str, str]:
    """Tell whose kit a folder is: its role (`server`, `client`, `admin`) and name."""
    role, content = _configuration(kit)
    return role, str(content["client"]["fqsn"]) if role == "client" else role


def common_name_of(kit: Path) -> str:
    """The common name that the certificate of a kit must have."""
    role, content = _configuration(kit)
    if role == SERVER:
        return str(content["servers"][0]["admin_server"])
    return str(content["client"]["fqsn"] if role == "client" else content[ADMIN]["username"])


def server_address(kit: Path) -> tuple[str, int]:
    """Host and port of the server, as a server's or client's kit says."""
    target = _configuration(kit)[1]["servers"][0]["service"]["target"]
    host, _, port = target.rpartition(":")
    return host, int(port)


def describe(role: str, name: str) -> str:
    """A party in words."""
    return f"client '{name}'" if role == "client" else f"the {role}"


def certificate_path(kit: Path) -> Path:
    """Where FLARE looks for the party's certificate."""
    return kit / "startup" / f"{SERVER if role_of(kit)[0] == SERVER else 'client'}.crt"


def key_path(kit: Path) -> Path:
    """Where FLARE looks for the party's private key."""
    return certificate_path(kit).with_suffix(".key")


def root_path(kit: Path) -> Path:
    """Where FLARE looks for the certificate that signed all others."""
    return kit / "startup" / "rootCA.pem"


def _configuration(kit: Path) -> tuple[str, dict]:
    for role, file in CONFIGURATIONS.items():
        path = kit / "startup" / file
        if path.is_file():
            try:
                content = json.loads(path.read_text("utf-8"))
                named = {SERVER: ("servers",), "client": ("client", "fqsn"), ADMIN: (ADMIN,)}[role]
                functools.reduce(lambda part, key: part[key], named, content)
            except (OSError, ValueError, KeyError, TypeError):
                raise RunError(f"{path}: is damaged; ask the organiser for a new kit") from None
            return role, content
    raise RunError(
        f"{kit}: is not a start-up kit; pass a folder that 'fedgranger federation init' made"
    )
