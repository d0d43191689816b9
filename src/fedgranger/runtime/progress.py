"""A small file in the run folder that says how far a fit is, for `fedgranger watch`.

It is written at most about once per second, whole or not at all, and removed when the fit ends in
any way but a kill; so a `progress.json` whose process is gone belongs to a run that was killed.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedgranger.config import RunConfig
from fedgranger.run_folder import write_atomically
from fedgranger.runtime.inprocess import Snapshot, TraceRow

__all__ = [
    "FILE_NAME",
    "Follower",
    "RunProgress",
    "follow",
    "is_going_on",
    "is_process_gone",
    "read_progress",
    "seconds_left",
]

FILE_NAME = "progress.json"
WRITE_SECONDS = 1.0
SILENT_SECONDS = 60.0
"""A run whose process cannot be seen from here is taken as ended after this long without news."""
NUM_LOSSES = 24
NUM_DISTANCES = 32
Report = Callable[[str, int, int], None]


class RunProgress(NamedTuple):
    """The content of `progress.json`; times are seconds since 1970.

    Attributes:
        process: number of the process.
        born: start time of that process as the system reports it; empty when not known. Process
            numbers are used again, number and start time together are not.
        host: name of the machine.
        started: when the fit began.
        updated: when the file was written.
        phase: what is being done.
        done: units of the phase done, of `total`; None when they are not counted.
        total: units of the phase at most.
        phase_started: when the phase began.
        phase_first: units that were done then (a resumed run does not begin at 0).
        passes: largest number of passes (rounds of newton).
        pass_index: complete passes.
        round: rounds so far.
        local_losses: means over clients and some passes, oldest first; None where not known.
        server_losses: likewise.
        distances: (done, estimated distance to the limit) after passes, thinned out.
        tolerance: distance at which training ends; 0 for never.
        variances: sums of all parameters' variances along the first pass, oldest first, when
            uncertainty is being propagated.
    """

    process: int
    born: str
    host: str
    started: float
    updated: float
    phase: str
    done: int | None
    total: int | None
    phase_started: float
    phase_first: int
    passes: int
    pass_index: int | None
    round: int | None
    local_losses: list[float | None]
    server_losses: list[float | None]
    distances: list[tuple[int, float]]
    tolerance: float
    variances: list[float]


@contextlib.contextmanager
def follow(folder: Path | None, config: RunConfig) -> Iterator[Follower]:
    """Keep `progress.json` up to date inside, remove it (and a folder made for it) at the end."""
    if folder is None:
        yield Follower(None, config)
        return
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE_NAME
    try:
        follower = Follower(path, config)
        follower.begin("preparing")
        yield follower
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            for place in made:
                place.rmdir()  # stops at the first that holds something


class Follower:
    """Gathers what happens and writes it down now and then; without a path it does nothing."""

    def __init__(self, path: Path | None, config: RunConfig) -> None:
        self._path, self._config = path, config
        self._written, self._has_written = -math.inf, False
        self._done: int | None = None
        self._snapshot: Snapshot | None = None
        self._distances: list[tuple[int, float]] = []
        self._trace: list[TraceRow] = []
        now = time.time()
        self._values = RunProgress(
            os.getpid(),
            _birth(os.getpid()),
            platform.node(),
            now,
            now,
            "",
            None,
            None,
            now,
            0,
            config.passes,
            None,
            None,
            [],
            [],
            [],
            config.tolerance,
            [],
        )

    def begin(self, phase: str) -> None:
        """Begin a phase that is not counted."""
        self._enter(phase, None, None)
        self._write()

    def reporting(self, report: Report) -> Report:
        """Let a (what, done, total) callback be heard here, too."""

        def both(what: str, done: int, total: int) -> None:
            report(what, done, total)
            self.count(what, done, total)

        return both

    def count(self, phase: str, done: int, total: int) -> None:
        """So much of a phase is done."""
        if self._path is None:
            return
        self._done = done
        is_new = phase != self._values.phase
        if is_new:
            self._enter(phase, done, total)
        if is_new or time.monotonic() - self._written >= WRITE_SECONDS:
            self._write()

    def train(self, snapshot: Snapshot, trace: list[TraceRow], done: int) -> None:
        """Take note of losses and distance; cheap, because they are condensed when written."""
        if self._path is None:
            return
        self._snapshot, self._trace = snapshot, trace
        if snapshot.chunk == 0 and math.isfinite(snapshot.progress.distance):
            self._distances.append((done, snapshot.progress.distance))
            if len(self._distances) > 2 * NUM_DISTANCES:
                self._distances = self._distances[-1::-2][::-1]  # the newest stays

    def add_variance(self, variance: float) -> None:
        """Take note of the sum of all variances after some rounds of the first pass."""
        if math.isfinite(variance):
            self._values.variances.append(float(f"{variance:.6g}"))

    def _enter(self, phase: str, done: int | None, total: int | None) -> None:
        self._done = done
        self._values = self._values._replace(
            phase=phase, done=done, total=total, phase_started=time.time(), phase_first=done or 0
        )

    def _write(self) -> None:
        if self._path is None:
            return
        self._written = time.monotonic()
        groups = _groups(self._trace)
        values = self._values._replace(
            updated=time.time(),
            done=self._done,
            pass_index=None if self._snapshot is None else self._snapshot.pass_index,
            round=self._trace[-1].round if self._trace else None,
            local_losses=[_mean([row.local_loss for row in group]) for group in groups],
            server_losses=[_mean([row.server_loss for row in group]) for group in groups],
            distances=self._distances,
        )
        text = json.dumps(values._asdict(), allow_nan=False)
        # The first time a folder that cannot be written to is worth an error; later the fit is
        # worth more than its progress.
        with contextlib.suppress(*([OSError] if self._has_written else [])):
            write_atomically(self._path, lambda path: path.write_text(text, encoding="utf-8"))
        self._has_written = True


def read_progress(folder: Path) -> RunProgress | None:
    """Read `progress.json`, or None when there is none that makes sense."""
    try:
        values: dict[str, Any] = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        values["distances"] = [(int(done), float(size)) for done, size in values["distances"]]
        return RunProgress(**values)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def is_process_gone(progress: RunProgress) -> bool | None:
    """Whether the process of a run has ended; None when that cannot be seen from here."""
    if progress.host != platform.node() or sys.platform == "win32":  # kill(pid, 0) would end it
        return None
    try:
        os.kill(progress.process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody else's, but there
    born = _birth(progress.process)
    return born == "ended" or bool(born and progress.born and born != progress.born)


def is_going_on(progress: RunProgress) -> bool:
    """Whether the run is alive: its process is there, or wrote lately if that cannot be seen."""
    gone = is_process_gone(progress)
    return time.time() - progress.updated < SILENT_SECONDS if gone is None else not gone


def seconds_left(progress: RunProgress) -> tuple[float, bool] | None:
    """Time until the phase ends, and whether that is only an upper bound.

    From the pace so far. Training ends early when the distance reaches the tolerance; once it
    falls steadily, its rate says when.
    """
    done, total = progress.done, progress.total
    if done is None or total is None or done <= progress.phase_first:
        return None
    pace = (progress.updated - progress.phase_started) / (done - progress.phase_first)
    left = total - done
    if progress.phase != "training" or progress.tolerance <= 0:
        return max(left, 0) * pace, False
    recent = progress.distances[-(1 + len(progress.distances) // 2) :]
    falls = all(0 < after[1] < before[1] for before, after in pairwise(recent))
    if len(recent) > 1 and falls:
        (before, far), (after, near) = recent[0], recent[-1]
        rate = math.log(far / near) / (after - before)
        expected = after - done + math.log(max(near / progress.tolerance, 1.0)) / rate
        if expected < left:
            return max(expected, 0.0) * pace, False
    return left * pace, True


def _groups(trace: list[TraceRow]) -> list[list[TraceRow]]:
    """Rows of some complete passes, because stretches of data differ; single rows before."""
    if not trace:
        return []
    first, current = trace[0].pass_index, trace[-1].pass_index
    if current - first < 2:
        return [[trace[k]] for k in _evenly_spaced(0, len(trace) - 1)]
    begin = [
        bisect.bisect_left(trace, index, key=lambda row: row.pass_index)
        for chosen in _evenly_spaced(first, current - 1)
        for index in (chosen, chosen + 1)
    ]
    return [trace[k:stop] for k, stop in zip(begin[::2], begin[1::2], strict=True)]


def _evenly_spaced(first: int, last: int) -> list[int]:
    """At most `NUM_LOSSES` whole numbers, evenly spaced, both ends included."""
    count = min(last - first + 1, NUM_LOSSES)
    return np.unique(np.linspace(first, last, count).round().astype(np.int64)).tolist()


def _mean(losses: list[np.ndarray]) -> float | None:
    mean = float(np.mean(losses))
    return float(f"{mean:.6g}") if math.isfinite(mean) else None


def _birth(process: int) -> str:
    """Start of a process in clock ticks since boot (Linux); "ended" for a zombie."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return "ended" if fields[0] in "ZX" else fields[19]
