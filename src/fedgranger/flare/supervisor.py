"""Run a party's FLARE process in the foreground, and start it again when it dies.

`federation start` becomes this program after it has checked settings and data: what stays for
months is small. It imports neither numerical libraries nor FLARE.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from fedgranger.errors import FedGrangerError
from fedgranger.flare.identity import ENTRY, ORGANISATION, role_of
from fedgranger.flare.party_process import PartyProcess
from fedgranger.flare.processes import alone
from fedgranger.text import utc_stamp

FIRST_PAUSE_SECONDS = 2.0
LARGEST_PAUSE_SECONDS = 60.0
LONG_LIFE_SECONDS = 60.0  # a process that lived so long is started again without a long pause
BEAT_SECONDS = 4  # how soon a client comes back to a server that was restarted (FLARE: 10)
ENVIRONMENT = {
    "FL_LOG_LEVEL": "WARNING",
    # how long a finished job waits for clients that died before they said so (FLARE: 900)
    "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "15",
}


def command_of(kit: Path) -> list[str]:
    """The command line of a party's FLARE process."""
    role, name = role_of(kit)
    party = [f"uid={name}", f"heart_beat_interval={BEAT_SECONDS}"] if role == "client" else []
    return [
        sys.executable,
        "-u",
        "-P",  # nothing in the kit is ever imported
        "-m",
        ENTRY,
        role,
        "-m",
        str(kit.resolve()),
        "-s",
        f"fed_{role}.json",
        "--set",
        "secure_train=true",
        *party,
        f"org={ORGANISATION}",
        "config_folder=config",
    ]


def become_supervisor(kit: Path) -> NoReturn:
    """Replace this process, and all it imported, by a supervisor of the kit."""
    sys.stdout.flush()
    sys.stderr.flush()
    module = "fedgranger.flare.supervisor"
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, str(kit)])


def supervise(
    kit: Path, report: Callable[[str], None], command: Sequence[str] | None = None
) -> None:
    """Keep the party's process (FLARE, or `command`) alive until this one is told to end.

    Raises:
        RunError: the party is running already.
    """
    kit = kit.resolve()
    with alone(kit):
        party = PartyProcess(kit, report, command or command_of(kit), ENVIRONMENT)
        pause = FIRST_PAUSE_SECONDS
        while not party.is_stopping:
            started = time.monotonic()
            party.live()
            if party.is_stopping:
                break
            if time.monotonic() - started > LONG_LIFE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            report(f"{party.news.standing.sentence}; starting it again in {pause:.0f} s")
            party.rest(pause)
            pause = min(2 * pause, LARGEST_PAUSE_SECONDS)
        report("ended")


def _print(sentence: str) -> None:
    with contextlib.suppress(OSError):  # whoever looked at it may be gone
        sys.stderr.write(f"{utc_stamp()} {sentence}\n")
        sys.stderr.flush()


def main() -> int:
    """Supervise the kit that is named on the command line."""
    os.umask(0o077)
    try:
        supervise(Path(sys.argv[1]), _print)
    except FedGrangerError as error:
        problem = str(error)
    except OSError as error:
        problem = f"{error.filename or 'file'}: {error.strerror or error}"
    else:
        return 0
    sys.stderr.write(f"error: {problem}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
