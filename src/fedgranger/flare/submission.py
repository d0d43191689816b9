"""Start a run on a federation and stay with it: submit, watch, submit again, fetch the result."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedgranger.errors import RunError
from fedgranger.federation.agreed_options import FederationOptions
from fedgranger.flare.job_files import OUTCOME, job_settings, write_job
from fedgranger.flare.session import Federation

POLL_SECONDS = 0.5
LARGEST_SUBMISSIONS = 50
LARGEST_REFUSALS = 5
"""A party that is just coming back may miss a job or two; one that refuses it always will."""
NOT_STARTED_SECONDS = 2.0
PROGRESS_SECONDS = 2.0
SILENT_SECONDS = 90.0
NOTICE_SECONDS = 10.0
STAGES = {
    "SUBMITTED": "submitted; waiting for the server to start it (another run may be going on)",
    "DISPATCHED": "the server sends it to the clients",
    "RUNNING": "the parties start their processes",
}


def run_job(
    federation: Federation,
    run: str,
    clients: tuple[str, ...],
    options: FederationOptions,
    out: Path | None,
    *,
    mode: str = "run",
    watch: dict[str, Any] | None = None,
    log: Callable[[str], None] = lambda _: None,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Run a job to its end, however often it must be submitted, and return the server's outcome.

    A run of the same name goes on where it stopped. The mode is "run", "check" for the first
    question only, or "watch" for new data; `report` receives the server's progress.

    Raises:
        RunError: a client or the server stays away, or the run cannot work.
    """
    refusals = 0
    for _ in range(LARGEST_SUBMISSIONS):
        present = _await(federation, clients, options, log)
        federation.abort(run)
        settings = job_settings(run, mode, present, set(clients) - present, options, watch)
        try:
            outcome, refusals = _attempt(federation, settings, out, log, report), 0
        except _NotStartedError as error:
            outcome, refusals = None, refusals + 1
            if refusals == LARGEST_REFUSALS:
                raise RunError(f"the job cannot be started: {error}; look at the logs") from None
            time.sleep(refusals * NOT_STARTED_SECONDS)
        if outcome is not None:
            federation.forget_old_jobs()
            return outcome
        log("the job was lost; submitting it again, with what the parties have on record")
    raise RunError(f"the job was lost {LARGEST_SUBMISSIONS} times; look at the parties' logs")


class _NotStartedError(Exception):
    """A party did not take the job; who, and why as far as it says so."""


def _await(
    federation: Federation,
    clients: tuple[str, ...],
    options: FederationOptions,
    log: Callable[[str], None],
) -> set[str]:
    """Wait until everybody is connected; then, or when the time is over, say who takes part."""
    since, noticed = time.monotonic(), 0.0
    while True:
        found = federation.last_contacts()
        missing = sorted(set(clients) - set(found or ()))
        if found is not None and not missing:
            return set(clients)
        waited = time.monotonic() - since
        who = "the server" if found is None else ", ".join(f"'{name}'" for name in missing)
        if waited > options.wait_seconds:
            present = set(clients) & set(found or ())
            if found is not None and options.on_missing == "drop" and len(present) >= 2:
                log(f"going on without {who}: not connected for {waited:.0f} s")
                return present
            raise RunError(
                f"{who} not connected for {waited:.0f} s; start it, then give the same command "
                "again: what the parties have on record is used"
            )
        if waited > noticed + 5:
            noticed = waited
            log(f"waiting for {who} ({waited:.0f} s of at most {options.wait_seconds:.0f})")
        time.sleep(POLL_SECONDS)


def _attempt(
    federation: Federation,
    settings: dict[str, Any],
    out: Path | None,
    log: Callable[[str], None],
    report: Callable[[dict[str, Any]], None],
) -> dict[str, Any] | None:
    """Submit once and watch; None when the job was lost on the way."""
    with tempfile.TemporaryDirectory() as folder:
        job_folder = write_job(Path(folder), settings)
        job = federation.call("submit_job", str(job_folder))
    if job is None:
        return None
    shown: set[str] = set()
    stage, submitted = "", time.monotonic()
    asked = last_news = noticed = submitted
    while True:
        time.sleep(POLL_SECONDS)
        now = time.monotonic()
        status = federation.call("get_job_status", job)
        if status is None:
            log("the server does not answer")
            return None
        if status == "FINISHED:COMPLETED":
            return _fetch(federation, job, out)
        if status == "FINISHED:FAILED_TO_RUN":
            why = federation.why_not_started(job)
            log(f"the job could not be started ({why})")
            raise _NotStartedError(why)
        if status.startswith("FINISHED"):
            log(f"the job ended early ({status.removeprefix('FINISHED:').lower()})")
            return None
        if status in STAGES and (status != stage or now > noticed + NOTICE_SECONDS):
            stage, noticed = status, now
            log(f"{STAGES[status]} ({now - submitted:.0f} s)")
        if status == "SUBMITTED":
            last_news = now
            continue
        if now < asked + PROGRESS_SECONDS:
            continue
        asked, progress = now, federation.progress(job)
        if progress:
            last_news, noticed = now, math.inf  # from here on it speaks for itself
            report(progress)
        elif now > last_news + SILENT_SECONDS:
            log(f"the job has not said anything for {now - last_news:.0f} s")
            return None
        for sentence in progress.get("lines", []):
            if sentence not in shown:
                log(sentence)
        shown.update(progress.get("lines", []))


def _fetch(federation: Federation, job: str, out: Path | None) -> dict[str, Any] | None:
    """Bring the result here; None when the server went away before."""
    with tempfile.TemporaryDirectory() as folder:
        place = federation.call("download_job_result", job, folder)
        found = place and next(Path(place).rglob(f"fedgranger/{OUTCOME}"), None)
        if not found:
            return None
        outcome = json.loads(found.read_text("utf-8"))
        if out is not None and outcome["status"] == "done":
            out.mkdir(parents=True, exist_ok=True)
            files = sorted(found.parent.iterdir(), key=lambda path: path.name == "manifest.json")
            for path in files:
                if path.name != OUTCOME:
                    shutil.copy(path, out / path.name)
        return outcome
