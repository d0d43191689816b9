"""An administrator's session with the server of a federation, opened again whenever it was away."""

from __future__ import annotations

import contextlib
import io
import logging
from pathlib import Path
from typing import Any

from fedgranger.errors import RunError
from fedgranger.flare.identity import ADMIN_NAME, role_of
from fedgranger.flare.job_files import PROGRESS

LOGIN_SECONDS = 10.0
KEPT_JOBS = 20


class Federation:
    """An administrator's session, opened again whenever the server was away."""

    def __init__(self, kit: Path) -> None:
        if role_of(kit)[0] != "admin":
            raise RunError(f"{kit}: is not the admin's kit; pass the folder 'admin'")
        logging.getLogger().addHandler(logging.NullHandler())
        self._kit = kit.resolve()
        self._session: Any = None

    def call(self, method: str, *words: Any, is_optional: bool = False) -> Any:
        """Call a method of FLARE's session; None when the server cannot be reached.

        What is optional the server may also refuse; the session then stays as it is.
        """
        try:
            if self._session is None:
                self._session = self._login()
            with contextlib.redirect_stdout(io.StringIO()):
                return getattr(self._session, method)(*words)
        except Exception:
            if not is_optional:
                self.close()
            return None

    def _login(self) -> Any:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        with contextlib.redirect_stdout(io.StringIO()):
            return new_secure_session(ADMIN_NAME, str(self._kit), timeout=LOGIN_SECONDS)

    def close(self) -> None:
        """End the session; an open one keeps the process alive."""
        if self._session is not None:
            with contextlib.suppress(Exception):
                self._session.close()
        self._session = None

    def last_contacts(self) -> dict[str, float] | None:
        """When the server last heard of each connected client; None without a server."""
        found = self.call("get_connected_client_list")
        return None if found is None else {c.name: float(c.last_connect_time) for c in found}

    def jobs(self) -> list[dict[str, Any]]:
        """Jobs that the server keeps, oldest first: id, name, submitted, state, is_finished."""
        found = [
            {
                "id": job["job_id"],
                "name": job.get("job_name", ""),
                "submitted": str(job.get("submit_time", "")),
                "state": str(job.get("status", "")).removeprefix("FINISHED:").lower(),
                "is_finished": str(job.get("status", "FINISHED")).startswith("FINISHED"),
            }
            for job in self.call("list_jobs") or []
        ]
        return sorted(found, key=lambda job: job["submitted"])

    def abort(self, run: str) -> None:
        """End jobs that earlier starts of a run left behind: only one at a time gets its turn."""
        for job in self.jobs():
            if job["name"] == run and not job["is_finished"]:
                self.call("abort_job", job["id"], is_optional=True)

    def forget_old_jobs(self) -> None:
        """Have the server delete finished jobs with their results, except the last ones."""
        for job in [job for job in self.jobs() if job["is_finished"]][:-KEPT_JOBS]:
            self.call("delete_job", job["id"], is_optional=True)

    def why_not_started(self, job: str) -> str:
        """What the parties said that did not take a job."""
        meta = self.call("get_job_meta", job) or {}
        details = [str(part) for part in meta.get("job_deploy_detail") or []]
        bad = (part for part in details if not part.endswith(": OK"))
        return "; ".join(bad) or "no reason was given"

    def progress(self, job: str) -> dict[str, Any]:
        """What the server's job says of itself; nothing while it starts or ends."""
        return self.call("do_app_command", job, PROGRESS, {}, is_optional=True) or {}


def connect(kit: Path) -> contextlib.closing[Federation]:
    """Open a federation, and close it after a `with`."""
    return contextlib.closing(Federation(kit))
