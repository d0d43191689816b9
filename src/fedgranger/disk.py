"""Files that appear whole and survive a crash."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary neighbour, then rename it: readers never see half a file.

    When this returns, the file survives a crash.
    """
    temporary = path.with_name(f".{path.name}.{threading.get_native_id()}.partial")
    try:
        write(temporary)
        flush_to_disk(temporary)
        os.replace(temporary, path)
        _flush_folder(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text in the same way, its line ends as they are."""
    write_atomically(path, lambda part: part.write_bytes(text.encode("utf-8")))


def append_line(path: Path, line: str) -> None:
    """Append a line, which survives a crash when this returns; a torn one before it ends there."""
    is_new = not path.exists()
    with path.open("a+b") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        torn = b"" if file.read(1) in (b"", b"\n") else b"\n"
        file.write(torn + line.encode("utf-8") + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        _flush_folder(path)


def create_private(path: Path, content: bytes) -> None:
    """Write a file for its owner only, whatever the umask; no part of it stays where that fails."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def flush_to_disk(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(path: Path) -> None:
    if os.name == "posix":
        flush_to_disk(path.parent)
