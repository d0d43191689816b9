"""Bars with the time left, for what takes long: on a terminal, or below the cell of a notebook."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Report = Callable[[str, int, int], None]
"""Called with (what, done, total)."""
PATIENCE = 2.0
"""Seconds after which a call of Python shows that it is at work."""
PAUSE = 0.5
"""Seconds between two pictures in a notebook."""
WIDTH = 80


@contextmanager
def bars(console: Console, *, is_shown: bool, is_kept: bool, patience: float) -> Iterator[Report]:
    """Yield a report that draws a bar per task on a terminal once patience is over."""
    progress = _progress(console, disable=not is_shown, transient=not is_kept)
    timer = threading.Timer(patience, progress.start)
    timer.daemon = True
    if patience > 0:
        timer.start()
    else:
        progress.start()
    try:
        yield reporter(progress)
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()
        for task in progress.tasks:  # training may converge before its last allowed pass
            progress.update(task.id, total=task.completed)
        if progress.live.is_started:
            progress.stop()


@contextmanager
def patient_bars(*, is_wanted: bool = True) -> Iterator[Report]:
    """The same for a call of Python: nothing is drawn where nobody looks, and nothing stays."""
    console = Console(stderr=True)
    if is_wanted and console.is_jupyter:
        with _notebook_bars() as report:
            yield report
        return
    is_shown = is_wanted and sys.stderr.isatty()
    with bars(console, is_shown=is_shown, is_kept=False, patience=PATIENCE) as report:
        yield report


def reporter(progress: Progress) -> Report:
    """Keep one task for every word that is reported."""
    tasks: dict[str, Any] = {}

    def report(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = progress.add_task(what, total=total)
        progress.update(tasks[what], completed=done, total=total)

    return report


def _progress(console: Console, **options: Any) -> Progress:
    columns = (
        TextColumn("{task.description:<13}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, **options)


@contextmanager
def _notebook_bars() -> Iterator[Report]:
    """Drawn anew in one place when something is reported; rich's own need another package."""
    from IPython.display import display  # pyright: ignore[reportMissingImports]

    page = Console(file=io.StringIO(), width=WIDTH, force_jupyter=False, color_system=None)
    progress = _progress(page)
    count, due, handle = reporter(progress), time.monotonic() + PATIENCE, None

    def report(what: str, done: int, total: int) -> None:
        nonlocal due, handle
        count(what, done, total)
        if time.monotonic() < due:
            return
        due = time.monotonic() + PAUSE
        with page.capture() as drawn:
            page.print(progress.get_renderable())
        picture = {"text/plain": drawn.get()}
        if handle is None:
            handle = display(picture, raw=True, display_id=True)
        else:
            handle.update(picture, raw=True)

    try:
        yield report
    finally:
        if handle is not None:
            handle.update({"text/plain": ""}, raw=True)
