"""What FLARE may do at a site: rights, classes and storage, in the kit's `local` folder."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["settle_in", "write_rights"]

ALLOWED_CLASSES = [
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
    "fedgranger.",
]
HEARTBEAT_SECONDS = 60  # a client that is silent for longer counts as away (FLARE: 600)
LOG_STREAMS = ("site_log_streamer", "log_receiver")


def write_rights(kit: Path, *, is_server: bool) -> None:
    """No foreign code, no shell, no logs over the wire."""
    local = kit / "local"
    resources = json.loads((local / "resources.json.default").read_text("utf-8"))
    resources["class_allow_list"] = ALLOWED_CLASSES
    resources["components"] = [
        component for component in resources["components"] if component["id"] not in LOG_STREAMS
    ]
    if is_server:
        resources["servers"][0]["heart_beat_timeout"] = HEARTBEAT_SECONDS
        for component in resources["components"]:
            if component["id"] == "job_scheduler":
                component["args"].update(
                    max_jobs=1, min_schedule_interval=1.0, max_schedule_interval=2.0
                )
    else:
        resources["allow_log_streaming"] = False
    (local / "resources.json").write_text(json.dumps(resources, indent=2) + "\n", "utf-8")
    rights = json.loads((local / "authorization.json.default").read_text("utf-8"))
    allowed = ["submit_job", "clone_job", "manage_job", "download_job", "view", "operate"]
    if is_server:
        allowed.append("app_command")  # ask the running job how far it is
    rights["permissions"]["project_admin"] = {
        **dict.fromkeys(allowed, "any"),
        "shell_commands": "none",
        "byoc": "none",
    }
    (local / "authorization.json").write_text(json.dumps(rights, indent=2) + "\n", "utf-8")


def settle_in(kit: Path) -> None:
    """Point the server's storage at the place where the kit now lies."""
    path = kit / "local" / "resources.json"
    resources = json.loads(path.read_text("utf-8"))
    if "snapshot_persistor" not in resources:
        return
    storage = resources["snapshot_persistor"]["args"]["storage"]["args"]
    storage["root_dir"] = str((kit / "snapshot-storage").resolve())
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str((kit / "jobs-storage").resolve())
    path.write_text(json.dumps(resources, indent=2) + "\n", "utf-8")
