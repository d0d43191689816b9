"""Parts of ours that FLARE builds into a site: how a job is started, and which jobs may be."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from nvflare.apis.app_validation import AppValidator
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.job_launcher_spec import JobProcessArgs
from nvflare.app_common.job_launcher import process_launcher
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher

from fedgranger.errors import ConfigError
from fedgranger.flare.identity import ENTRY
from fedgranger.flare.job_files import check_job

process_launcher.add_custom_dir_to_path = lambda *_: None  # a job brings no code to import


class _BehindTheGuard:
    """A launcher of FLARE's that starts a job with our entry."""

    role: ClassVar[str]

    def get_command(self, job_meta: Any, fl_ctx: Any) -> str:
        """FLARE's command line, with our entry."""
        arguments = fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS)
        arguments[JobProcessArgs.EXE_MODULE] = (
            "-P -m",  # nothing in the kit is ever imported
            f"{ENTRY} {self.role}",
        )
        return super().get_command(job_meta, fl_ctx)  # type: ignore[misc]


class ClientLauncher(_BehindTheGuard, ClientProcessJobLauncher):
    """Starts a client's job behind the guard."""

    role = "client-job"


class ServerLauncher(_BehindTheGuard, ServerProcessJobLauncher):
    """Starts the server's job behind the guard."""

    role = "server-job"


class OnlyRuns(AppValidator):
    """Lets in runs of fedgranger and no other job; `report` receives every other one."""

    report: ClassVar[Callable[..., object]] = lambda *_, **__: None

    def validate(self, app_folder: str) -> tuple[str, dict]:
        """Return what is wrong with a job, and its properties: none."""
        try:
            check_job(Path(app_folder))
        except ConfigError as error:
            with contextlib.suppress(OSError):  # refused all the same
                OnlyRuns.report("refused", reason=str(error), request="job")
            return str(error), {}
        return "", {}
