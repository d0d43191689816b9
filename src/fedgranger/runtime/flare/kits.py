"""Start-up kits: FLARE's own provisioning, then a policy that lets in nothing but this package.

Every party gets a folder with its certificate and key. The authority that signed them stays with
whoever ran `fedgranger federation init`.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedgranger.errors import ConfigError, RunError
from fedgranger.runtime.flare.readme import readme
from fedgranger.runtime.flare.rights import restore_rights
from fedgranger.runtime.flare.settings import write_members

__all__ = [
    "ADMIN",
    "ORGANISATION",
    "admin_name",
    "make_kits",
    "require_flare",
    "role_of",
]

ADMIN = "admin"
ORGANISATION = "fedgranger"
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
SAFE_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")


def admin_name() -> str:
    """The user who may start runs."""
    return f"{ADMIN}@{ORGANISATION}.local"


def make_kits(folder: Path, host: str, clients: Sequence[str], port: int) -> dict[str, Path]:
    """Provision a federation.

    Args:
        folder: an empty or new folder; gets one kit per party and `authority`.
        host: name or address under which clients reach the server.
        clients: their names.
        port: the server's port; runs and administration share it.

    Returns:
        The kits: `server`, `admin` and one per client.

    Raises:
        ConfigError: a name or the port cannot be used.
        RunError: the folder is in use, or provisioning failed.
    """
    require_flare()
    _check_names(host, clients, port)
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder}: is not empty; give a new folder")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = _provision(folder / "authority", host, clients, port)
    kits = {"server": host, ADMIN: admin_name(), **{name: name for name in clients}}
    out = {}
    for party, built in kits.items():
        target = folder / (party if party in ("server", ADMIN) else f"client-{party}")
        shutil.move(made / built, target)
        if party == ADMIN:
            write_members(target, clients)
        else:
            restore_rights(target, is_server=party == "server")
        role = party if party in ("server", ADMIN) else "client"
        (target / "README.md").write_text(readme(role, party, host, port, clients), "utf-8")
        _restrict(target)
        out[party] = target
    _restrict(folder / "authority")
    return out


def require_flare() -> None:
    """Refuse in words when the engine is not installed."""
    if importlib.util.find_spec("nvflare") is None:
        raise ConfigError(
            "a federation needs NVIDIA FLARE; install it with: pip install 'fedgranger[flare]'"
        )


def role_of(kit: Path) -> tuple[str, str]:
    """Tell whose kit a folder is: its role (`server`, `client`, `admin`) and name."""
    startup = kit / "startup"
    for role, file in (
        ("server", "fed_server.json"),
        ("client", "fed_client.json"),
        ("admin", "fed_admin.json"),
    ):
        path = startup / file
        if path.is_file():
            content = json.loads(path.read_text("utf-8"))
            name = content.get("client", {}).get("fqsn", "") if role == "client" else role
            return role, str(name) or _client_name(kit)
    raise RunError(
        f"{kit}: is not a start-up kit; pass a folder that 'fedgranger federation init' made"
    )


def _check_names(host: str, clients: Sequence[str], port: int) -> None:
    if not SAFE_HOST.fullmatch(host):
        raise ConfigError(f"server is {host!r}; give a host name or an address")
    if len(clients) < 2:
        raise ConfigError("at least two clients are needed; give their names with commas between")
    for name in clients:
        if not SAFE_NAME.fullmatch(name) or name in ("server", ADMIN):
            raise ConfigError(
                f"client name {name!r}: use letters, digits, '-' and '_' only, and neither "
                f"'server' nor '{ADMIN}'"
            )
    if len(set(clients)) != len(clients):
        raise ConfigError("two clients have the same name")
    if not 1 <= port <= 65_535:
        raise ConfigError(f"port is {port}; it must lie between 1 and 65535")


def _provision(folder: Path, host: str, clients: Sequence[str], port: int) -> Path:
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.entity import Project
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.signature import SignatureBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    project = Project(
        name=ORGANISATION, description="", props={"api_version": 3, "name": ORGANISATION}
    )
    reach = {"fed_learn_port": port, "default_host": host, "host_names": [host]}
    project.set_server(host, ORGANISATION, reach)
    for name in clients:
        project.add_client(name, ORGANISATION, {})
    project.add_admin(admin_name(), ORGANISATION, {"role": "project_admin"})
    builders = [
        WorkspaceBuilder(),
        StaticFileBuilder(config_folder="config", scheme="grpc"),
        CertBuilder(),
        SignatureBuilder(),
    ]
    log = _Log()
    context = Provisioner(str(folder), builders).provision(project, logger=log)
    if context.get(CtxKey.BUILD_ERROR):
        raise RunError(f"provisioning failed: {log.last}")
    return Path(context[CtxKey.CURRENT_PROD_DIR])


def _restrict(folder: Path) -> None:
    """Readable by its owner only."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o700 if path.is_dir() or path.suffix == ".sh" else 0o600)


def _client_name(kit: Path) -> str:
    name = kit.resolve().name
    return name.removeprefix("client-")


class _Log:
    """What provisioning says; only the last line is of interest, when it fails."""

    def __init__(self) -> None:
        self.last = ""

    def debug(self, message: Any) -> None:
        """Keep the line."""
        self.last = str(message)

    info = warning = error = debug
