"""The run folder: every file appears whole, is listed with its hash, and is checked when read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.errors import RunError

MANIFEST = "manifest.json"
FILES = "files"
"""Key of the manifest: SHA-256 of every file, by name."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet computes a cell that begins like this."""


class RunFolder:
    """Writes a run folder, the manifest last."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._hashes: dict[str, str] = {}

    def write(self, name: str, write: Callable[[Path], object]) -> None:
        """Write a file and note its hash."""
        write_atomically(self._path / name, write)
        self._hashes[name] = _hash(self._path / name)

    def write_text(self, name: str, text: str) -> None:
        """Write a text file and note its hash."""
        self.write(name, lambda path: path.write_text(text, encoding="utf-8"))

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Write a table for people and spreadsheets."""
        self.write(name, lambda path: without_formulas(table).to_csv(path, index=False))

    def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write arrays as .npz and note the file's hash."""
        self.write(name, lambda path: save_arrays(path, arrays))

    def remove_others(self, *names: str) -> None:
        """Remove files of an earlier run that this one did not write."""
        for name in names:
            if name not in self._hashes:
                (self._path / name).unlink(missing_ok=True)

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest with the hashes; only then the folder is a run."""
        whole = {**manifest, FILES: self._hashes}
        self.write_text(MANIFEST, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def check_files(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Compare every file that the manifest lists with its hash; earlier versions list none.

    Raises:
        RunError: one is missing or not what the run wrote.
    """
    for name, known in manifest.get(FILES, {}).items():
        path = folder / name
        if not path.is_file():
            raise RunError(f"{path}: is missing; restore it or run the fit again")
        if _hash(path) != known:
            raise RunError(
                f"{path}: is not what the run wrote (its SHA-256 is another one than in "
                f"{MANIFEST}); restore it or run the fit again"
            )


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """The names of a table as plain cells."""
    out = table.copy()
    for name in [name for name in out.columns if name in ("cause", "effect", "client")]:
        out[name] = [plain_cell(str(cell)) for cell in out[name]]
    return out


def plain_cell(text: str) -> str:
    """A name that a spreadsheet would compute, such as "=1+1", behind an apostrophe."""
    return f"'{text}" if text.startswith(FORMULA) else text


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as .npz; the path's own name stays, to which np.savez would append .npz."""
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary neighbour, then rename it: readers never see half a file.

    When this returns, the file survives a crash.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(temporary)
        flush_to_disk(temporary)
        os.replace(temporary, path)
        if os.name == "posix":
            flush_to_disk(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def flush_to_disk(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
