"""How a party stands: what its supervisor answers, and what its own files state.

`News` follows a party while it runs; `read_health` is for service managers and containers.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedgranger.flare.identity import SERVER, role_of, server_address
from fedgranger.flare.processes import is_running

PATIENCE_SECONDS = 10.0
LARGEST_PAUSE_SECONDS = 600.0
KEPT_BYTES = 10_000
GOOD_STATES = ("connected", "listening")
STAMP = re.compile(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ? ")
SAYS_NOTHING = re.compile(r"^\s|^Traceback |^\W*$")
STALE_SECONDS = 60.0
SMALLEST_FREE_BYTES = 50_000_000


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
    """Collects what happens to one party and gives every change once; times are since 1970."""

    def __init__(self, kit: Path, now: float) -> None:
        self._status = kit / "fedgranger-state" / "status.json"
        self._log = kit / "fedgranger-state" / "log.txt"
        self._read = self._log.stat().st_size if self._log.is_file() else 0
        self._server = server_address(kit) if role_of(kit)[0] == SERVER else None
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

        `ports` are those at which the party's process listens.
        """
        sentences = self._log_lines()
        found = self.standing
        if self._server is None:
            found = self._connection(now)
        elif self._server[1] in ports:
            found = Standing("listening", "clients can connect to {}:{}".format(*self._server), now)
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

    def _connection(self, now: float) -> Standing:
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


class Health(NamedTuple):
    """A party's health.

    Attributes:
        is_good: it runs, is connected (a server: listens), and can write to its disk.
        sentence: how it stands, or what is wrong first.
        is_running: a supervisor looks after it.
        state: of its `Standing`, "" when not known.
        beat_seconds: how long ago the supervisor wrote down how it stands, if ever.
        free_bytes: on the kit's disk.
    """

    is_good: bool
    sentence: str
    is_running: bool
    state: str
    beat_seconds: float | None
    free_bytes: int


def read_health(kit: Path) -> Health:
    """Read it; asks nobody."""
    running, free = is_running(kit), shutil.disk_usage(kit).free
    try:
        status = json.loads((kit / "fedgranger-state" / "supervisor.json").read_text("utf-8"))
        state, sentence = str(status["state"]), str(status["sentence"])
        beat = max(time.time() - float(status["beat"]), 0.0)
    except (OSError, ValueError, KeyError, TypeError):
        state, sentence, beat = "", "", None
    if not running:
        problem = "is not started; use 'federation start'"
    elif free < SMALLEST_FREE_BYTES:
        problem = f"its disk is full ({free / 1e6:.0f} MB free); make room"
    elif beat is None or beat > STALE_SECONDS:
        when = "ever" if beat is None else f"for {beat:.0f} s"
        problem = f"its supervisor has not said anything {when}; start it again"
    elif state not in GOOD_STATES:
        problem = sentence
    else:
        return Health(True, sentence, running, state, beat, free)
    return Health(False, problem, running, state, beat, free)
