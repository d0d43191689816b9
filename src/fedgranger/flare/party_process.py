"""A party's FLARE process: started, listened to, and cleaned up after."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedgranger.flare.health import News
from fedgranger.flare.identity import role_of
from fedgranger.flare.private_files import write_private
from fedgranger.flare.processes import (
    abandon_jobs,
    end_processes,
    end_with_parent,
    processes_of,
    remove_job_folders,
)
from fedgranger.flare.rights import restore_rights
from fedgranger.flare.settings import state_folder

POLL_SECONDS = 0.5
HEALTH_SECONDS = 10.0
TIDY_SECONDS = 300.0
STOP_SECONDS = 8.0
READ_BYTES = 1 << 16
LARGEST_BYTES = 5_000_000
KEPT_FILES = 3


class PartyProcess:
    """The process of a party, its console and its news.

    Takes over the signals that ask this process to end.

    Attributes:
        news: how the party stands.
        is_stopping: this process was asked to end.
    """

    def __init__(
        self,
        kit: Path,
        report: Callable[[str], None],
        command: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        self._kit, self._report, self._command = kit, report, command
        self._environment = {**environment, **os.environ}
        self._folder = state_folder(kit)
        self._role = role_of(kit)[0]
        self._console_problem = self._problem = ""
        self._beaten = 0.0
        self.news = News(kit, time.time())
        self.is_stopping = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)

    def _stop(self, _number: int, _frame: object) -> None:
        self.is_stopping = True

    def live(self) -> None:
        """Run the process until it ends or this one is told to."""
        self._prepare()
        child = subprocess.Popen(
            self._command,
            cwd=self._kit,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            umask=0o077,
            preexec_fn=end_with_parent,
        )
        self.news.begin(time.time())
        tidied = time.monotonic()
        while child.poll() is None and not self.is_stopping:
            self._listen(child, POLL_SECONDS)
            news = self.news.check(time.time(), self._ports(child.pid))
            for sentence in news:
                self._report(sentence)
            self._beat(is_due=bool(news))
            if time.monotonic() > tidied + TIDY_SECONDS:
                tidied = time.monotonic()
                self._tidy()
        if self.is_stopping:
            child.terminate()
            until = time.monotonic() + STOP_SECONDS
            while child.poll() is None and time.monotonic() < until:
                self._listen(child, 0.1)
            child.kill()
        code = child.wait()
        while self._listen(child, 0.0):
            pass
        self.news.end(code, time.time())
        end_processes(self._kit)
        self._beat(is_due=True)

    def rest(self, seconds: float) -> None:
        """Wait before the next start."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.is_stopping:
            time.sleep(POLL_SECONDS)
            self._beat()

    def _prepare(self) -> None:
        """End what an earlier life left, and clean up."""
        end_processes(self._kit)
        for name in restore_rights(self._kit, is_server=self._role == "server"):
            self._report(f"{self._kit}/local/{name} was missing or changed; it is restored")
        with contextlib.suppress(OSError):
            (self._kit / "transfer").mkdir(mode=0o700, exist_ok=True)
        lost = abandon_jobs(self._kit)
        if lost:
            self._report(f"{len(lost)} jobs that were running when the server died are given up")
        self._tidy()

    def _tidy(self) -> None:
        commands = processes_of(self._kit).values()
        remove_job_folders(self._kit, {word for words in commands for word in words})

    def _listen(self, child: subprocess.Popen[bytes], seconds: float) -> bool:
        """Copy what the process writes into its console file; whether there was something.

        A job of the process may hold the pipe open after it, and a closed one stays readable.
        """
        if child.stdout is None or child.stdout.closed:
            time.sleep(seconds)
            return False
        if not select.select([child.stdout], [], [], seconds)[0]:
            return False
        data = os.read(child.stdout.fileno(), READ_BYTES)
        if not data:
            child.stdout.close()
            return False
        self.news.add_output(data)
        self._console_problem = append_to_log(self._kit / "console.txt", data)
        return True

    def _ports(self, process: int) -> list[int]:
        """Where a server's process listens; asked until it does."""
        if self._role != "server" or self.news.standing.state == "listening":
            return []
        import psutil

        with contextlib.suppress(psutil.Error):
            found = psutil.Process(process).net_connections("tcp")
            return [link.laddr.port for link in found if link.status == psutil.CONN_LISTEN]
        return []

    def _beat(self, *, is_due: bool = False) -> None:
        """Write down for `federation health` how the party stands; say when the disk is full."""
        if not is_due and time.monotonic() < self._beaten + HEALTH_SECONDS:
            return
        self._beaten, problem = time.monotonic(), self._console_problem
        rotate(self._folder / "log.txt")
        facts = {**self.news.standing._asdict(), "beat": time.time(), "process": os.getpid()}
        path = self._folder / "supervisor.json"
        try:
            write_private(path, json.dumps(facts).encode())
        except OSError as error:
            problem = f"{path}: {error.strerror or error}"
        if problem != self._problem:
            self._problem = problem
            self._report(f"cannot write {problem}" if problem else "files can be written again")


def rotate(path: Path, largest_bytes: int = LARGEST_BYTES) -> None:
    """Move a file that is too large aside: `name.1.txt` is newer than `name.2.txt`.

    Safe for a writer that opens the file for every line.
    """
    try:
        if path.stat().st_size < largest_bytes:
            return
    except OSError:
        return
    aside = [path.with_suffix(f".{number}{path.suffix}") for number in range(1, KEPT_FILES + 1)]
    for newer, older in reversed(list(itertools.pairwise([path, *aside]))):
        with contextlib.suppress(FileNotFoundError):
            newer.replace(older)


def append_to_log(path: Path, data: bytes, largest_bytes: int = LARGEST_BYTES) -> str:
    """Append to a file, which is moved aside when it is large; return why it failed, if it did.

    The bytes are then lost; a full disk stops nothing.
    """
    try:
        rotate(path, largest_bytes)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return ""
