"""SMD: the server machine data set of OmniAnomaly, 28 machines with 38 metrics per minute.

Below `ServerMachineDataset/` there is one text file per machine in each of `train`, `test`
(numbers separated by commas, no header), `test_label` (0 or 1 per line) and
`interpretation_label` (`15849-16368:1,9,10`: steps from-to, the second not included, and the
metrics at fault counted from 1).
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from fedgranger.errors import ConfigError, DataError
from fedgranger.text import did_you_mean
from fedgranger_research.datasets import files
from fedgranger_research.datasets.contents import Anomaly, DatasetInfo, Options, Recording, Source

COLUMNS = (
    "cpu_r", "load_1", "load_5", "load_15", "mem_shmem", "mem_u", "mem_u_e", "total_mem",
    "disk_q", "disk_r", "disk_rb", "disk_svc", "disk_u", "disk_w", "disk_wa", "disk_wb",
    "si", "so", "eth1_fi", "eth1_fo", "eth1_pi", "eth1_po", "tcp_tw", "tcp_use",
    "active_opens", "curr_estab", "in_errs", "in_segs", "listen_overflows", "out_rsts",
    "out_segs", "passive_opens", "retransegs", "tcp_timeouts", "udp_in_dg", "udp_out_dg",
    "udp_rcv_buf_errs", "udp_snd_buf_errs",
)  # fmt: skip
"""In the order of the files, as an author of the data set gave them (OmniAnomaly, issue 22)."""

PARTITION = {
    "cpu_load": COLUMNS[0:4],
    "memory": (*COLUMNS[4:8], "si", "so"),
    "disk": COLUMNS[8:16],
    "net_if_udp": (*COLUMNS[18:22], *COLUMNS[34:38]),
    "tcp": COLUMNS[22:34],
}
"""The subsystems of one server."""

INFO = DatasetInfo(
    name="smd",
    title="Server Machine Dataset (OmniAnomaly)",
    address="https://github.com/NetManAIOps/OmniAnomaly, folder ServerMachineDataset",
    licence="MIT (Copyright 2021 NetManAIOps-SMD)",
    citations=(
        "Y. Su, Y. Zhao, C. Niu, R. Liu, W. Sun and D. Pei, Robust Anomaly Detection for "
        "Multivariate Time Series through Stochastic Recurrent Neural Network, KDD 2019",
    ),
    files=(
        "train/machine-*.txt and test/machine-*.txt: 38 numbers per line separated by commas",
        "test_label/machine-*.txt: 0 or 1 per line of the test file",
        "interpretation_label/machine-*.txt: from-to:metrics per anomaly",
    ),
    clients="5 per machine: " + ", ".join(PARTITION),
    root_rule=(
        "root clients own a metric that the interpretation names; the primary one has the "
        "largest share of named metrics among its live ones (a rule of ours; ties are marked)"
    ),
    caveats=(
        "every machine is a data set of its own: no common clock, no known links between them",
        "2 to 10 metrics per machine are constant in the training data",
        "disk is the primary root of more than half of the anomalies of the 15 machines we "
        "checked, so always naming it scores 0.57 there: report that baseline",
        "an anomaly may lie inside another; a few labelled stretches have no interpretation",
    ),
    options=("machine", "accept_changed"),
)
FOLDERS = ("train", "test", "test_label", "interpretation_label")
SEGMENT = re.compile(r"(\d+)-(\d+):(\d+(?:,\d+)*)")


def machines(path: Path) -> tuple[str, ...]:
    """Names of the machines below the folder, in order of their numbers."""
    root = _root(path)
    names = {file.stem for file in (root / "train").glob("machine-*.txt")}
    if not names:
        raise DataError(
            f"folder '{root / 'train'}' holds no machine-*.txt; the 28 files of "
            "ServerMachineDataset/train are needed"
        )
    return tuple(sorted(names, key=lambda name: [int(k) for k in re.findall(r"\d+", name)]))


def _root(path: Path) -> Path:
    """Accept the repository or its ServerMachineDataset folder."""
    needed = "train, test, test_label and interpretation_label (ServerMachineDataset)"
    files.check_folder("smd", path, needed)
    root = path / "ServerMachineDataset" if (path / "ServerMachineDataset").is_dir() else path
    for name in FOLDERS:
        if not (root / name).is_dir():
            found = sorted(entry.name for entry in root.iterdir())
            raise DataError(
                f"folder '{root}' has no folder '{name}' (found: {files.shown(found)}); "
                f"{needed} are needed"
            )
    return root


def read(path: Path, options: Options) -> Source:
    """Read one machine."""
    root, known = _root(path), machines(path)
    machine = options.machine
    if machine is None:
        raise ConfigError(
            f"smd has {len(known)} machines ({known[0]} to {known[-1]}), each a data set of its "
            "own; name one with machine= (--machine) or go through them with iter_machines "
            "(--all)"
        )
    if machine not in known:
        raise ConfigError(
            f"there is no machine '{machine}' in '{root}'{did_you_mean(machine, known)}; it has "
            f"{files.shown(known, 30)}"
        )
    notes: list[str] = []
    train, test, labels, segments, paths = _read_machine(root, machine)
    accept = options.accept_changed
    hashes = files.check_hashes(root, paths, {}, accept_changed=accept, notes=notes)
    anomalies = [
        Anomaly(
            f"smd_{machine.removeprefix('machine-')}_{k + 1:02d}",
            "test",
            machine,
            start,
            stop - 1,
            tuple(COLUMNS[metric] for metric in metrics),
            "high",
            "metrics named in interpretation_label",
        )
        for k, (start, stop, metrics) in enumerate(segments)
    ]
    return Source(
        "published text files",
        [Recording(machine, "train", np.arange(len(train)), COLUMNS, train)],
        [Recording(machine, "test", np.arange(len(test)), COLUMNS, test, labels)],
        anomalies,
        PARTITION,
        hashes,
        notes,
        "share",
        machine,
    )


Segment = tuple[int, int, list[int]]
Parts = tuple[np.ndarray, np.ndarray, np.ndarray, list[Segment], dict[str, Path]]


def _read_machine(root: Path, machine: str) -> Parts:
    paths = {
        name: files.find_file(root / name, (f"{machine}.txt",), f"{name} of {machine}")
        for name in FOLDERS
    }
    train = files.read_matrix(paths["train"], [(0, 38)], delimiter=",")
    test = files.read_matrix(paths["test"], [(0, 38)], delimiter=",")
    labels = files.read_matrix(paths["test_label"], [(len(test), 1)], delimiter=",")[:, 0]
    if not np.isin(labels, (0.0, 1.0)).all():
        row = int(np.argmax(~np.isin(labels, (0.0, 1.0))))
        raise DataError(
            f"'{paths['test_label']}', line {row + 1}: found {labels[row]}, 0 or 1 is needed; get "
            "the file again"
        )
    segments = _read_segments(paths["interpretation_label"], len(test))
    named = {f"{name}/{path.name}": path for name, path in paths.items()}
    return train, test, labels.astype(np.int8), segments, named


def _read_segments(path: Path, num_rows: int) -> list[Segment]:
    files.check_not_pointer(path)
    segments: list[Segment] = []
    with files.one_sentence(path):
        lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        match = SEGMENT.fullmatch(line.strip())
        metrics = [int(k) - 1 for k in match[3].split(",")] if match else []
        is_right = (
            match is not None
            and max(metrics) < len(COLUMNS)
            and min(metrics) >= 0
            and int(match[1]) < int(match[2]) <= num_rows
        )
        if match is None or not is_right:
            raise DataError(
                f"'{path}', line {number + 1}: found '{line.strip()[:40]}', "
                f"'from-to:metrics' within {num_rows} rows and metrics 1 to 38 is needed, as in "
                "'15849-16368:1,9,10'; get the file again"
            )
        segments.append((int(match[1]), int(match[2]), metrics))
    return segments
