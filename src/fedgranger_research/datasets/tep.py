"""TEP: the Tennessee Eastman process as simulated by the group of R. Braatz (44 .dat files).

Each file is a matrix of white-space separated numbers, 52 columns: XMEAS(1) to XMEAS(41), then
XMV(1) to XMV(11), one row per three minutes. `d00.dat` alone is stored the other way round.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedgranger_research.datasets import files
from fedgranger_research.datasets.contents import Anomaly, DatasetInfo, Options, Recording, Source

NUM_FAULTS = 21
FAULT_STEP = 160
"""Test runs: first step after the fault was switched on (8 h of 3-minute samples)."""
COLUMNS = (*(f"XMEAS_{k}" for k in range(1, 42)), *(f"XMV_{k}" for k in range(1, 12)))


def _columns(measured: tuple[int, ...], valves: tuple[int, ...]) -> tuple[str, ...]:
    return (*(f"XMEAS_{k}" for k in measured), *(f"XMV_{k}" for k in valves))


PARTITION = {
    "feed_ADE": _columns((1, 2, 3), (1, 2, 3)),
    "feed_AC": _columns((4,), (4,)),
    "reactor": _columns((6, 7, 8, 9, 21, *range(23, 29)), (10,)),
    "condenser": _columns((22,), (11,)),
    "separator": _columns((11, 12, 13, 14), (7,)),
    "compressor": _columns((5, 20), (5,)),
    "purge": _columns((10, *range(29, 37)), (6,)),
    "stripper": _columns((15, 16, 18, 19), (9,)),
    "product": _columns((17, *range(37, 42)), (8,)),
}
"""The five process units of Downs & Vogel and the four streams at the plant's boundary."""

_STREAM_4 = ("XMEAS_4", "XMV_4")
_REACTOR_COOLING = ("XMEAS_21", "XMV_10")
_CONDENSER_COOLING = ("XMEAS_22", "XMV_11")
FAULTS: dict[int, tuple[tuple[str, ...], str, str]] = {
    1: (_STREAM_4, "high", "step of the A/C ratio in stream 4"),
    2: (_STREAM_4, "high", "step of component B in stream 4"),
    3: (("XMEAS_2", "XMV_1"), "high", "step of the D feed temperature"),
    4: (_REACTOR_COOLING, "high", "step of the reactor cooling-water inlet temperature"),
    5: (_CONDENSER_COOLING, "high", "step of the condenser cooling-water inlet temperature"),
    6: (("XMEAS_1", "XMV_3"), "high", "loss of the A feed"),
    7: (_STREAM_4, "high", "pressure loss in the C header, stream 4"),
    8: (_STREAM_4, "high", "random composition of stream 4"),
    9: (("XMEAS_2", "XMV_1"), "high", "random D feed temperature"),
    10: (_STREAM_4, "high", "random C feed temperature, stream 4"),
    11: (_REACTOR_COOLING, "high", "random reactor cooling-water inlet temperature"),
    12: (_CONDENSER_COOLING, "high", "random condenser cooling-water inlet temperature"),
    13: (("XMEAS_7", "XMEAS_8", "XMEAS_9"), "high", "slow drift of the reaction kinetics"),
    14: (_REACTOR_COOLING, "high", "sticking reactor cooling-water valve"),
    15: (_CONDENSER_COOLING, "high", "sticking condenser cooling-water valve"),
    16: (("XMEAS_19", "XMV_9"), "medium", "random heat transfer of the stripper's steam"),
    17: (_REACTOR_COOLING, "medium", "random heat transfer of the reactor"),
    18: (_CONDENSER_COOLING, "medium", "random heat transfer of the condenser"),
    19: (("XMV_5", "XMV_7", "XMV_8", "XMV_9"), "medium", "four sticking valves"),
    20: (("XMEAS_7", "XMEAS_22"), "low", "random flow coefficient of the reactor's outlet"),
    21: (_STREAM_4, "high", "stream-4 valve frozen"),
}
"""Fault -> columns nearest to where it enters, confidence, words. 1 to 15 and 21 are in the
published fault tables; 16 to 20 are called unknown there and were read from `teprob.f`."""

