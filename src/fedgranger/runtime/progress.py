"""A log of JSON lines in the run folder that says how far a fit is, for `fedgranger watch`.

The first line names the process and the limits of training, further ones what is being done (time,
phase, done, total, pass, round, losses, distance, variance), the last one how the fit ended. A log
without an end to which nothing was added for `SILENT_SECONDS` belongs to a run that was killed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedgranger.config import RunConfig
from fedgranger.runtime.inprocess import Snapshot
from fedgranger.server.loss_trace import TraceRow

FILE_NAME = "progress.jsonl"
SILENT_SECONDS = 30.0
MOST_SECONDS = 5.0
"""Between two lines; one per second at first."""
Report = Callable[[str, int, int], None]
"""Called with (what, done, total) while something takes time."""


@contextlib.contextmanager
def follow(
    folder: Path | None, config: RunConfig, report: Report = lambda *_: None
) -> Iterator[Follower]:
    """Keep the log inside; a fit that ends without keeping anything leaves no folder behind."""
    if folder is None:
        yield Follower(None, report)
        return
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    path, end = folder / FILE_NAME, "failed"
    path.unlink(missing_ok=True)
    follower = Follower(path, report)
    try:
        path.touch()  # a folder that cannot be written to is worth an error
        tolerance = 0.0 if config.solver == "neural" else config.tolerance
        follower.write(process=os.getpid(), passes=config.most_passes, tolerance=tolerance)
        follower.begin("preparing")
        follower.thread.start()
        yield follower
        end = "done"
    except KeyboardInterrupt:
        end = "interrupted"
        raise
    finally:
        follower.stop(end)
        with contextlib.suppress(OSError):
            if end != "done" and [place.name for place in folder.iterdir()] == [FILE_NAME]:
                path.unlink()
                for place in made:
                    place.rmdir()  # stops at the first that holds something


class Follower:
    """Knows the present state and writes it down now and then; without a path it does not."""

    def __init__(self, path: Path | None, report: Report = lambda *_: None) -> None:
        self._path, self._report = path, report
        self._state: dict[str, Any] = {}  # replaced, never changed: two threads read it
        self._losses: list[tuple[float, float]] = []
        self._stopped = threading.Event()
        self.thread = threading.Thread(target=self._repeat, daemon=True)  # signs of life

    def stop(self, end: str) -> None:
        """Write the last line."""
        self._stopped.set()
        if self.thread.is_alive():
            self.thread.join()
        self.write(end=end)

    def begin(self, phase: str) -> None:
        """Begin a phase that is not counted."""
        self._enter({"phase": phase})

    def count(self, phase: str, done: int, total: int) -> None:
        """So much of a phase is done; `report` is called with it, too."""
        self._report(phase, done, total)
        counted = {"phase": phase, "done": done, "total": total}
        if phase != self._state.get("phase"):
            self._enter(counted)
        self._state = {**self._state, **counted}

    def train(self, snapshot: Snapshot, trace: list[TraceRow], done: int) -> None:
        """Take note of losses, of the last whole pass if there is one, and of the distance."""
        row, is_whole = trace[-1], snapshot.chunk == 0
        self._losses.append((float(np.mean(row.local_loss)), float(np.mean(row.server_loss))))
        found: dict[str, Any] = {"pass": snapshot.pass_index, "round": row.round}
        if is_whole or snapshot.pass_index == 0:
            shown = self._losses if is_whole else self._losses[-1:]
            means = np.mean(shown, axis=0)
            found |= _finite(local_loss=float(means[0]), server_loss=float(means[1]))
        if is_whole:
            self._losses = []
            if math.isfinite(snapshot.progress.distance):
                found |= {"distance": snapshot.progress.distance, "distance_at": done}
        self._state = {**self._state, **found}

    def note_round(
        self, round_index: int, rounds_per_pass: int, losses: np.ndarray, distance: float
    ) -> None:
        """Take note of a round's losses and distance."""
        found: dict[str, Any] = {"pass": round_index // rounds_per_pass, "round": round_index}
        if round_index:
            found |= _finite(server_loss=float(np.mean(losses)))
        if math.isfinite(distance):
            found |= {"distance": distance, "distance_at": round_index}
        self._state = {**self._state, **found}

    def add_variance(self, variance: float) -> None:
        """Take note of the sum of all variances after some rounds of the first pass."""
        self._state = {**self._state, **_finite(variance=variance)}

    def write(self, **values: Any) -> None:
        """Append a line; a full disk does not stop the fit."""
        line = json.dumps({"time": time.time(), **values}, allow_nan=False)
        if self._path is not None:
            with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    def _enter(self, state: dict[str, Any]) -> None:
        kept = {name: x for name, x in self._state.items() if name not in ("done", "total")}
        self._state = {**kept, **state}
        self.write(**self._state)

    def _repeat(self) -> None:
        started, pause = time.monotonic(), 1.0
        while not self._stopped.wait(pause):
            self.write(**self._state)
            pause = min(max(1.0, (time.monotonic() - started) / 500), MOST_SECONDS)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Read the lines so far, without one that was cut off; none when there is no log."""
    lines = []
    with contextlib.suppress(OSError):
        for text in (folder / FILE_NAME).read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                line = json.loads(text)
                if isinstance(line, dict) and isinstance(line.get("time"), float):
                    lines.append(line)
    return lines if lines and {"process", "passes", "tolerance"} <= set(lines[0]) else []


def is_going_on(log: list[dict[str, Any]]) -> bool:
    """Whether the fit has not ended and gave a sign of life lately."""
    return bool(log) and "end" not in log[-1] and time.time() - log[-1]["time"] < SILENT_SECONDS


def _finite(**values: float) -> dict[str, float]:
    return {name: float(f"{x:.6g}") for name, x in values.items() if math.isfinite(x)}
