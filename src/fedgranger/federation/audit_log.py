"""A site's own log of what left and what was refused: lines that cannot be changed unnoticed.

One JSON object per line. Every line holds the hash of the line before it and its own, so that a
line that is changed, taken out or put in between breaks the chain there. Lines are flushed to the
disk before `add` returns: what is to leave the site is written here first. Lines cut off at the
end leave a whole chain; keep a copy, or the last hash, elsewhere if that matters.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedgranger.errors import RunError

LONGEST_TEXT = 500
TAIL_BYTES = 65_536
"""More than one line can have: a dozen facts of at most 500 characters."""
REPAIRED = "mended"
"""Event of the line after one that a crash tore; the torn piece stays where it is."""


class AuditLog:
    """An append-only log that several processes of one site may write to.

    The file is made on the first `add`, readable by its owner only.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock

    def add(self, event: str, **facts: str | int | float | bool | None) -> None:
        """Append one line; when this returns it is on the disk.

        Raises:
            OSError: it could not be written; what it speaks of must then not happen.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            before, torn = _tail(descriptor)
            lines = b""
            if torn:
                repaired = {"torn": _hash(torn)}
                line, before = _line(before, round(float(self._clock()), 3), REPAIRED, repaired)
                lines = b"\n" + line
            line, _ = _line(before, round(float(self._clock()), 3), event, facts)
            content = lines + line
            if os.write(descriptor, content) != len(content):
                raise OSError(f"{self._path}: the disk took only a part of a line")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log, oldest first; a torn one is left out (the next one speaks of it)."""
    return (record for _, record in _lines(path) if record is not None)


def verify(path: Path) -> int:
    """Check the chain and return the number of lines.

    Raises:
        RunError: naming the first line that is broken.
    """
    before, torn, lines = "", b"", list(_lines(path))
    for number, (content, record) in enumerate(lines, 1):
        found = record or {}
        if torn and (found.get("event"), found.get("torn")) != (REPAIRED, _hash(torn)):
            raise _broken(path, number - 1)
        torn = content if record is None else b""
        if record is None:
            continue
        if record.get("before") != before or record["hash"] != _own_hash(record):
            raise _broken(path, number)
        before = record["hash"]
    if torn:
        raise _broken(path, len(lines))
    return len(lines)


def _broken(path: Path, number: int) -> RunError:
    return RunError(
        f"{path}: line {number} is broken: it, or the one before it, was changed, taken out or put "
        "in; compare with a copy"
    )


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Every line as it is, and what it holds, None when it cannot be read."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error})") from None
    for line in content.split(b"\n")[: None if not content.endswith(b"\n") else -1]:
        yield line, _parse(line)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("hash"), str) else None


def _tail(descriptor: int) -> tuple[str, bytes]:
    """Hash of the last whole line, and what a crash left of a line after it."""
    size = os.fstat(descriptor).st_size
    start = max(size - TAIL_BYTES, 0)
    lines = os.pread(descriptor, TAIL_BYTES, start).split(b"\n")
    torn = lines.pop()
    for line in reversed(lines):
        record = _parse(line)
        if record is not None:
            return record["hash"], torn
    return "", torn


def _line(before: str, now: float, event: str, facts: dict[str, Any]) -> tuple[bytes, str]:
    cut = {
        name: value[:LONGEST_TEXT] if isinstance(value, str) else value
        for name, value in facts.items()
    }
    record = {"time": now, "event": event[:LONGEST_TEXT], **cut, "before": before}
    found = _own_hash(record)
    return json.dumps({**record, "hash": found}, allow_nan=False).encode() + b"\n", found


def _own_hash(record: dict[str, Any]) -> str:
    content = {name: value for name, value in record.items() if name != "hash"}
    return _hash(json.dumps(content, sort_keys=True).encode())


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
