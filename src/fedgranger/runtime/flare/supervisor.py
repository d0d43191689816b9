"""Run a party's FLARE process in the foreground, and start it again when it dies."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fedgranger.errors import RunError
from fedgranger.runtime.flare.kits import ORGANISATION, role_of
from fedgranger.runtime.flare.rights import restore_rights

__all__ = ["command_of", "end_processes", "supervise"]

POLL_SECONDS = 0.2
RESTART_SECONDS = 2.0
BEAT_SECONDS = 4  # how soon a client comes back to a server that was restarted (FLARE: 10)
STOP_SECONDS = 10.0
ENTRY = "fedgranger.runtime.flare.entry"
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


def supervise(kit: Path, log: Callable[[str], None]) -> None:
    """Keep the party's process alive until this one is told to end.

    Raises:
        RunError: the party is running already.
    """
    kit = kit.resolve()
    with _alone(kit), (kit / "console.txt").open("ab") as console:
        end_processes(kit)
        for name in restore_rights(kit, is_server=role_of(kit)[0] == "server"):
            log(f"{kit}/local/{name} was missing or changed; it is restored")
        (kit / "transfer").mkdir(exist_ok=True)
        environment = {**ENVIRONMENT, **os.environ}
        stop = _Stop()
        while not stop.is_wanted:
            child = subprocess.Popen(
                command_of(kit),
                cwd=kit,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )
            while child.poll() is None and not stop.is_wanted:
                time.sleep(POLL_SECONDS)
            if not stop.is_wanted:
                code, pause = child.returncode, f"{RESTART_SECONDS:.0f} s"
                log(f"the FLARE process ended ({code}); starting it again in {pause}")
                end_processes(kit)
                time.sleep(RESTART_SECONDS)
                continue
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(STOP_SECONDS)
        end_processes(kit)


def end_processes(kit: Path) -> None:
    """Kill what is left of a kit's FLARE processes: jobs outlive a parent that was killed."""
    import psutil

    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        modules = [after for word, after in itertools.pairwise(words) if word == "-m"]
        if modules[1:] == [str(kit)] and modules[0] == ENTRY:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@contextlib.contextmanager
def _alone(kit: Path) -> Iterator[None]:
    """Hold the kit's lock; it goes with this process, however that ends."""
    import fcntl

    with (kit / "running.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"{kit}: is running already") from None
        yield


class _Stop:
    """Remembers that this process was asked to end."""

    def __init__(self) -> None:
        self.is_wanted = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, _number: int, _frame: object) -> None:
        self.is_wanted = True