INFO = DatasetInfo(
    name="tep",
    title="Tennessee Eastman process, Braatz benchmark",
    address="https://github.com/camaramm/tennessee-eastman-profBraatz",
    licence="University of Illinois / NCSA style: free use and redistribution with the notice",
    citations=(
        "J. J. Downs and E. F. Vogel, Computers & Chemical Engineering 17:245-255, 1993",
        "E. L. Russell, L. H. Chiang and R. D. Braatz, Data-driven Techniques for Fault "
        "Detection and Diagnosis in Chemical Processes, Springer, 2000",
        "L. H. Chiang, E. L. Russell and R. D. Braatz, Fault Detection and Diagnosis in "
        "Industrial Systems, Springer, 2001",
    ),
    files=(
        "d00.dat: 52 x 500 numbers (columns are rows in this file), normal operation",
        "d01.dat to d21.dat: 480 x 52, the fault is on all the time",
        "d00_te.dat to d21_te.dat: 960 x 52, the fault is on from row 160 (0-based); d00_te has "
        "none",
    ),
    clients="9: " + ", ".join(PARTITION),
    root_rule=(
        "the clients that own the columns nearest to where the fault enters; faults 19 (four "
        "clients) and 20 (two) have several and no primary one"
    ),
    caveats=(
        "only 500 + 960 fault-free samples",
        "faults 3, 9 and 15 are known to be hardly detectable",
        "faults 16 to 20 are unknown in the 1993 paper; their origin was read from teprob.f",
        "the analysers XMEAS 23-36 and 37-41 hold each value for 2 and 5 samples",
        "no fault starts in the purge",
    ),
    options=("accept_changed",),
)


def read(path: Path, options: Options) -> Source:
    """Read all 44 files."""
    folder = files.check_folder("tep", path, "d00.dat to d21.dat and d00_te.dat to d21_te.dat")
    names = [f"d{k:02d}" for k in range(NUM_FAULTS + 1)]
    names += [f"{name}_te" for name in names]
    paths = {
        name: files.find_file(folder, (f"{name}.dat",), "one of the 44 files of TEP")
        for name in names
    }
    notes: list[str] = []
    train: list[Recording] = []
    runs: list[Recording] = []
    for done, (name, path) in enumerate(paths.items()):
        if name == "d00":
            values = files.read_matrix(path, [(52, 500), (500, 52)], delimiter=None)
            if values.shape == (52, 500):
                values = values.T.copy()
            else:
                notes.append("d00.dat: found 500 x 52 numbers, the published file is transposed")
            train.append(_recording(name, "train", values))
        elif name.endswith("_te"):
            runs.append(
                _recording(name, "test", files.read_matrix(path, [(960, 52)], delimiter=None))
            )
        else:
            values = files.read_matrix(path, [(480, 52)], delimiter=None)
            runs.append(_recording(name, "train_faulty", values))
        options.report("reading", done + 1, len(paths))
    named = {path.name: path for path in paths.values()}
    hashes = files.check_hashes(
        folder, named, {}, accept_changed=options.accept_changed, notes=notes
    )
    anomalies = [
        Anomaly(
            f"tep_{'test' if run.split == 'test' else 'trainfault'}_idv{fault:02d}",
            run.split,
            run.name,
            int(np.argmax(run.labels)),
            len(run.time) - 1,
            FAULTS[fault][0],
            FAULTS[fault][1],
            f"IDV {fault}: {FAULTS[fault][2]}",
        )
        for run in runs
        if run.labels is not None and (fault := int(run.name[1:3]))
    ]
    return Source("published .dat files", train, runs, anomalies, PARTITION, hashes, notes)


def _recording(name: str, split: str, values: np.ndarray) -> Recording:
    labels = None
    if split != "train":
        labels = np.zeros(len(values), np.int8)
        if name[:3] != "d00":
            labels[FAULT_STEP if split == "test" else 0 :] = 1
    return Recording(name, split, np.arange(len(values)), COLUMNS, values, labels)
