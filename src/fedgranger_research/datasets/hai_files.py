"""Find and read the files of one version of HAI."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from fedgranger.errors import DataError
from fedgranger_research.datasets import files
from fedgranger_research.datasets.contents import Recording

CLOCKS = ("time", "timestamp")
LABEL = re.compile(r"(?i)attack(_p\d)?")
TAG = re.compile(r"(P[1-4]|x1\d{3})_\w+")
DATA_FILE = re.compile(r"(hai-)?(train|test)(\d+)\.csv(\.gz)?")
TAG_COUNTS = {
    "20.07": (31, 12, 5, 11),
    "21.03": (38, 22, 7, 12),
    "22.04": (44, 24, 7, 11),
    "23.05": (44, 24, 7, 11),
}
"""Tags of P1, P2, P3 and P4 per version; 22.04 and 23.05 are told apart by their file names. In
23.05 seven tags of the boiler's controller (x1001_05_SETPOINT_OUT, …) count as P1."""


def find_files(path: Path) -> dict[str, Path]:
    """Map train1, …, test1, … to the files of the folder, training first.

    Without test files there is normal operation only.
    """
    needed = "train1.csv, … and, for attacks, test1.csv, … (or .csv.gz) of one version"
    files.check_folder("hai", path, needed)
    names = sorted(entry.name for entry in path.iterdir())
    found: dict[tuple[str, int], Path] = {}
    for name in names:  # .csv comes before .csv.gz and is preferred
        match = DATA_FILE.fullmatch(name)
        if match:
            found.setdefault((match[2], int(match[3])), path / name)
    if "train" not in {split for split, _ in found}:
        versions = [name for name in names if name.startswith("hai-")]
        hint = f"; pass one version's folder, such as {versions[0]}" if versions else ""
        raise DataError(
            f"folder '{path}' holds {files.shown(names)}; hai needs {needed}"
            f"{hint or '; put them there'}"
        )
    ordered = sorted(found, key=lambda key: (key[0] == "test", key[1]))
    return {f"{split}{number}": found[split, number] for split, number in ordered}


def read_file(name: str, path: Path) -> tuple[Recording, np.ndarray, str]:
    """Return the recording, bool (time, 3) which processes are attacked, and the version."""
    header, delimiter = _header(path)
    clock = next((column for column in header if column.lower() in CLOCKS), None)
    tags = tuple(column for column in header if TAG.fullmatch(column))
    counts = tuple(sum(process_of(tag) == f"P{k}" for tag in tags) for k in range(1, 5))
    versions = [version for version, known in TAG_COUNTS.items() if known == counts]
    others = [c for c in header if c != clock and c not in tags and not LABEL.fullmatch(c)]
    if clock is None or not versions or others:
        known = ", ".join(f"{v}: {'/'.join(map(str, c))}" for v, c in TAG_COUNTS.items())
        odd = f" and the unknown column '{others[0]}'" if others else ""
        raise DataError(
            f"'{path}' has {'no ' if clock is None else 'a '}clock and "
            f"{'/'.join(map(str, counts))} tags of P1/P2/P3/P4{odd} (separator '{delimiter}'); a "
            f"column time or timestamp and the tags of one version ({known}) are needed"
        )
    version = "23.05" if path.name.startswith("hai-") else versions[0]
    table = files.read_csv(path, delimiter=delimiter, numeric=tags)
    values = np.empty((table.num_rows, len(tags)))
    for position, tag in enumerate(tags):
        values[:, position] = table[tag].to_numpy()
    files.check_finite(path, values, tags)
    time = _times(path, table[clock])
    labels, flags = _read_labels(path, table, len(time))
    split = "test" if name.startswith("test") else "train"
    return Recording(name, split, time, tags, values, labels), flags, version


def _header(path: Path) -> tuple[list[str], str]:
    files.check_not_pointer(path)
    with files.one_sentence(path), files.open_plain(path) as file:
        line = file.readline(100_000).decode("utf-8-sig").strip()
    delimiter = ";" if line.count(";") > line.count(",") else ","
    return [name.strip('"') for name in line.split(delimiter)], delimiter


def _times(path: Path, column: pa.ChunkedArray) -> np.ndarray:
    texts = [str(text) for text in column.to_pylist()]
    stamps = pd.to_datetime(pd.Series(texts), format="%Y-%m-%d %H:%M:%S", errors="coerce")
    if stamps.isna().any():
        row = int(np.argmax(stamps.isna()))
        raise DataError(
            f"'{path}', data row {row + 1}: the time is '{texts[row]}', one like "
            "'2019-09-11 20:00:00' is needed; get the file again"
        )
    time = stamps.to_numpy().astype("datetime64[ns]")
    if (time[1:] <= time[:-1]).any():
        row = int(np.argmax(time[1:] <= time[:-1])) + 1
        raise DataError(
            f"'{path}', data row {row + 1}: the time {time[row]} does not follow {time[row - 1]}; "
            "rows in order of time are needed, so get the file again"
        )
    return time


def _read_labels(path: Path, table: pa.Table, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Attack or not per row, and per row and process where the file says it."""
    names = {name.lower(): name for name in table.column_names}
    if "attack" in names:
        labels = table[names["attack"]].to_numpy()
    elif "test" in path.name:
        file = label_file(path)
        if file is None or not file.is_file():
            also = f" and there is no '{file.name}' beside it" if file else ""
            raise DataError(
                f"'{path}' has no column attack{also}; labels of the test files are needed, so "
                "get the complete files"
            )
        labels, path = _label_column(file), file
    else:
        labels = np.zeros(num_rows)
    if len(labels) != num_rows or not np.isin(labels, (0, 1)).all():
        raise DataError(
            f"'{path}': {len(labels)} labels with values {sorted(set(np.unique(labels)))[:4]}, "
            f"{num_rows} labels that are 0 or 1 are needed; get the file again"
        )
    flags = np.zeros((num_rows, 3), np.bool_)
    for k in range(3):
        if f"attack_p{k + 1}" in names:
            flags[:, k] = table[names[f"attack_p{k + 1}"]].to_numpy() == 1
    return labels.astype(np.int8), flags


def _label_column(path: Path) -> np.ndarray:
    table = files.read_csv(path, delimiter=",")
    if "label" not in table.column_names:
        raise DataError(
            f"'{path}' has the columns {files.shown(table.column_names)}; timestamp,label is "
            "needed, so get the file again"
        )
    return table["label"].to_numpy()


def process_of(tag: str) -> str:
    """The process a tag belongs to."""
    return "P1" if tag.startswith("x") else tag[:2]


def label_file(path: Path) -> Path | None:
    """Name of the file of labels that belongs to a test file of 23.05."""
    match = re.fullmatch(r"hai-test(\d+)\.csv(\.gz)?", path.name)
    return path.with_name(f"label-test{match[1]}.csv") if match else None
