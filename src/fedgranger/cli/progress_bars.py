"""Bars on the error stream, for what takes longer than a moment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedgranger.cli.console import Amount, err


@contextmanager
def progress_report() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a (what, done, total) callback that draws one bar with time left per task."""
    from fedgranger.runtime.bars import bars

    is_shown = sys.stderr.isatty() and not Amount.is_quiet
    with bars(err, is_shown=is_shown, is_kept=True, patience=0.0) as report:
        yield report
