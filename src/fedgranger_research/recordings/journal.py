"""Finished panels, one JSON line each: what an interrupted study continues from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fedgranger.config import RunConfig
from fedgranger.disk import append_line, write_text
from fedgranger.errors import RunError
from fedgranger_research.parallel import completed
from fedgranger_research.recordings.trial import Control, run_control


class Journal:
    """A file of finished panels that all belong to the same question.

    The first line holds everything the outcomes depend on beside the panel's key; a file with
    another first line is refused. A last line that a crash cut off is dropped.

    Args:
        path: the file, or None to keep the records in memory only.
        question: plain values.
    """

    def __init__(self, path: Path | None, question: dict[str, Any]) -> None:
        self._path = path
        self.records: dict[str, dict[str, Any]] = {}
        head = json.dumps({"question": question}, sort_keys=True)
        if path is None:
            return
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [head]
        if lines and lines[0] != head:
            raise RunError(
                f"{path}: holds panels of other data or options; give another place for the "
                "results, or remove the file to begin anew"
            )
        for line in lines[1:]:
            try:
                record = json.loads(line)
            except ValueError:
                break
            self.records[record["key"]] = record
            kept.append(line)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "\n".join(kept) + "\n")

    def add(self, record: dict[str, Any]) -> None:
        """Keep a finished panel."""
        self.records[record["key"]] = record
        if self._path is not None:
            append_line(self._path, json.dumps(record))


def run_controls(
    journal: Journal,
    keys: list[str],
    make: Callable[[str], Control | None],
    config: Callable[[Control], RunConfig],
    *,
    workers: int = 1,
    report: Callable[[str, int, int], None] = lambda *_: None,
) -> list[dict[str, Any]]:
    """Run every panel that is not in the journal yet; return all records in the order of `keys`.

    Args:
        journal: what was finished before, and where to write.
        keys: the panels.
        make: builds a panel from its key; None where there is no such panel, which is kept as a
            record without pairs.
        config: options of the fit for a panel.
        workers: processes.
        report: called with (what, done, total).
    """
    report("panels", sum(key in journal.records for key in keys), len(keys))

    def tasks() -> Iterable[tuple[Control, RunConfig]]:
        for key in keys:
            if key in journal.records:
                continue
            control = make(key)
            if control is None:
                journal.add({"key": key, "skipped": True})
            else:
                yield control, config(control)

    for record in completed(run_control, tasks(), workers):
        journal.add(record)
        report("panels", sum(key in journal.records for key in keys), len(keys))
    report("panels", len(keys), len(keys))
    return [journal.records[key] for key in keys]
