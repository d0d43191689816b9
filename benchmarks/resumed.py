"""Data sets of a study one by one, kept as they are finished, with a bar on the terminal."""

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedgranger_research.recordings.journal import Journal

COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())


def resumed(out, question, keys, one):
    """Return the record of every key; `one` makes it, unless the file `out` has it already.

    The same command continues where it was interrupted; without `out` nothing is kept.
    """
    journal = Journal(None if out is None else Path(out), question)
    columns, console = (*COLUMNS, TimeRemainingColumn()), Console(stderr=True)
    with Progress(*columns, console=console) as bar:
        done = bar.add_task("data sets", total=len(keys))
        for key in keys:
            if key not in journal.records:
                start = time.perf_counter()
                record = one(key)
                seconds = time.perf_counter() - start
                journal.add({"key": key, "seconds": seconds, **record})
            bar.advance(done)
    return [journal.records[key] for key in keys]


def seconds_per_set(records):
    """Mean time of a data set, in words."""
    return f"{sum(record['seconds'] for record in records) / len(records):.1f} s per data set"
