"""Bars on the error stream, for what takes longer than a moment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fedgranger.cli.console import Amount, err


@contextmanager
def progress_report() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a (what, done, total) callback that draws one bar with time left per task."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<13}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    disabled = not sys.stderr.isatty() or Amount.is_quiet
    with Progress(*columns, console=err, disable=disabled) as progress:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield report
        for task in progress.tasks:  # training may converge before its last allowed pass
            progress.update(task.id, total=task.completed)
