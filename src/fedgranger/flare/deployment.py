"""The texts in a party's kit: its README, a systemd unit, and a container with its settings.

They are templates (`templates/`); the paths in them are places that an operator may change.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

DATA = "/srv/fedgranger"
USER = "10001:10001"
GATE, GATE_NETWORK = "172.30.253.2", "172.30.253.0/29"
MEMORY = {"server": "8G", "client": "4G"}


def readme(role: str, name: str, host: str, port: int, clients: Sequence[str]) -> str:
    """What a party should do, and what leaves its site."""
    return _render(
        "README.md", role=role, name=name, host=host, port=port, clients=", ".join(clients)
    )


def deployment_files(role: str, name: str, host: str, port: int) -> dict[str, str]:
    """The text of every deployment file of a server's or client's kit, by file name."""
    facts = {
        "is_client": role == "client",
        "party": f"client-{name}" if role == "client" else name,
        "name": name,
        "host": host,
        "port": port,
        "is_address": host == "localhost" or _is_address(host),
        "data": DATA,
        "user": USER,
        "gate": GATE,
        "gate_network": GATE_NETWORK,
        "memory": MEMORY[role],
    }
    names = ("fedgranger.service", "Containerfile", ".dockerignore", "compose.yaml")
    return {file: _render(file.removeprefix("."), **facts) for file in names}


def _render(file: str, **facts: Any) -> str:
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("fedgranger.flare"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template(file).render(facts)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
