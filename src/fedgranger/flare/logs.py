"""Log files of limited size that only their owner can read, and that a full disk does not stop."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

LARGEST_BYTES = 5_000_000
KEPT_FILES = 3


def rotate(path: Path, largest_bytes: int = LARGEST_BYTES, kept: int = KEPT_FILES) -> bool:
    """Move a file that is too large aside: `name.1.txt` is newer than `name.2.txt`.

    Safe for a writer that opens the file for every line.

    Returns:
        Whether it was moved.
    """
    try:
        if path.stat().st_size < largest_bytes:
            return False
    except OSError:
        return False
    names = [path, *(path.with_suffix(f".{number}{path.suffix}") for number in range(1, kept + 1))]
    for newer, older in reversed(list(itertools.pairwise(names))):
        with contextlib.suppress(FileNotFoundError):
            newer.replace(older)
    return True


class RotatingFile:
    """Appends bytes to a file and moves it aside when it is large.

    Attributes:
        problem: why the last write failed ("" if it did not); the bytes are then lost.
    """

    def __init__(
        self, path: Path, largest_bytes: int = LARGEST_BYTES, kept: int = KEPT_FILES
    ) -> None:
        self._path, self._largest, self._kept = path, largest_bytes, kept
        self.problem = ""

    def write(self, data: bytes) -> None:
        """Append; never raises."""
        try:
            rotate(self._path, self._largest, self._kept)
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                while data:
                    data = data[os.write(file, data) :]
            finally:
                os.close(file)
            self.problem = ""
        except OSError as error:
            self.problem = f"{self._path}: {error.strerror or error}"
