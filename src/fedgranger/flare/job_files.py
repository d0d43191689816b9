"""The files of a job: what FLARE is asked to run, the same for every run but for its settings.

Written by whoever starts a run, compared by every site that is asked to take part: a job brings
options to the server, and nothing at all to a client.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedgranger.errors import ConfigError
from fedgranger.federation.agreed_options import RUN_NAME, FederationOptions

CLIENT_CLASSES = (
    "nvflare.collab.runtime.executor.CollabExecutor",
    "fedgranger.flare.client_job.FlareClient",
)
SERVER_CLASSES = (
    "nvflare.collab.runtime.controller.CollabController",
    "fedgranger.flare.server_job.FlareServer",
)
CALLS_AT_ONCE = 100
CALL_SECONDS = 60.0
SYNC_SECONDS = 60
CLIENT_FILE = "config/config_fed_client.json"
SERVER_FILE = "config/config_fed_server.json"
OUTCOME = "outcome.json"
"""What the server's job found, beside the run's own files."""
PROGRESS = "fedgranger.progress"
"""Topic on which the server's job reports how far it is."""
FOLDERS = ("", "config")
SIGNATURES = (".__nvfl_sig.json", ".__nvfl_submitter.crt")
LARGEST_FILE = 2**20
SETTINGS = frozenset({"run", "mode", "clients", "left_out", "call_seconds", "options"})
WATCH_SETTINGS = {"scorer": str, "steps": int, "calm_steps": int}
"""What a watch over new data brings beside them."""


def job_settings(
    run: str,
    mode: str,
    clients: Iterable[str],
    left_out: Iterable[str],
    options: FederationOptions,
    watch: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What a job brings to the server; the mode is "run", "check" or "watch"."""
    return {
        "run": run,
        "mode": mode,
        "clients": sorted(clients),
        "left_out": sorted(left_out),
        "call_seconds": CALL_SECONDS,
        "options": json.loads(options.to_text()),
        **({} if watch is None else {"watch": dict(watch)}),
    }


def write_job(folder: Path, settings: Mapping[str, Any]) -> Path:
    """Write a job that FLARE can be given; return its folder."""
    job = folder / settings["run"]
    meta = {
        "name": settings["run"],
        "resource_spec": {},
        "min_clients": len(settings["clients"]),
        "deploy_map": {"app": ["@ALL"]},
    }
    files = {
        "meta.json": meta,
        f"app/{CLIENT_FILE}": _client(),
        f"app/{SERVER_FILE}": _server(settings),
    }
    for name, content in files.items():
        (job / name).parent.mkdir(parents=True, exist_ok=True)
        (job / name).write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    return job


def check_archive(content: object) -> None:
    """Refuse a packed job that would unpack to anything but the files of a run.

    Looked at in memory, because FLARE unpacks a job into the kit before it asks anybody.

    Raises:
        ConfigError: with what it brings.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content if isinstance(content, bytes) else b"")) as packed:
            members = [member for member in packed.infolist() if member.filename != "config/"]
    except (zipfile.BadZipFile, ValueError, OSError):
        raise ConfigError("the job cannot be unpacked") from None
    for member in members:
        if _is_foreign(member.filename):
            raise ConfigError(f"the job brings a file '{member.filename[:100]}' that no run has")
    if sum(member.file_size for member in members) > 2 * LARGEST_FILE:
        raise ConfigError("the job is larger than a run's")


def _is_foreign(name: str) -> bool:
    is_signature = name.rpartition("/")[2] in SIGNATURES and name.rpartition("/")[0] in FOLDERS
    return name not in (CLIENT_FILE, SERVER_FILE) and not is_signature


def check_job(folder: Path) -> None:
    """Refuse a job that is anything but a run of fedgranger, saying what it brings."""
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    foreign = sorted(filter(_is_foreign, found))
    if foreign:
        raise ConfigError(f"the job brings a file '{foreign[0][:100]}' that no run has")
    if _read(folder / CLIENT_FILE) != _client():
        raise ConfigError("the job asks a client for something else than a run of fedgranger")
    server = _read(folder / SERVER_FILE)
    try:
        settings = server["workflows"][0]["args"]["props"]["fedgranger"]
        is_run = _are_settings(settings) and server == _server(settings)
    except (KeyError, IndexError, TypeError):
        is_run = False
    if not is_run:
        raise ConfigError("the job asks the server for something else than a run of fedgranger")


def _are_settings(settings: Any) -> bool:
    """Whether they hold what they should, and no text that FLARE would take for a variable."""
    names = [settings["run"], *settings["clients"], *settings["left_out"]]
    seconds = settings["call_seconds"]
    return (
        set(settings) == SETTINGS | ({"watch"} if settings["mode"] == "watch" else set())
        and all(isinstance(name, str) and RUN_NAME.fullmatch(name) for name in names)
        and settings["mode"] in ("run", "check", "watch")
        and (settings["mode"] != "watch" or _is_watch(settings["watch"]))
        and type(seconds) in (int, float)
        and math.isfinite(seconds)
        and "{$" not in json.dumps(settings)
    )


def _is_watch(watch: Any) -> bool:
    return set(watch) == set(WATCH_SETTINGS) and all(
        type(watch[name]) is kind for name, kind in WATCH_SETTINGS.items()
    )


def _read(path: Path) -> Any:
    if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST_FILE:
        raise ConfigError(f"the job has no proper file '{path.name}'")
    try:
        return json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError, OSError):
        raise ConfigError(f"the job's file '{path.name}' cannot be read") from None


def _client() -> dict[str, Any]:
    executor, client = CLIENT_CLASSES
    args = {"client_obj_id": "_client", "collab_obj_ids": [], "props": {}, **_threads()}
    runner = {"tasks": ["*"], "executor": {"path": executor, "args": args}}
    return _app({"executors": [runner]}, "_client", client)


def _server(settings: Mapping[str, Any]) -> dict[str, Any]:
    controller, server = SERVER_CLASSES
    args = {
        "server_obj_id": "_server",
        "collab_obj_ids": [],
        "sync_task_timeout": SYNC_SECONDS,
        "props": {"fedgranger": dict(settings)},
        **_threads(),
    }
    runner = {"id": "controller", "path": controller, "args": args}
    return _app({"workflows": [runner]}, "_server", server)


def _app(runner: Mapping[str, Any], name: str, path: str) -> dict[str, Any]:
    return {
        "format_version": 2,
        **runner,
        "components": [{"id": name, "path": path, "args": {}}],
        "task_data_filters": [],
        "task_result_filters": [],
    }


def _threads() -> dict[str, int]:
    return dict.fromkeys(("max_inbound_call_threads", "max_outbound_call_threads"), CALLS_AT_ONCE)
