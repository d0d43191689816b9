"""Start-up kits: FLARE's own files for every party, and rights that let in only this package.

A kit is made without a key: its party makes that at its own site (`enrolment`) and the organiser
signs the request (`signing`). `make_kits` does all of it in one place, for one machine.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedgranger.errors import ConfigError, RunError
from fedgranger.flare.authority import (
    ROOT,
    Authority,
    make_authority,
    read_authority,
    write_parties,
)
from fedgranger.flare.certificate_checks import MEMBERS
from fedgranger.flare.deployment import deployment_files, readme
from fedgranger.flare.enrolment import accept, make_request
from fedgranger.flare.identity import (
    ADMIN,
    ADMIN_NAME,
    ADMIN_RIGHT,
    ORGANISATION,
    SERVER,
    check_client_name,
    check_server,
    require_flare,
    root_path,
)
from fedgranger.flare.private_files import restrict, write_private
from fedgranger.flare.rights import restore_rights
from fedgranger.flare.signing import sign_request

AUTHORITY = "authority"


def make_kits(folder: Path, host: str, clients: Sequence[str], port: int) -> dict[str, Path]:
    """Provision a federation on one machine: kits, and each party's key and certificate in its kit.

    The same steps as with keys made at the sites, one after the other; see `prepare_kits`.
    """
    kits = prepare_kits(folder, host, clients, port)
    authority, now = read_authority(folder / AUTHORITY), datetime.now(UTC)
    for kit in kits.values():
        request, _ = make_request(kit, is_renewal=False)
        signed = sign_request(authority, request, now)
        certificate = request.with_suffix(".crt")
        write_private(certificate, signed.certificate)
        accept(kit, certificate, now)
        certificate.unlink()
    return kits


def prepare_kits(folder: Path, host: str, clients: Sequence[str], port: int) -> dict[str, Path]:
    """Make the authority and a kit without a key for every party, in a new or empty folder.

    Clients reach the server at `host`; runs and administration share its port.

    Raises:
        ConfigError: a name or the port cannot be used.
        RunError: the folder is in use, or provisioning failed.
    """
    require_flare()
    check_server(host, port)
    if len(clients) < 2:
        raise ConfigError("at least two clients are needed; give their names with commas between")
    for name in clients:
        check_client_name(name, host)
    if len(set(clients)) != len(clients):
        raise ConfigError("two clients have the same name")
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder}: is not empty; give a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".kits-") as name:
        new = Path(name) / "new"  # becomes the folder when all is well
        new.mkdir(mode=0o700)
        authority = make_authority(new / AUTHORITY, host, port, clients, now)
        kits = _write_kits(authority, (SERVER, ADMIN, *clients), new)
        accept(kits[ADMIN], authority.folder / MEMBERS, now)
        restrict(new)
        os.replace(new, folder)
    kits = {party: folder / kit.name for party, kit in kits.items()}
    for party in (SERVER, *clients):
        restore_rights(kits[party], is_server=party == SERVER)
    return kits


def add_client(folder: Path, name: str, out: Path | None = None, key: Path | None = None) -> Path:
    """Make a kit, still without a key, for one more client; nobody else's kit is touched.

    It is made beside the authority's `folder`, which also has the authority's key, unless `out`
    and `key` say otherwise.

    Raises:
        ConfigError: the name cannot be used.
        RunError: the name or the folder is in use.
    """
    require_flare()
    authority = read_authority(folder)
    check_client_name(name, authority.host)
    if name in authority.clients:
        raise RunError(
            f"client '{name}' belongs to this federation already; sign its request with "
            "'fedgranger federation sign'"
        )
    target = out or folder.resolve().parent / f"client-{name}"
    if target.exists():
        raise RunError(f"{target}: is there already; give another folder with --out")
    larger = replace(authority, clients=(*authority.clients, name))
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".kit-") as place:
        kit = _write_kits(larger, (name,), Path(place))[name]
        restrict(kit)
        write_parties(larger, datetime.now(UTC), key)
        os.replace(kit, target)
    restore_rights(target, is_server=False)
    return target


def _write_kits(authority: Authority, parties: Sequence[str], folder: Path) -> dict[str, Path]:
    """FLARE's files, without a start script: only `federation start` checks before it starts."""
    from fedgranger.federation.policy import POLICY_FILE, policy_text  # loads numpy

    host, port, clients = authority.host, authority.port, authority.clients
    out = {}
    with tempfile.TemporaryDirectory() as place:
        made = _provision(Path(place), host, clients, port)
        for party in parties:
            built = {SERVER: host, ADMIN: ADMIN_NAME}.get(party, party)
            role = party if party in (SERVER, ADMIN) else "client"
            kit = folder / (f"client-{party}" if role == "client" else party)
            shutil.move(made / built, kit)
            for path in [*kit.rglob("*.sh"), *kit.rglob("readme.txt"), *kit.rglob("*.ipynb")]:
                path.unlink()
            shutil.copy(authority.folder / ROOT, root_path(kit))
            texts = {"README.md": readme(role, party, host, port, clients)}
            if role != ADMIN:
                texts |= deployment_files(role, party, host, port)
            if role == "client":
                texts[POLICY_FILE] = policy_text()
            for name, text in texts.items():
                (kit / name).write_text(text, "utf-8")
            out[party] = kit
    return out


def _provision(folder: Path, host: str, clients: Sequence[str], port: int) -> Path:
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.entity import Project
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
    project.add_admin(ADMIN_NAME, ORGANISATION, {"role": ADMIN_RIGHT})
    builders = [WorkspaceBuilder(), StaticFileBuilder(config_folder="config", scheme="grpc")]
    log = _Log()
    context = Provisioner(str(folder), builders).provision(project, logger=log)
    if context.get(CtxKey.BUILD_ERROR):
        raise RunError(f"provisioning failed: {log.last}")
    return Path(context[CtxKey.CURRENT_PROD_DIR])


class _Log:
    """What provisioning says; only the last line is of interest, when it fails."""

    def __init__(self) -> None:
        self.last = ""

    def debug(self, message: Any) -> None:
        """Keep the line."""
        self.last = str(message)

    info = warning = error = debug
