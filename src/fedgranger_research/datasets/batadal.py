"""BATADAL: the C-Town water network of the battle of the attack detection algorithms.

Three hourly csv files with 43 signals; names of columns may be padded with blanks and times are
written day/month/year hour (`04/07/16 00`). In the files of the competition `ATT_FLAG` is -999
where nobody says whether there is an attack, and absent in the test file; the authors' later
release is labelled. Labels here always follow the published windows of the 14 attacks.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from fedgranger.errors import DataError
from fedgranger_research.datasets import files
from fedgranger_research.datasets.contents import Anomaly, DatasetInfo, Options, Recording, Source

_PUMPS = tuple(name for k in range(1, 12) for name in (f"F_PU{k}", f"S_PU{k}"))
_JUNCTIONS = (280, 269, 300, 256, 289, 415, 302, 306, 307, 317, 14, 422)
COLUMNS = (
    *(f"L_T{k}" for k in range(1, 8)),
    *_PUMPS,
    "F_V2",
    "S_V2",
    *(f"P_J{k}" for k in _JUNCTIONS),
)


def _pumps(*numbers: int) -> tuple[str, ...]:
    return tuple(name for k in numbers for name in (f"F_PU{k}", f"S_PU{k}"))


def _pressures(*numbers: int) -> tuple[str, ...]:
    return tuple(f"P_J{k}" for k in numbers)


PARTITION = {
    "source_T1": ("L_T1", *_pumps(1, 2, 3), *_pressures(280, 269)),
    "zone_PLC3": (
        "L_T2", "L_T3", "L_T4", *_pumps(4, 5, 6, 7), "F_V2", "S_V2",
        *_pressures(300, 256, 289, 415, 14, 422),
    ),
    "zone_PLC5": ("L_T5", "L_T6", "L_T7", *_pumps(8, 9, 10, 11), *_pressures(302, 306, 307, 317)),
}  # fmt: skip
"""Controllers that exchange readings belong together: PLC 1+2, PLC 3+4+6 and PLC 5+7+8+9."""


class Attack(NamedTuple):
    """One attack: first and last hour (both included) and the signals it was aimed at."""

    start: str
    end: str
    root_columns: tuple[str, ...]
    confidence: str
    description: str


ATTACKS = (
    Attack("2016-09-13T23", "2016-09-16T00", ("L_T7",), "high", "thresholds of PU10 and PU11"),
    Attack("2016-09-26T11", "2016-09-27T10", ("L_T7",), "high", "as attack 1, more replay"),
    Attack("2016-10-09T09", "2016-10-11T20", ("L_T1",), "high", "false L_T1, T1 overflows"),
    Attack("2016-10-29T19", "2016-11-02T16", ("L_T1",), "high", "as attack 3 with replay"),
    Attack("2016-11-26T17", "2016-11-29T04", _pumps(7), "high", "PU7 slowed to 0.9"),
    Attack("2016-12-06T07", "2016-12-10T04", _pumps(7), "high", "PU7 slowed to 0.7, replay"),
    Attack("2016-12-14T15", "2016-12-19T04", _pumps(7), "low", "like attack 6; target disputed"),
    Attack("2017-01-16T09", "2017-01-19T06", ("L_T3",), "high", "thresholds of PU4 and PU5"),
    Attack("2017-01-30T08", "2017-02-02T00", ("L_T2",), "high", "false L_T2, T2 overflows"),
    Attack("2017-02-09T03", "2017-02-10T09", _pumps(3), "high", "PU3 switched on"),
    Attack("2017-02-12T01", "2017-02-13T07", _pumps(3), "high", "as attack 10"),
    Attack("2017-02-24T05", "2017-02-28T08", ("L_T2",), "high", "as attack 9 with replay"),
    Attack("2017-03-10T14", "2017-03-13T21", ("L_T7",), "high", "thresholds of PU10 and PU11"),
    Attack("2017-03-25T20", "2017-03-27T01", ("L_T4",), "medium", "false T4 signal to PLC6"),
)


class _Part(NamedTuple):
    split: str
    name: str
    file_names: tuple[str, ...]
    start: str
    num_rows: int


PARTS = (
    _Part("train", "dataset03", ("dataset03.csv", "BATADAL_dataset03.csv"),
          "2014-01-06T00", 8761),
    _Part("train_attacks", "dataset04", ("dataset04.csv", "BATADAL_dataset04.csv"),
          "2016-07-04T00", 4177),
    _Part("test", "test_dataset", ("test_dataset.csv", "BATADAL_test_dataset.csv"),
          "2017-01-04T00", 2089),
)  # fmt: skip

INFO = DatasetInfo(
    name="batadal",
    title="BATADAL, attacks on the C-Town water network (hydraulic simulation)",
    address="https://www.batadal.net/data.html, labelled: https://github.com/rtaormina/aeed",
    licence="none stated; public, citation required; ask before you pass it on",
    citations=(
        "R. Taormina et al., The Battle of the Attack Detection Algorithms, Journal of Water "
        "Resources Planning and Management 144(8), 2018",
        "R. Taormina and S. Galelli, Journal of Water Resources Planning and Management "
        "144(10), 2018",
    ),
    files=tuple(
        f"{' or '.join(part.file_names)}: {part.num_rows} hourly rows from {part.start}:00, "
        f"DATETIME (dd/mm/yy HH), 43 signals, ATT_FLAG"
        for part in PARTS
    ),
    clients="3: " + ", ".join(PARTITION),
    root_rule="the client that owns the signal the attack was aimed at; every attack has one",
    caveats=(
        "it is not HAI and must not be reported under that name",
        "its signals come from a simulation (epanetCPA), not from a plant",
        "some attacks replay sensor values, so the attacked signal itself can look normal",
        "attack 7: sources disagree on the target (low confidence); attack 14: medium",
        "attacks 10 and 11 switch on PU3, which is constant in the training data and so dropped: "
        "they show in other signals of its client only",
        "the training year (2014) and the other files (2016, 2017) are separate periods",
    ),
    options=("accept_changed",),
)


def read(path: Path, options: Options) -> Source:
    """Read the three csv files."""
    folder = files.check_folder("batadal", path, "dataset03.csv, dataset04.csv, test_dataset.csv")
    notes: list[str] = []
    recordings: list[Recording] = []
    paths: dict[str, Path] = {}
    for done, part in enumerate(PARTS):
        file = files.find_file(folder, part.file_names, f"split '{part.split}' of BATADAL")
        paths[file.name] = file
        recordings.append(_read_part(part, file, notes))
        options.report("reading", done + 1, len(PARTS))
    accept = options.accept_changed
    hashes = files.check_hashes(folder, paths, {}, accept_changed=accept, notes=notes)
    anomalies = [
        anomaly
        for k, attack in enumerate(ATTACKS)
        for recording in recordings[1:]
        if (anomaly := _anomaly(k + 1, attack, recording)) is not None
    ]
    return Source(
        "published csv files", recordings[:1], recordings[1:], anomalies, PARTITION, hashes, notes
    )


def _read_part(part: _Part, path: Path, notes: list[str]) -> Recording:
    table = files.read_csv(path, delimiter=",")
    table = table.rename_columns([name.strip() for name in table.column_names])
    missing = [name for name in ("DATETIME", *COLUMNS) if name not in table.column_names]
    if missing:
        raise DataError(
            f"'{path}' has no column '{missing[0]}' (found: {files.shown(table.column_names)}); "
            "DATETIME, 43 signals (L_T1, …, P_J422) and ATT_FLAG, separated by commas, are needed"
        )
    time = _times(path, part, table["DATETIME"])
    for name in COLUMNS:
        if not (pa.types.is_floating(table[name].type) or pa.types.is_integer(table[name].type)):
            raise DataError(
                f"'{path}', column '{name}': found {table[name].type} cells, numbers are needed; "
                "get the file again"
            )
    values = np.column_stack([table[name].to_numpy().astype(np.float64) for name in COLUMNS])
    files.check_finite(path, values, COLUMNS)
    if part.split == "train":
        return Recording(part.name, part.split, time, COLUMNS, values)
    labels = _labels(path, table, time, notes)
    return Recording(part.name, part.split, time, COLUMNS, values, labels)


def _times(path: Path, part: _Part, column: pa.ChunkedArray) -> np.ndarray:
    """Check that the hours are exactly those of the published file."""
    texts = pd.Series(column.to_pylist(), dtype="str").str.strip()
    stamps = pd.to_datetime(texts, format="%d/%m/%y %H", errors="coerce")
    if stamps.isna().any():
        row = int(np.argmax(stamps.isna()))
        raise DataError(
            f"'{path}', data row {row + 1}: DATETIME is '{texts[row]}', day/month/year hour "
            "as in '04/07/16 00' is needed; get the file again"
        )
    found = stamps.to_numpy().astype("datetime64[h]")
    needed = np.datetime64(part.start, "h") + np.arange(part.num_rows)
    if len(found) != len(needed) or (found != needed).any():
        raise DataError(
            f"'{path}' has {len(found)} rows from {found[0]} to {found[-1]}, {part.num_rows} "
            f"hourly rows from {needed[0]} to {needed[-1]} are needed; get the file again"
        )
    return found.astype("datetime64[ns]")


def _labels(path: Path, table: pa.Table, time: np.ndarray, notes: list[str]) -> np.ndarray:
    labels = np.zeros(len(time), np.int8)
    for attack in ATTACKS:
        labels[_rows(attack, time)] = 1
    if "ATT_FLAG" not in table.column_names:
        notes.append(f"{path.name}: no ATT_FLAG; labels are the published windows of the attacks")
        return labels
    flags = table["ATT_FLAG"].to_numpy()
    unknown = int((flags == -999).sum())
    if unknown:
        notes.append(
            f"{path.name}: ATT_FLAG is -999 (not labelled) in {unknown} rows; labels are the "
            "published windows of the attacks"
        )
    contradicts = ((flags == 1) & (labels == 0)) | ((flags == 0) & (labels == 1))
    if contradicts.any():
        notes.append(
            f"{path.name}: ATT_FLAG and the published windows of the attacks differ in "
            f"{int(contradicts.sum())} rows; the windows were kept"
        )
    return labels


def _rows(attack: Attack, time: np.ndarray) -> np.ndarray:
    return (time >= np.datetime64(attack.start)) & (time <= np.datetime64(attack.end))


def _anomaly(number: int, attack: Attack, recording: Recording) -> Anomaly | None:
    inside = np.flatnonzero(_rows(attack, recording.time))
    if not len(inside):
        return None
    return Anomaly(
        f"batadal_{number:02d}",
        recording.split,
        recording.name,
        int(inside[0]),
        int(inside[-1]),
        attack.root_columns,
        attack.confidence,
        attack.description,
    )
