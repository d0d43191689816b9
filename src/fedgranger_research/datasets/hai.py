"""HAI: a boiler, a turbine and a water treatment coupled by a simulated power plant, every second.

Files `train*.csv` and `test*.csv` (also .csv.gz; `hai-train*.csv` in 23.05). Version 20.07
separates cells by semicolons and names its clock `time`, later ones use commas and `time` or
`timestamp`. Tags begin with their process (`P1_B2004`), but for seven of the boiler's controller
in 23.05 (`x1001_05_SETPOINT_OUT`). 20.07 and 21.03 mark attacks in `attack`
and, per process, `attack_P1` to `attack_P3`; 22.04 only in `Attack`; 23.05 in `label-test*.csv`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedgranger.errors import DataError
from fedgranger_research.datasets import files
from fedgranger_research.datasets.contents import DatasetInfo, Options, Recording, Source
from fedgranger_research.datasets.hai_attacks import find_attacks
from fedgranger_research.datasets.hai_files import find_files, label_file, process_of, read_file
from fedgranger_research.datasets.known_hashes import HAI_SHA256

INFO = DatasetInfo(
    name="hai",
    title="HAI, HIL-based augmented ICS security data set (20.07, 21.03, 22.04, 23.05)",
    address="https://github.com/icsdataset/hai, or Kaggle icsdataset/hai-security-dataset",
    licence="CC BY-SA 4.0 by the manual (the repository's metadata say CC BY 4.0)",
    citations=(
        "H.-K. Shin, W. Lee, J.-H. Yun and H. Kim, HAI 1.0: HIL-based Augmented ICS Security "
        "Dataset, USENIX CSET 2020",
        "H.-K. Shin, W. Lee, J.-H. Yun and B.-G. Min, Two ICS Security Datasets and Anomaly "
        "Detection Contest on the HIL-based Augmented ICS Testbed, USENIX CSET 2021",
    ),
    files=(
        "one version's folder: train1.csv, train2.csv, … and test1.csv, … (.csv or .csv.gz); "
        "training files alone are normal operation without attacks",
        "20.07: time;P1_…;attack;attack_P1;attack_P2;attack_P3, separated by semicolons",
        "21.03: the same columns separated by commas; 22.04: timestamp,P1_…,Attack",
        "23.05: hai-train1.csv, … and hai-test1.csv, … with label-test1.csv, …",
        "22.04 and 23.05 are kept in git-lfs: a clone without it holds pointers, which are refused",
    ),
    clients="3: P1 (boiler), P2 (turbine), P3 (water treatment); the simulator P4 is left out",
    root_rule=(
        "20.07 and 21.03: the processes whose attack_P* column is set during the attack; 22.04 and "
        "23.05 name none, so give a table of attacks (--attacks FILE: start, end, root_clients)"
    ),
    caveats=(
        "the paper does not say which version it used, and none of its client splits is published",
        "training rows that are marked as attacks (train2 of 20.07 is reported to have 776) or "
        "that a test file has too (12 hours of train1 of 21.03 are reported to be in test3) are "
        "left out, and the jump starts a new segment",
        "P4 is never attacked and has no label; --assign-p4 gives P4_ST_* to P2 and P4_HT_* to P3",
        "haiend-23.05 (internal control signals) is another data set and is refused",
    ),
    options=("assign_p4", "attacks", "accept_changed"),
)


def make_partition(columns: tuple[str, ...], *, assign_p4: bool) -> dict[str, tuple[str, ...]]:
    """Give every tag to its process, those of the simulator to none unless `assign_p4`."""
    simulated = {"P2": "P4_ST_", "P3": "P4_HT_"} if assign_p4 else {}
    return {
        client: tuple(
            name
            for name in columns
            if process_of(name) == client or name.startswith(simulated.get(client, "none"))
        )
        for client in ("P1", "P2", "P3")
    }


def read(path: Path, options: Options) -> Source:
    """Read one version's files; training files alone are normal operation only."""
    notes: list[str] = []
    paths = find_files(path)
    hashes: dict[str, str] = {}
    train: list[Recording] = []
    runs: list[Recording] = []
    processes: dict[str, np.ndarray] = {}
    version, columns = "", ()
    for done, (name, file) in enumerate(paths.items()):
        recording, flags, kind = read_file(name, file)
        hashes |= _check_hashes(file, kind, options, notes)
        options.report("reading", done + 1, len(paths))
        if columns not in ((), recording.columns):
            raise DataError(
                f"'{file}' is of version {kind}, the files before it are of {version} with other "
                "columns; give a folder with the files of one version"
            )
        version, columns = kind, recording.columns
        if recording.split == "train":
            train.append(recording)
        else:
            runs.append(recording)
            processes[name] = flags
    if not runs:
        notes.append("no test files: normal operation only, no attacks")
    train = [_normal_rows(recording, runs, notes) for recording in train]
    anomalies = find_attacks(runs, processes, options.attacks, notes)
    train.sort(key=lambda recording: recording.time[0])
    runs.sort(key=lambda recording: recording.time[0])
    partition = make_partition(columns, assign_p4=options.assign_p4)
    return Source(version, train, runs, anomalies, partition, hashes, notes)


def _check_hashes(path: Path, version: str, options: Options, notes: list[str]) -> dict[str, str]:
    """Compare the file, and its file of labels, with the published hashes."""
    found = (path, label_file(path))
    paths = {file.name: file for file in found if file is not None and file.is_file()}
    published = {
        name: HAI_SHA256[key]
        for name in paths
        if (key := f"hai-{version}/{name.removesuffix('.gz')}") in HAI_SHA256
    }
    accept = options.accept_changed
    return files.check_hashes(path.parent, paths, published, accept_changed=accept, notes=notes)


def _normal_rows(recording: Recording, runs: list[Recording], notes: list[str]) -> Recording:
    """Leave out training rows that are marked as attacks or that a test file has too."""
    labels = recording.labels
    is_attack = np.zeros(len(recording.time), np.bool_) if labels is None else labels == 1
    in_test = np.zeros(len(recording.time), np.bool_)
    for run in runs:
        in_test |= np.isin(recording.time, run.time, assume_unique=True)
    for rows, reason in ((is_attack, "are marked as attacks"), (in_test, "are in a test file too")):
        if rows.any():
            notes.append(
                f"{recording.name}: {int(rows.sum())} of {len(rows)} training rows {reason} and "
                "were left out; the jump in time starts a new segment"
            )
    keep = ~(is_attack | in_test)
    if not keep.any():
        raise DataError(
            f"{recording.name}: every row is marked as an attack or is in a test file; training "
            "files with normal operation are needed, so look whether the files are mixed up"
        )
    if keep.all():
        return recording._replace(labels=None)
    return recording._replace(time=recording.time[keep], values=recording.values[keep], labels=None)
