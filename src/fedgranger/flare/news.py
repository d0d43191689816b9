"""What a party's supervisor tells whoever looks at it: connected or why not, runs, last words."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PATIENCE_SECONDS = 10.0
LARGEST_PAUSE_SECONDS = 600.0
KEPT_BYTES = 10_000
GOOD_STATES = ("connected", "listening")
STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
SAYS_NOTHING = re.compile(r"^\s|^Traceback |^\W*$")


class Standing(NamedTuple):
    """How a party stands.

    Attributes:
        state: `starting`, `ended`, for a server `listening`, for a client what our FLARE entry
            wrote down: `connecting`, `connected`, `refused` or `stopped`.
        sentence: the same in words, with a reason.
        since: seconds since 1970.
    """

    state: str
    sentence: str
    since: float


class News:
    """Collects what happens to one party and gives every change once.

    Args:
        kit: the party's.
        now: seconds since 1970.
    """

    def __init__(self, kit: Path, now: float) -> None:
        self._status = kit / "fedgranger-state" / "status.json"
        self._log = kit / "fedgranger-state" / "log.txt"
        self._read = self._log.stat().st_size if self._log.is_file() else 0
        self._host, self._port = _listening_address(kit)
        self.begin(now)

    def begin(self, now: float) -> None:
        """A process of the party was started."""
        self._status.unlink(missing_ok=True)
        self._output = b""
        self._take(Standing("starting", "is starting", now))

    def end(self, code: int, now: float) -> None:
        """The process ended; take down why, as far as it said."""
        self._status.unlink(missing_ok=True)
        lines = self._output.decode("utf-8", "replace").splitlines()
        words = [line.strip() for line in lines if not SAYS_NOTHING.match(line)]
        reason = f": {words[-1]}" if words else " without a word"
        self._take(Standing("ended", f"the FLARE process ended ({code}){reason}", now))

    def add_output(self, data: bytes) -> None:
        """Take what the process wrote to its console."""
        self._output = (self._output + data)[-KEPT_BYTES:]

    def check(self, now: float, ports: Sequence[int] = ()) -> list[str]:
        """What is new, and in growing pauses what has not come yet.

        Args:
            now: seconds since 1970.
            ports: where the party's process listens.
        """
        sentences = self._log_lines()
        found = self._server(now, ports) if self._port else self._client(now)
        if found[:2] != self.standing[:2]:
            self._take(found)
            sentences.append(found.sentence)
        elif self.standing.state not in GOOD_STATES and now >= self._notice:
            self._pause = min(3 * self._pause, LARGEST_PAUSE_SECONDS)
            self._notice = now + self._pause
            sentences.append(f"{found.sentence} (for {now - self.standing.since:.0f} s)")
        return sentences

    def _take(self, standing: Standing) -> None:
        self.standing = standing
        self._pause, self._notice = PATIENCE_SECONDS, standing.since + PATIENCE_SECONDS

    def _server(self, now: float, ports: Sequence[int]) -> Standing:
        if self._port not in ports:
            return self.standing
        return Standing("listening", f"clients can connect to {self._host}:{self._port}", now)

    def _client(self, now: float) -> Standing:
        """What our FLARE entry wrote down about the connection."""
        try:
            status = json.loads(self._status.read_text("utf-8"))
            return Standing(str(status["state"]), str(status["sentence"]), now)
        except (OSError, ValueError, KeyError, TypeError):
            return self.standing

    def _log_lines(self) -> list[str]:
        """New lines of the party's own log: runs that began and ended, notes on its data."""
        try:
            size = self._log.stat().st_size
            if size == self._read:
                return []
            begin = self._read if size > self._read else 0  # a smaller one is a new one
            with self._log.open("rb") as file:
                file.seek(begin)
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._read = begin + len(whole)
        lines = whole.decode("utf-8", "replace").splitlines()
        return [STAMP.sub("", line) for line in lines if line.strip()]


def _listening_address(kit: Path) -> tuple[str, int]:
    """Where a server's clients connect; nowhere for a client."""
    path = kit / "startup" / "fed_server.json"
    if not path.is_file():
        return "", 0
    content = json.loads(path.read_text("utf-8"))
    host, _, port = content["servers"][0]["service"]["target"].rpartition(":")
    return host, int(port)
