"""Find and read publishers' files: every defect is one sentence with file, found and needed."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from fedgranger.errors import DataError

POINTER = b"version https://git-lfs"
BLOCK_BYTES = 1 << 20


def check_folder(name: str, path: Path, needed: str) -> Path:
    """Refuse a path that is not a folder."""
    if not path.exists():
        raise DataError(f"'{path}' does not exist; {name} needs a folder with {needed}")
    if not path.is_dir():
        raise DataError(f"'{path}' is a file; {name} needs the folder with {needed}")
    return path


def find_file(folder: Path, names: Sequence[str], needed: str) -> Path:
    """Return the first of these files that exists."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    listed = " or ".join(f"'{name}'" for name in names)
    raise DataError(
        f"folder '{folder}' holds no {listed} (found: {shown(_listing(folder))}); it is needed as "
        f"{needed}, so put it there"
    )


def shown(names: Sequence[str], most: int = 8) -> str:
    """Join names, cut where the list gets long."""
    if not names:
        return "nothing"
    more = f", … ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@lru_cache(maxsize=512)
def _sha256(path: Path, _size: int, _changed: int) -> str:
    digest = hashlib.sha256()
    with open_plain(path) as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def open_plain(path: Path) -> IO[bytes]:
    """Open a file for reading bytes, unpacked when it is a .gz."""
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def check_hashes(
    folder: Path,
    paths: Mapping[str, Path],
    published: Mapping[str, str],
    *,
    accept_changed: bool,
    notes: list[str],
) -> dict[str, str]:
    """Refuse a file that is not byte for byte the published one, where its hash is known.

    Args:
        folder: hashes may be stated in a `SHA256SUMS` there or in the folder above.
        paths: name -> file.
        published: name -> SHA-256 as the publisher states it.
        accept_changed: read a changed file all the same, with a note.
        notes: receives what was accepted.

    Returns:
        name -> SHA-256 of the content, unpacked where it is a .gz.
    """
    listed = _listed_hashes(folder)
    hashes = {}
    for name, path in paths.items():
        status = path.stat()
        with one_sentence(path):
            hashes[name] = found = _sha256(path, status.st_size, status.st_mtime_ns)
        needed = listed.get(str(path)) or published.get(name)
        if needed is None or found == needed:
            continue
        fact = f"'{path}' has the hash {found}, the published file has {needed}"
        if not accept_changed:
            raise DataError(
                f"{fact}; get the file again, or accept a changed one with accept_changed=True "
                "(--accept-changed)"
            )
        notes.append(f"{fact}; it was read all the same (--accept-changed)")
    return hashes


def _listed_hashes(folder: Path) -> dict[str, str]:
    """Read a `SHA256SUMS` file in or above the folder: path of the file -> hash."""
    table = {}
    for base in (folder, folder.parent):
        listing = base / "SHA256SUMS"
        if listing.is_file():
            for line in listing.read_text(encoding="utf-8").splitlines():
                value, _, name = line.partition("  ")
                table[str(base / name.strip())] = value
    return table


@contextmanager
def one_sentence(path: Path) -> Iterator[None]:
    """Turn what a broken file raises into one sentence."""
    try:
        yield
    except DataError:
        raise
    except (EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"'{path}' is not a complete gzip file; get it again") from error
    except OSError as error:
        detail = error.strerror or "damaged file"
        raise DataError(f"'{path}' cannot be read ({detail}); get it again") from error
    except (pa.ArrowException, ValueError) as error:
        detail = str(error).splitlines()[0][:160]
        raise DataError(f"'{path}' cannot be read as a table ({detail}); get it again") from error


def check_not_pointer(path: Path) -> None:
    """Refuse the small text that a clone without git-lfs leaves in place of a large file."""
    with one_sentence(path), path.open("rb") as file:
        start = file.read(len(POINTER))
    if start == POINTER:
        raise DataError(
            f"'{path}' is a git-lfs pointer of {path.stat().st_size} bytes, not the data; run "
            "'git lfs pull' in the clone or download the file itself"
        )
    if not start:
        raise DataError(f"'{path}' is empty; get it again")


def read_matrix(
    path: Path, shapes: Sequence[tuple[int, int]], *, delimiter: str | None
) -> np.ndarray:
    """Read numbers without a header.

    Args:
        path: the text file.
        shapes: the (rows, columns) that are right; 0 rows means any number of them.
        delimiter: "," or None for white space.
    """
    check_not_pointer(path)
    with one_sentence(path):
        if delimiter is None:
            values = np.loadtxt(path, ndmin=2)
        else:
            values = _read_plain_csv(path, delimiter)
    if not any(values.shape[1] == d and rows in (0, len(values)) for rows, d in shapes):
        needed = " or ".join(f"{rows or 'any number of'} x {d}" for rows, d in shapes)
        raise DataError(
            f"'{path}' holds {len(values)} x {values.shape[1]} numbers, {needed} (rows x columns) "
            "are needed; get the file again"
        )
    check_finite(path, values)
    return values


def _read_plain_csv(path: Path, delimiter: str) -> np.ndarray:
    with path.open("rb") as file:
        width = file.readline().count(delimiter.encode()) + 1
    names = [str(position + 1) for position in range(width)]
    table = arrow_csv.read_csv(
        path,
        arrow_csv.ReadOptions(column_names=names, use_threads=False),
        arrow_csv.ParseOptions(delimiter=delimiter),
        arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.float64())),
    )
    values = np.empty((table.num_rows, width))
    for position, name in enumerate(names):
        values[:, position] = table[name].to_numpy()
    return values


def check_finite(path: Path, values: np.ndarray, columns: Sequence[str] | None = None) -> None:
    """Refuse missing and infinite values: the published files have none."""
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = (int(k) for k in np.argwhere(bad)[0])
        name = f"'{columns[column]}'" if columns else str(column + 1)
        raise DataError(
            f"'{path}', data row {row + 1}, column {name}: found {values[row, column]}, a finite "
            "number is needed (the published file has no gaps); get the file again"
        )


def read_csv(path: Path, *, delimiter: str, numeric: Sequence[str] | None = None) -> pa.Table:
    """Read a csv with a header, plain or .gz; `numeric` columns must be numbers."""
    check_not_pointer(path)
    types = {} if numeric is None else dict.fromkeys(numeric, pa.float64())
    with one_sentence(path), open_plain(path) as file:
        return arrow_csv.read_csv(
            file,
            arrow_csv.ReadOptions(use_threads=False),
            arrow_csv.ParseOptions(delimiter=delimiter),
            arrow_csv.ConvertOptions(column_types=types, timestamp_parsers=[]),
        )
