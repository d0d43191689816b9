"""What FLARE may do at a site: rights, classes, links and storage, in the kit's `local` folder.

FLARE reads these files and falls back to laxer ones of its own when they are missing; so they are
written anew at every start, and a process of FLARE's that does not find exactly them does not run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgranger.errors import RunError
from fedgranger.flare.job_files import CLIENT_CLASSES, SERVER_CLASSES
from fedgranger.flare.private_files import write_private

HEARTBEAT_SECONDS = 60  # a client that is silent for longer counts as away (FLARE: 600)
LARGEST_MESSAGE = 64 * 2**20
"""Bytes; a message of 50 000 steps with four states has 3 MB."""
RIGHTS = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate")
NEVER = ("byoc", "shell_commands", "server-predeployed-flwr")
OTHER_ROLES = ("org_admin", "lead", "member")


def restore_rights(kit: Path, *, is_server: bool) -> list[str]:
    """Write the files, readable by their owner only; return the names of those that changed."""
    changed = []
    for name, content in _files(kit, is_server).items():
        path = kit / "local" / name
        text = json.dumps(content, indent=2) + "\n"
        if not path.is_file() or path.read_text("utf-8") != text:
            write_private(path, text.encode())
            changed.append(name)
    return changed


def check_rights(kit: Path, *, is_server: bool) -> None:
    """Refuse a kit whose files are not those that `restore_rights` writes, naming the file."""
    for name, expected in _files(kit, is_server).items():
        path = kit / "local" / name
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            found = None
        if found != expected:
            raise RunError(
                f"{path}: is missing or was changed; start the party with 'fedgranger federation "
                "start', which restores it"
            )


def _files(kit: Path, is_server: bool) -> Mapping[str, Any]:
    resources = _server_resources(kit.resolve()) if is_server else _client_resources()
    rights = _authorization(is_server)
    return {
        "authorization.json": rights,
        "authorization.json.default": rights,
        "resources.json": resources,
        "resources.json.default": resources,
        "comm_config.json": _links(),
    }


def _authorization(is_server: bool) -> dict[str, Any]:
    """Runs for the admin, nothing for anybody else, code and shell for nobody."""
    allowed = RIGHTS if not is_server else (*RIGHTS, "app_command")  # how far is the job?
    admin = {**dict.fromkeys(allowed, "any"), **dict.fromkeys(NEVER, "none")}
    nothing = dict.fromkeys((*RIGHTS, "app_command", *NEVER), "none")
    return {
        "format_version": "1.0",
        "permissions": {"project_admin": admin, **dict.fromkeys(OTHER_ROLES, nothing)},
    }


def _links() -> dict[str, Any]:
    """Mutual TLS between the processes of a site too; no further connections; small messages."""
    local = {"host": "localhost", "connection_security": "mtls"}
    return {
        "allow_adhoc_conns": False,
        "internal": {"scheme": "tcp", "resources": local},
        "max_message_size": LARGEST_MESSAGE,
        "streaming_max_blob_size": LARGEST_MESSAGE,
    }


def _client_resources() -> dict[str, Any]:
    managers = "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager"
    consumers = "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
    gpus = {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300}
    return {
        **_common(CLIENT_CLASSES),
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            {"id": "resource_manager", "path": managers, "args": gpus},
            {"id": "resource_consumer", "path": consumers, "args": {}},
            _launcher("ClientLauncher"),
        ],
    }


def _server_resources(kit: Path) -> dict[str, Any]:
    storage = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    snapshots = {"root_dir": str(kit / "snapshot-storage"), "uri_root": "/"}
    jobs = {"uri_root": str(kit / "jobs-storage"), "job_store_id": "job_store"}
    turns = {"max_jobs": 1, "min_schedule_interval": 1.0, "max_schedule_interval": 2.0}
    return {
        **_common(SERVER_CLASSES),
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": 100,
                "heart_beat_timeout": HEARTBEAT_SECONDS,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor"
            ".StorageStatePersistor",
            "args": {"uri_root": "/", "storage": {"path": storage, "args": snapshots}},
        },
        "components": [
            {
                "id": "job_scheduler",
                "path": "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                "args": turns,
            },
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": jobs,
            },
            {"id": "job_store", "path": storage},
            _launcher("ServerLauncher"),
        ],
    }


def _common(classes: tuple[str, ...]) -> dict[str, Any]:
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": list(classes),
        "app_validator": {"path": "fedgranger.flare.components.OnlyRuns"},
    }


def _launcher(name: str) -> dict[str, Any]:
    return {"id": "process_launcher", "path": f"fedgranger.flare.components.{name}",
            "args": {}}  # fmt: skip
