"""Cut a `Source` into clients: partition, constant columns, labels, root clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.data.client_data import ClientData
from fedgranger.data.panel import Panel
from fedgranger.errors import DataError
from fedgranger.text import did_you_mean
from fedgranger_research.datasets.contents import (
    Anomaly,
    DatasetInfo,
    PreparedDataset,
    Recording,
    Run,
    Source,
)

INSTANCE_COLUMNS = (
    "instance_id", "split", "run", "start", "end", "start_time", "end_time", "root_clients",
    "primary", "confidence", "is_single_root", "is_primary_tie", "root_columns", "description",
)  # fmt: skip


def assemble(
    info: DatasetInfo, source: Source, partition: Mapping[str, Sequence[str]] | None = None
) -> PreparedDataset:
    """Apply the partition (the data set's own when None) and work out the root clients.

    The source's runs are used up, so that no recording is held twice for long. Columns that are
    constant in the training data are dropped everywhere and reported.

    Raises:
        DataError: an unknown or twice assigned column, or a client without a live column.
    """
    is_own = partition is None
    given = source.partition if is_own else {k: tuple(v) for k, v in partition.items()}
    columns = source.train[0].columns
    _check_partition(info.name, given, columns)
    constant = _constant_columns(source.train)
    kept = {
        client: tuple(name for name in names if name not in constant)
        for client, names in given.items()
    }
    dropped = {
        client: [name for name in names if name in constant] for client, names in given.items()
    }
    for client, names in kept.items():
        if not names:
            raise DataError(
                f"client '{client}': all of its {len(given[client])} columns are constant in the "
                f"training data of {info.name} ({', '.join(given[client])}), so none is left; "
                "leave the client out or give it other columns in the partition"
            )
    notes = list(source.notes)
    for client, names in dropped.items():
        if names:
            notes.append(
                f"client '{client}': constant in the training data and dropped: {', '.join(names)}"
            )
    used = {name for names in given.values() for name in names}
    unused = [name for name in columns if name not in used]
    if unused:
        notes.append(f"not assigned to any client and left out: {', '.join(unused)}")
    instances = _instances(source, given, kept)
    cut = []
    while source.runs:  # let each recording go as soon as its clients have their columns
        cut.append(_cut_run(source.runs.pop(0), kept))
    runs = tuple(cut)
    train = _join(source.train, kept, tuple(notes))
    facts: dict[str, Any] = {
        "name": info.name,
        "version": source.version,
        "machine": source.machine,
        "source": info.address,
        "licence": info.licence,
        "citation": list(info.citations),
        "partition": "default" if is_own else "given",
        "hashes": dict(source.hashes),
        "counts": {
            "train_rows": train.num_steps,
            "train_recordings": [recording.name for recording in source.train],
            "runs": len(runs),
            "run_rows": sum(run.panel.num_steps for run in runs),
            "anomalous_rows": sum(int(run.labels.sum()) for run in runs),
            "instances": len(instances),
            "single_root_instances": int(instances["is_single_root"].to_numpy().sum()),
            "columns": {client: len(names) for client, names in kept.items()},
        },
        "constant_columns": {client: names for client, names in dropped.items() if names},
        "constant_columns_rule": "constant over all training rows: dropped from every split",
        "columns_without_client": unused,
        "notes": notes,
    }
    return PreparedDataset(info.name, train, runs, _labels(runs), instances, kept, facts)


def root_clients(
    columns: Sequence[str],
    partition: Mapping[str, Sequence[str]],
    kept: Mapping[str, Sequence[str]],
    rule: str,
) -> tuple[tuple[str, ...], str, bool]:
    """Clients that own a root column, the primary one ("" for none), and whether it is tied.

    Under the rule "share" the primary client is the one with the largest share of root columns
    among its columns, not counting those that are constant in the training data unless they are
    roots; at equal shares the one with more root columns, then the first.
    """
    owned = {c: [name for name in columns if name in names] for c, names in partition.items()}
    roots = tuple(client for client, names in owned.items() if names)
    if len(roots) == 1:
        return roots, roots[0], False
    if not roots or rule != "share":
        return roots, "", False
    shares = {c: len(owned[c]) / len({*kept[c], *owned[c]}) for c in roots}
    primary = max(roots, key=lambda client: (shares[client], len(owned[client])))
    return roots, primary, sum(share == shares[primary] for share in shares.values()) > 1


def _instances(
    source: Source, given: Mapping[str, Sequence[str]], kept: Mapping[str, Sequence[str]]
) -> pd.DataFrame:
    times = {(recording.split, recording.name): recording.time for recording in source.runs}
    rows = []
    for anomaly in source.anomalies:
        time = _window(anomaly, times)
        roots, primary, is_tie = root_clients(
            anomaly.root_columns, given, kept, source.primary_rule
        )
        rows.append(
            (
                anomaly.instance_id, anomaly.split, anomaly.run, anomaly.start, anomaly.end,
                time[anomaly.start], time[anomaly.end], ";".join(roots), primary,
                anomaly.confidence if roots else "unknown", len(roots) == 1, is_tie,
                ";".join(anomaly.root_columns), anomaly.description,
            )
        )  # fmt: skip
    frame = pd.DataFrame(rows, columns=list(INSTANCE_COLUMNS))
    if not rows:
        frame = frame.astype({"is_single_root": bool, "is_primary_tie": bool})
    return frame


def _window(anomaly: Anomaly, times: Mapping[tuple[str, str], np.ndarray]) -> np.ndarray:
    time = times[anomaly.split, anomaly.run]
    if not 0 <= anomaly.start <= anomaly.end < len(time):
        raise DataError(
            f"anomaly '{anomaly.instance_id}' covers steps {anomaly.start} to {anomaly.end} but "
            f"run '{anomaly.run}' has {len(time)} steps; the label file belongs to other data"
        )
    return time


def _check_partition(
    name: str, partition: Mapping[str, Sequence[str]], columns: Sequence[str]
) -> None:
    owners: dict[str, str] = {}
    for client, names in partition.items():
        for column in names:
            if column not in columns:
                raise DataError(
                    f"client '{client}': data set {name} has no column '{column}'"
                    f"{did_you_mean(column, columns)}; correct the partition"
                )
            if column in owners:
                raise DataError(
                    f"column '{column}' is assigned to client '{owners[column]}' and again to "
                    f"client '{client}'; assign each column once"
                )
            owners[column] = client


def _constant_columns(recordings: Sequence[Recording]) -> set[str]:
    low = np.min([recording.values.min(axis=0) for recording in recordings], axis=0)
    high = np.max([recording.values.max(axis=0) for recording in recordings], axis=0)
    return {name for name, same in zip(recordings[0].columns, low == high, strict=True) if same}


def _cut_run(recording: Recording, partition: Mapping[str, tuple[str, ...]]) -> Run:
    panel = _join([recording], partition, ())
    labels = recording.labels
    if labels is None:
        labels = np.zeros(panel.num_steps, np.int8)
    return Run(recording.name, recording.split, panel, labels)


def _join(
    recordings: Sequence[Recording],
    partition: Mapping[str, tuple[str, ...]],
    notes: tuple[str, ...],
) -> Panel:
    """Put recordings one after another; the jumps in time between them start new segments."""
    where = {name: position for position, name in enumerate(recordings[0].columns)}
    time = np.concatenate([recording.time for recording in recordings])
    clients = []
    for client, names in partition.items():
        columns = [where[name] for name in names]
        values = np.empty((len(time), len(columns)))
        start = 0
        for recording in recordings:
            stop = start + len(recording.time)
            values[start:stop] = recording.values[:, columns]
            start = stop
        clients.append(ClientData(client, names, values, np.ones(values.shape, np.bool_)))
    return Panel(tuple(clients), time, notes)


def _labels(runs: Sequence[Run]) -> pd.DataFrame:
    if not runs:
        return pd.DataFrame(columns=["split", "run", "step", "time", "label"])
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "split": run.split,
                    "run": run.name,
                    "step": np.arange(run.panel.num_steps),
                    "time": run.panel.time,
                    "label": run.labels,
                }
            )
            for run in runs
        ],
        ignore_index=True,
    )
