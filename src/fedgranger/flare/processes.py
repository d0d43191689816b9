"""A party's processes and what they leave: one supervisor per kit, nothing left behind."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any

from fedgranger.errors import RunError
from fedgranger.flare.guard import JOB_ID
from fedgranger.flare.private_files import write_private

LOCK = "running.lock"
CHECK_SECONDS = 0.5  # whoever asks whether a party is running holds its lock for a moment
PARENT_DEATH_SIGNAL = 1  # Linux: PR_SET_PDEATHSIG of prctl(2)
KEPT_JOBS = 3
YOUNG_SECONDS = 60.0  # deployed, and about to start
LOST = ("RUNNING", "DISPATCHED")
_library = ctypes.CDLL(None) if sys.platform == "linux" else None


def processes_of(kit: Path) -> dict[Any, list[str]]:
    """FLARE's processes of a kit with their command lines: `-m MODULE -m KIT ...`."""
    import psutil

    found = {}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        modules = [after for word, after in itertools.pairwise(words) if word == "-m"]
        if modules[1:] == [str(kit)] and process.pid != os.getpid():
            found[process] = words
    return found


def end_processes(kit: Path) -> None:
    """Kill what is left of a kit's FLARE processes: jobs outlive a parent that was killed."""
    for process in processes_of(kit):
        with contextlib.suppress(Exception):  # it ended by itself, or is another user's
            process.kill()


def end_with_parent() -> None:
    """Run in a child before its program: have it killed when its parent dies, even by SIGKILL.

    Linux only; elsewhere the next start of the party ends what was left.
    """
    if _library is not None:
        _library.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


@contextlib.contextmanager
def alone(kit: Path) -> Iterator[None]:
    """Hold the kit's lock; it goes with this process, however that ends.

    Raises:
        RunError: the party is running already.
    """
    with os.fdopen(os.open(kit / LOCK, os.O_RDWR | os.O_CREAT, 0o600), "rb") as file:
        until = time.monotonic() + CHECK_SECONDS
        while not try_lock(file):
            if time.monotonic() > until:
                raise RunError(f"{kit}: is running already")
            time.sleep(CHECK_SECONDS / 10)
        yield


def is_running(kit: Path) -> bool:
    """Whether a supervisor holds the kit's lock; writes nothing."""
    try:
        with (kit / LOCK).open("rb") as file:
            return not try_lock(file)
    except FileNotFoundError:
        return False


def try_lock(file: IO[bytes] | int) -> bool:
    """Whether the file could be locked for as long as it is open."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_job_folders(kit: Path, running: Collection[str], kept: int = KEPT_JOBS) -> list[str]:
    """Remove the folders of finished jobs, except the last few; return their names.

    Folders that are not named like a job stay, and so do `running` ones, which have a process.
    """
    ages = {path: path.stat().st_mtime for path in kit.iterdir() if JOB_ID.fullmatch(path.name)}
    finished = sorted((p for p in ages if p.name not in running), key=ages.__getitem__)
    border = time.time() - YOUNG_SECONDS
    old = [path for path in finished[: max(len(finished) - kept, 0)] if ages[path] < border]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in old]


def abandon_jobs(kit: Path) -> list[str]:
    """Mark jobs that a server was running when it died, and return their names.

    To be called while it does not run; FLARE's store keeps them as running for ever otherwise.
    """
    lost = []
    for meta in (kit / "jobs-storage").glob("*/meta"):
        with contextlib.suppress(OSError, ValueError):
            content = json.loads(meta.read_text("utf-8"))
            if isinstance(content, dict) and content.get("status") in LOST:
                content["status"] = "FINISHED:ABANDONED"
                write_private(meta, json.dumps(content).encode())
                lost.append(meta.parent.name)
    return lost
