"""Start one of FLARE's processes behind the guard: `python -m fedgranger.flare.entry ROLE`.

What follows the role is FLARE's own command line. A process whose kit lacks the policy that
`federation init` wrote does not start: FLARE would fall back to rules of its own.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from pathlib import Path

from fedgranger.errors import RunError
from fedgranger.federation.audit_log import AuditLog
from fedgranger.flare.connection import Connection
from fedgranger.flare.guard import ROLES
from fedgranger.flare.rights import check_rights
from fedgranger.flare.settings import audit_log

ORIGINALS = {
    "client": "nvflare.private.fed.app.client.client_train",
    "client-job": "nvflare.private.fed.app.client.worker_process",
    "server": "nvflare.private.fed.app.server.server_train",
    "server-job": "nvflare.private.fed.app.server.runner_process",
}
REFUSED = 2
CODE_OF_A_JOB = "refresh_custom_dir_import_path"
"""What FLARE calls to make a job's own code importable."""


def main() -> int:
    """Guard the process, then let FLARE run it."""
    role = sys.argv.pop(1)
    if role not in ROLES:
        raise RunError(f"role is {role!r}; choose one of {', '.join(ROLES)}")
    kit = Path(sys.argv[sys.argv.index("-m") + 1]).resolve()
    os.umask(0o077)
    check_rights(kit, is_server=role.startswith("server"))
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    from fedgranger.flare import components, guarded
    from fedgranger.flare.revocation import refuse_revoked

    log = audit_log(kit)
    components.OnlyRuns.report = log.add
    connection = Connection(kit) if role == "client" else None
    guarded.guard_cells(role, log.add, connection.changed if connection else lambda _: None)
    if not role.endswith("job"):
        refuse_revoked(kit, log.add)
    if connection:
        guarded.guard_commands(log.add, lambda: warn(log, connection))
    module = importlib.import_module(ORIGINALS[role])
    if role.endswith("job"):
        setattr(module, CODE_OF_A_JOB, lambda _: None)  # a job brings no code to import
    arguments = module.parse_arguments()
    from nvflare.fuel.f3.mpm import MainProcessMonitor

    folder = arguments.workspace
    if role.endswith("job"):
        folder = os.path.join(folder, arguments.job_id)
    code = MainProcessMonitor.run(main_func=module.main, run_dir=folder, args=arguments)
    return code if isinstance(code, int) else 0


def warn(log: AuditLog, connection: Connection) -> None:
    """A second process with this kit has tried to connect."""
    log.add("second session", reason="another process with this kit tried to connect")
    connection.warned(
        "another process with this kit tried to connect and was refused; if it was not yours, have "
        "the certificate revoked and ask for a new one"
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RunError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(REFUSED)
