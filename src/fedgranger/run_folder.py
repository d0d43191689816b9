"""The run folder: every file appears whole, is listed with its hash, and is checked when read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.disk import write_atomically, write_text
from fedgranger.errors import RunError
from fedgranger.manifest_types import FORMAT, Manifest
from fedgranger.typed_facts import check_types

MANIFEST = "manifest.json"
CHECKPOINT = "checkpoint"
"""What an interrupted run continues from; gone once it is whole."""
FORMER = "checkpoint.npz"
"""What a checkpoint was called when it had a format of its own."""
OF_OLDER_VERSION = (
    f"an interrupted run of an older version ({FORMER}); continue it with that version, or use "
    "--overwrite to start again"
)
FILES = "files"
"""Key of the manifest: SHA-256 of every file, by name."""
OWN_HASH = "sha256"
"""Key of the manifest: SHA-256 of all else in it, as JSON with sorted keys."""
RESTORE = "restore it or run the fit again"
NAME_COLUMNS = ("cause", "effect", "client")
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
        write_text(self._path / name, text)
        self._hashes[name] = _hash(self._path / name)

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Write a table for people and spreadsheets."""
        self.write(name, lambda path: save_table(path, table))

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
        whole = json.loads(json.dumps({**manifest, FILES: self._hashes}))
        whole[OWN_HASH] = _own_hash(whole)
        self.write_text(MANIFEST, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """The record of a run, once it and every file that it lists are what the run wrote.

    Earlier versions wrote no hash of the manifest, the first ones none at all.

    Raises:
        RunError: the manifest or a file is missing or was changed, or a later version wrote it.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # no JSON, or no text
        manifest = None
    if not isinstance(manifest, dict) or not manifest:
        raise RunError(f"{path}: is not what the run wrote; {RESTORE}")
    if OWN_HASH in manifest and manifest[OWN_HASH] != _own_hash(manifest):
        raise RunError(f"{path}: is not what the run wrote; {RESTORE}")
    hashes = manifest.get(FILES, {})
    for name, known in hashes.items() if isinstance(hashes, dict) else ():
        path = folder / name
        if not path.is_file():
            raise RunError(f"{path}: is missing; {RESTORE}")
        if _hash(path) != known:
            raise RunError(f"{path}: is not what the run wrote; {RESTORE}")
    version = manifest.get("format", 1)
    if not isinstance(version, int) or version > FORMAT:
        raise RunError(
            f"{folder / MANIFEST}: has format {version}, this version of fedgranger reads formats "
            f"up to {FORMAT}; read it with the version that wrote it"
        )
    try:
        record = Manifest.of(manifest)
        check_types(record, Manifest, "its record")
    except (AttributeError, TypeError, ValueError) as error:
        what = f" ({error})" if isinstance(error, TypeError) else ""
        raise RunError(f"{folder / MANIFEST}: is not what the run wrote{what}; {RESTORE}") from None
    return record


def save_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table for people and spreadsheets."""
    without_formulas(table).to_csv(path, index=False)


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """The names of a table as plain cells."""
    out = table.copy()
    for name in [name for name in out.columns if name in NAME_COLUMNS]:
        out[name] = [plain_cell(str(cell)) for cell in out[name]]
    return out


def plain_cell(text: str) -> str:
    """A name that a spreadsheet would compute, such as "=1+1", behind an apostrophe."""
    return f"'{text}" if text.startswith(FORMULA) else text


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as .npz; the path's own name stays, to which np.savez would append .npz."""
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def with_formulas(table: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Undo `without_formulas`, for clients with these names."""
    out, known = table.copy(), {plain_cell(name): name for name in names}
    for name in [name for name in out.columns if name in NAME_COLUMNS]:
        out[name] = [known.get(cell, cell) for cell in out[name]]
    return out


def _own_hash(manifest: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in manifest.items() if name != OWN_HASH}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
