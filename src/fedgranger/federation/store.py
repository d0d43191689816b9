"""A party's own disk: a record is written whole or not at all, and survives a crash.

The order (write beside, flush, rename, flush the folder) is what makes that true; the fault
simulation runs the same `Store` on a disk that loses whatever was not flushed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fedgranger.disk import create_private, flush_to_disk
from fedgranger.errors import FedGrangerError
from fedgranger.federation.codec import MessageError, pack, unpack

Record = tuple[dict[str, Any], dict[str, np.ndarray]]
"""Values and arrays."""


@runtime_checkable
class Files(Protocol):
    """The few operations on one folder that `Store` needs."""

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None when there is none."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write a file; a crash may lose or tear it until it is flushed."""
        ...

    def flush(self, name: str) -> None:
        """Force a file's content to the disk."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what had it."""
        ...

    def flush_folder(self) -> None:
        """Force renames to the disk."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from changing what is read and then written."""
        ...


class DiskFiles:
    """A folder of the real disk, readable by its owner only."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None when there is none."""
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        create_private(self._folder / name, content)

    def flush(self, name: str) -> None:
        """Force a file's content to the disk."""
        flush_to_disk(self._folder / name)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name."""
        os.replace(self._folder / source, self._folder / target)

    def flush_folder(self) -> None:
        """Force renames to the disk."""
        flush_to_disk(self._folder)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Wait until no other process holds the folder's lock; a crash releases it."""
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


class Store:
    """Named records of values and arrays."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def locked(self) -> AbstractContextManager[None]:
        """Hold this while a record is read and then written; two runs may go on at once."""
        return self._files.locked()

    def save(self, name: str, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Replace a record; when this returns, it survives a crash."""
        self._files.write(f"{name}.new", pack({"values": dict(values)}, arrays))
        self._files.flush(f"{name}.new")
        self._files.rename(f"{name}.new", name)
        self._files.flush_folder()

    def load(self, name: str, *, if_damaged: FedGrangerError | None = None) -> Record | None:
        """Return a record; None when there is none or the disk has damaged it.

        Raises:
            FedGrangerError: `if_damaged`, where damaged is not like none.
        """
        content = self._files.read(name)
        if content is None:
            return None
        try:
            header, arrays = unpack(content, largest_header=len(content))
            return header["values"], arrays
        except (MessageError, KeyError):
            if if_damaged is not None:
                raise if_damaged from None
            return None


class NoRecords(Store):
    """For a run that begins anew whenever it is started."""

    def __init__(self) -> None:
        pass

    def save(self, name: str, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Keep nothing."""

    def load(self, name: str, *, if_damaged: FedGrangerError | None = None) -> Record | None:
        """There is none."""
