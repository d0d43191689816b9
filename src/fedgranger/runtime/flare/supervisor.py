"""Run a party's FLARE process in the foreground, and start it again when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fedgranger.runtime.flare.kits import ORGANISATION, role_of, settle_in

__all__ = ["command_of", "supervise"]

RESTART_SECONDS = 2.0
STOP_SECONDS = 10.0


def command_of(kit: Path) -> list[str]:
    """The command line of a party's FLARE process."""
    role, name = role_of(kit)
    module = f"nvflare.private.fed.app.{role}.{role}_train"
    party = [f"uid={name}"] if role == "client" else []
    return [
        sys.executable,
        "-u",
        "-m",
        module,
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
    """Keep the party's process alive until this one is told to end."""
    kit = kit.resolve()
    if role_of(kit)[0] == "server":
        settle_in(kit)
    (kit / "transfer").mkdir(exist_ok=True)
    environment = {"FL_LOG_LEVEL": "WARNING", **os.environ}
    stop = _Stop()
    with (kit / "console.txt").open("ab") as console:
        while not stop.wanted:
            child = subprocess.Popen(
                command_of(kit),
                cwd=kit,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )
            stop.child = child
            code = child.wait()
            if stop.wanted:
                break
            log(f"the FLARE process ended ({code}); starting it again in {RESTART_SECONDS:.0f} s")
            time.sleep(RESTART_SECONDS)


class _Stop:
    """Ends the child when this process is asked to end."""

    def __init__(self) -> None:
        self.wanted = False
        self.child: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, _number: int, _frame: object) -> None:
        self.wanted = True
        if self.child is not None and self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.child.kill()
