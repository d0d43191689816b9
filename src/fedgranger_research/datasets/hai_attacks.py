"""Where the attacks of HAI are and which processes they were aimed at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedgranger.errors import DataError
from fedgranger_research.datasets.contents import Anomaly, Recording
from fedgranger_research.datasets.files import one_sentence
from fedgranger_research.datasets.hai_files import process_of

NEEDED = ("start", "end", "root_clients")


def find_attacks(
    runs: Sequence[Recording],
    processes: Mapping[str, np.ndarray],
    attacks: Path | None,
    notes: list[str],
) -> list[Anomaly]:
    """Take one attack per stretch of labels, or per row of a table of attacks.

    Args:
        runs: the test recordings with their labels.
        processes: run -> bool (time, 3), the attack_P1 to attack_P3 columns.
        attacks: csv with start, end, root_clients (as in P1;P2) and, if present, instance_id and
            confidence; its rows are matched to the runs by time. A table of several versions is
            fine: rows outside all runs belong to other versions.
        notes: receives what could not be matched.
    """
    table = None if attacks is None else _read_table(attacks)
    anomalies: list[Anomaly] = []
    for run in runs:
        labels = np.zeros(len(run.time)) if run.labels is None else run.labels
        stretches = _stretches(labels)
        if table is None:
            anomalies += _from_labels(run, processes[run.name], stretches)
        else:
            anomalies += _from_table(run, table, stretches, notes)
    unknown = sum(not anomaly.root_columns for anomaly in anomalies)
    if unknown:
        notes.append(
            f"{unknown} of {len(anomalies)} attacks have no known root: these files do not name "
            "the attacked process; give a table of attacks (--attacks FILE)"
        )
    return anomalies


def _stretches(labels: np.ndarray) -> list[tuple[int, int]]:
    """First and last step of every run of ones."""
    edges = np.diff(np.concatenate([[0], labels, [0]]))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return [(int(start), int(stop) - 1) for start, stop in zip(starts, stops, strict=True)]


def _columns_of(run: Recording, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(tag for tag in run.columns if process_of(tag) in names)


def _from_labels(
    run: Recording, flags: np.ndarray, stretches: Sequence[tuple[int, int]]
) -> list[Anomaly]:
    anomalies = []
    for k, (start, end) in enumerate(stretches):
        named = [f"P{j + 1}" for j in np.flatnonzero(flags[start : end + 1].any(axis=0))]
        anomalies.append(
            Anomaly(
                f"hai_{run.name}_{k + 1:02d}",
                run.split,
                run.name,
                start,
                end,
                _columns_of(run, named),
                "high",
                f"attack on {' and '.join(named)}" if named else "attack on an unnamed process",
            )
        )
    return anomalies


def _from_table(
    run: Recording, table: pd.DataFrame, stretches: Sequence[tuple[int, int]], notes: list[str]
) -> list[Anomaly]:
    anomalies = []
    starts, ends = (table[name].to_numpy() for name in ("start", "end"))
    for position, row in enumerate(table.to_dict("records")):
        inside = np.flatnonzero((run.time >= starts[position]) & (run.time <= ends[position]))
        if not len(inside):
            continue
        start, end = int(inside[0]), int(inside[-1])
        met = [stretch for stretch in stretches if stretch[0] <= end and stretch[1] >= start]
        if met:  # the labels know the second, a table may know the minute only
            start, end = met[0][0], met[-1][1]
        else:
            notes.append(f"attack '{row['instance_id']}': no row of {run.name} is labelled then")
        named = [name.strip() for name in str(row["root_clients"]).split(";")]
        anomalies.append(
            Anomaly(
                str(row["instance_id"]) or f"hai_{run.name}_{position + 1:02d}",
                run.split,
                run.name,
                start,
                end,
                _columns_of(run, named),
                str(row["confidence"]),
                f"attack on {' and '.join(named)}",
            )
        )
    return anomalies


def _read_table(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise DataError(f"'{path}' does not exist; --attacks needs a csv with {', '.join(NEEDED)}")
    with one_sentence(path):
        table = pd.read_csv(path, dtype="str", keep_default_na=False)
    missing = [name for name in NEEDED if name not in table.columns]
    if missing:
        raise DataError(
            f"'{path}' has no column '{missing[0]}' (found: {', '.join(table.columns)}); "
            f"{', '.join(NEEDED)} are needed"
        )
    for name in ("start", "end"):
        stamps = pd.to_datetime(table[name], format="ISO8601", errors="coerce")
        if stamps.isna().any():
            row = int(np.argmax(stamps.isna()))
            raise DataError(
                f"'{path}', data row {row + 1}: {name} is '{table[name][row]}', a time like "
                "2019-10-29 13:40:00 is needed"
            )
        table[name] = stamps
    defaults = {"instance_id": "", "confidence": "given"}
    return table.assign(**{k: v for k, v in defaults.items() if k not in table.columns})
