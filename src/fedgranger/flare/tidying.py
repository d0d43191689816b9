"""Clean up what finished runs left in a kit; a running one is never touched."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from collections.abc import Collection
from pathlib import Path

from fedgranger.flare.private_files import write_private

KEPT_JOBS = 3
YOUNG_SECONDS = 60.0  # deployed, and about to start
JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LOST = ("RUNNING", "DISPATCHED")


def remove_job_folders(kit: Path, running: Collection[str], kept: int = KEPT_JOBS) -> list[str]:
    """Remove the folders of finished jobs, except the last few.

    Args:
        kit: a server's or client's kit; folders that are not named like a job stay.
        running: names of jobs that have a process.
        kept: how many finished ones stay.

    Returns:
        The names of the removed folders.
    """
    ages = {path: path.stat().st_mtime for path in kit.iterdir() if JOB.fullmatch(path.name)}
    finished = sorted((p for p in ages if p.name not in running), key=ages.__getitem__)
    border = time.time() - YOUNG_SECONDS
    old = [path for path in finished[: max(len(finished) - kept, 0)] if ages[path] < border]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in old]


def abandon_jobs(kit: Path) -> list[str]:
    """Mark jobs that a server was running when it died; to be called while it does not run.

    FLARE's store keeps them as running for ever otherwise.

    Returns:
        The names of the jobs.
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
