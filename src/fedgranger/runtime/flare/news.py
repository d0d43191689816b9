"""What a party's supervisor tells whoever looks at it: connected or why not, runs, last words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedgranger.runtime.flare.processes import end_with_parent
from fedgranger.runtime.flare.reach import server_address

__all__ = ["News", "Standing"]

PATIENCE_SECONDS = 10.0
LARGEST_PAUSE_SECONDS = 600.0
KEPT_LINES = 50
LOG_LINES = 1000
STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
NOISE = re.compile(r"^\s|^Traceback |^\W*$")


class Standing(NamedTuple):
    """How a party stands: `starting`, `connected`, `listening` (a server), `away`, `ended`."""

    state: str
    sentence: str
    since: float


class News:
    """Collects what happens to one party and gives every change once.

    Args:
        kit: the party's.
        role: `server` or `client`.
        now: seconds since 1970.
        patience: a client that is not connected for so long is talked about.
    """

    def __init__(
        self, kit: Path, role: str, now: float, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._kit, self._role, self._patience = kit, role, patience
        self._address = "{}:{}".format(*server_address(kit))
        self._state_folder = kit / "fedgranger-state"
        self._log = self._state_folder / "log.txt"
        self._read = self._log.stat().st_size if self._log.is_file() else 0
        self._question: subprocess.Popen[bytes] | None = None
        self.begin(now)

    def begin(self, now: float) -> None:
        """A process of the party was started."""
        (self._state_folder / "status.json").unlink(missing_ok=True)
        self.close()
        self._heard: deque[str] = deque(maxlen=KEPT_LINES)
        self._pause, self._notice = self._patience, now + self._patience
        self.standing = Standing("starting", "is starting", now)

    def end(self, code: int, now: float) -> str:
        """The process ended; why, as far as it said."""
        (self._state_folder / "status.json").unlink(missing_ok=True)
        lines = [line for line in self._heard if not NOISE.match(line)]
        reason = f": {lines[-1].strip()}" if lines else " without a word"
        sentence = f"the FLARE process ended ({code}){reason}"
        self.standing = Standing("ended", sentence, now)
        return sentence

    def close(self) -> None:
        """End the question why nobody answers."""
        if self._question is not None:
            self._question.kill()
            self._question.communicate()
        self._question = None

    def hear(self, data: bytes) -> None:
        """Take what the process wrote to its console."""
        self._heard.extend(data.decode("utf-8", "replace").splitlines())

    def look(self, now: float, ports: Sequence[int] = ()) -> list[str]:
        """What is new.

        Args:
            now: seconds since 1970.
            ports: where the party's process listens.
        """
        sentences = self._log_lines()
        found = self._server(now, ports) if self._role == "server" else self._client(now)
        if found.state != self.standing.state or found.sentence != self.standing.sentence:
            if found.sentence and found.state != "starting":
                sentences.append(found.sentence)
            self._pause, self._notice = self._patience, now + self._patience
            self.standing = found
        return sentences + self._why_not(now)

    def _server(self, now: float, ports: Sequence[int]) -> Standing:
        if self.standing.state == "listening" or int(self._address.rpartition(":")[2]) not in ports:
            return self.standing
        return Standing("listening", f"clients can connect to {self._address}", now)

    def _client(self, now: float) -> Standing:
        """What our FLARE entry wrote down about the connection."""
        try:
            told = json.loads((self._state_folder / "status.json").read_text("utf-8"))
            state, sentence = str(told["state"]), str(told.get("sentence", ""))
        except (OSError, ValueError, KeyError, TypeError):
            return self.standing
        if state == "connected":
            found = Standing("connected", f"connected to the server {self._address}", now)
        elif state == "connecting" and self.standing.state == "connected":
            found = Standing("away", f"lost the server {self._address}; trying again", now)
        elif state == "connecting":
            return self.standing
        else:
            found = Standing("away", f"not connected: {sentence or state}", now)
        return self.standing if found[:2] == self.standing[:2] else found

    def _why_not(self, now: float) -> list[str]:
        """Say in growing pauses that there is no connection, and why as far as known."""
        if self.standing.state in ("connected", "listening"):
            self.close()
            return []
        sentences = []
        if self._question is not None and self._question.poll() is not None:
            answer = self._question.communicate()[0].decode("utf-8", "replace").strip()
            self._question = None
            waited = now - self.standing.since
            known = answer or (self._heard[-1].strip() if self._heard else "no reason is known")
            sentences.append(f"not connected for {waited:.0f} s: {known}")
        if now >= self._notice:
            self._pause = min(3 * self._pause, LARGEST_PAUSE_SECONDS)
            self._notice = now + self._pause
            if self._role == "server":
                waited = now - self.standing.since
                sentences.append(f"does not listen at {self._address} for {waited:.0f} s")
            elif self._question is None:
                self._question = subprocess.Popen(
                    [sys.executable, "-P", "-m", "fedgranger.runtime.flare.reach", str(self._kit)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    preexec_fn=end_with_parent,
                )
        return sentences

    def _log_lines(self) -> list[str]:
        """New lines of the party's own log: runs that began and ended, notes on its data."""
        try:
            size = self._log.stat().st_size
            if size == self._read:
                return []
            with self._log.open("rb") as file:
                file.seek(self._read if size > self._read else 0)
                data = file.read()
        except OSError:
            return []
        whole, _, rest = data.rpartition(b"\n")
        self._read = size - len(rest)
        lines = whole.decode("utf-8", "replace").splitlines()[-LOG_LINES:]
        return [STAMP.sub("", line) for line in lines if line.strip()]
