"""The test's end of an altered party: start it, give it orders, hear what came of them."""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Listener
from pathlib import Path

from tests.federation.attacks.altered import MODULE, SOCKET
from tests.federation.attacks.job import HELD_KIND
from tests.federation.flare import ENVIRONMENT, wait_for

ROOT = Path(__file__).parents[3]
JOIN_SECONDS = 90.0
ORDER_SECONDS = 40.0


class Attacker:
    """A process that obeys the test.

    Args:
        federation: the federation it attacks.
        words: its command line, after `python -m`.
    """

    def __init__(self, federation, words):
        self._federation, self._words = federation, words
        self._folder = tempfile.TemporaryDirectory()  # a socket's path must be short
        self._lines, self._turn = {}, threading.Lock()
        self._opened, self._is_free = [], True

    def __enter__(self):
        path = str(Path(self._folder.name) / "orders")
        self._listener = Listener(path, "AF_UNIX")
        threading.Thread(target=self._accept, daemon=True).start()
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        words = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), SOCKET: path}
        self._console = (self._federation.folder / "attacker.txt").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", *self._words],
            env={**ENVIRONMENT, **words, "FL_LOG_LEVEL": "WARNING"},
            stdin=subprocess.DEVNULL, stdout=self._console, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        for line in self._opened:
            line.close()
        self._listener.close()
        self._console.close()
        self._folder.cleanup()

    def order(self, role, what, *words, **options):
        """Have the party's process of a role (`client`, `server`, `job`) do something."""
        if not wait_for(lambda: role in self._lines or self._has_ended(), JOIN_SECONDS):
            raise TimeoutError(f"no {role} that obeys within {JOIN_SECONDS} s")
        if role not in self._lines:
            raise RuntimeError(f"{' '.join(self._words)} ended; see attacker.txt")
        line = self._lines[role]
        with self._turn:
            line.send((what, words, options))
            if not line.poll(ORDER_SECONDS):
                raise TimeoutError(f"{role}: {what} {words} does not come back")
            is_done, answer = line.recv()
        if not is_done:
            raise RuntimeError(f"{role}: {what}: {answer}")
        return answer

    def _accept(self):
        while True:
            try:
                line = self._listener.accept()
            except OSError:
                return
            self._opened.append(line)
            with contextlib.suppress(EOFError):  # it ended before it said who it is
                role = line.recv()
                line.send("free" if self._is_free else "hold")
                self._lines[role] = line

    def _has_ended(self):
        return self._process.poll() is not None


class Altered(Attacker):
    """A party of a running federation, replaced by an altered one with the same kit.

    Args:
        federation: the federation.
        party: its name there; its honest process is ended first.
    """

    def __init__(self, federation, party):
        role = "server" if party == "server" else "client"
        super().__init__(federation, [MODULE, role, str(federation.kits[party])])
        self._party = party

    def __enter__(self):
        honest = self._federation.processes.pop(self._party, None)
        if honest is not None:
            honest.terminate()
            honest.wait(30)
        return super().__enter__()

    @contextlib.contextmanager
    def held_run(self, out):
        """A run whose last request the altered client holds back; gives the job's name.

        Afterwards it is let go, waited for, and must have ended well.
        """
        self._is_free, done = False, []
        self._lines.pop("job", None)

        def run():
            done.append(self._federation.command("run", "--out", str(out)))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield self._wait_for_job()
        finally:
            self._is_free = True
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                self.order("job", "free")
            thread.join()
        assert done[0].returncode == 0, done[0].stderr

    def _wait_for_job(self):
        def is_held():
            return HELD_KIND in self.order("job", "facts")["kinds"]

        if not wait_for(is_held, JOIN_SECONDS):
            raise TimeoutError(f"no request '{HELD_KIND}' within {JOIN_SECONDS} s")
        return self.order("job", "facts")["job"]
