"""How far the reading of large files is; it never changes what is read.

The functions between a command and the reader of one block do not know of it: the reader finds
whoever follows it in a context variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

LEAST_BYTES = 2_000_000
"""Less is read in a moment."""
UNIT = 1_000_000
WHAT = "reading, MB"
Report = Callable[[str, int, int], None]


_follower: ContextVar[Callable[[Path, int], None] | None] = ContextVar("follower", default=None)


@contextmanager
def followed(report: Report | None, path: Path | None) -> Iterator[None]:
    """Report on reading a file, or the files of a folder, inside; not on small ones.

    Without a report or a path, whoever follows already goes on.
    """
    if report is None or path is None:
        yield
        return
    files = [path] if path.is_file() else [*path.glob("*")] if path.is_dir() else []
    sizes = {one: one.stat().st_size for one in files if one.is_file()}
    done, total = dict.fromkeys(sizes, 0), sum(sizes.values())

    def add(one: Path, count: int) -> None:
        if one in sizes:
            done[one] = min(done[one] + count, sizes[one])
            report(WHAT, sum(done.values()) // UNIT, total // UNIT)

    token = _follower.set(add if total >= LEAST_BYTES else None)
    try:
        yield
    finally:
        _follower.reset(token)


def add_bytes(path: Path, count: int) -> None:
    """So many bytes more of a file were read; nothing unless somebody follows."""
    add = _follower.get()
    if add is not None:
        add(path, count)
