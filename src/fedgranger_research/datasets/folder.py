"""The prepared folder: written whole or not at all, and read back.

`train/` and one folder per other split hold one Parquet file per client, so that
`fedgranger fit FOLDER/train` reads them as they are. Runs of a split stand one after another on
one time axis with jumps between them, which start new segments: time stamps where the publisher
gives them, else run number times a power of ten plus the step within the run.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as arrow_parquet

from fedgranger._version import __version__
from fedgranger.data.client_data import ClientData
from fedgranger.data.panel import Panel
from fedgranger.errors import DataError, RunError
from fedgranger_research.datasets.contents import PreparedDataset, Run

FORMAT = 1


def check_target(folder: Path, *, overwrite: bool) -> None:
    """Refuse to mix a prepared data set with other files."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunError(f"{folder}: is a file; give --out a folder")
    is_prepared = (folder / "dataset.json").exists()
    if not any(folder.iterdir()) or (overwrite and is_prepared):
        return
    remedy = "use --overwrite or " if is_prepared else ""
    raise RunError(f"{folder}: is not empty; {remedy}give --out another folder")


@contextmanager
def new_folder(folder: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a draft beside the folder; it takes the folder's name only when all went well."""
    check_target(folder, overwrite=overwrite)
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    try:
        draft.mkdir()
        yield draft
        if folder.exists():
            folder.rename(old)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(old, ignore_errors=True)


def write_prepared(dataset: PreparedDataset, folder: Path) -> None:
    """Write into an existing empty folder (the draft of `new_folder`)."""
    dataset.train.write(folder / "train", format="parquet")
    axes: dict[tuple[str, str], np.ndarray] = {}
    for split in dataset.splits:
        runs = dataset.split(split)
        times = _joined_axis(runs)
        axes |= {(split, run.name): time for run, time in zip(runs, times, strict=True)}
        _join(runs, times).write(folder / split, format="parquet")
    clients = {client: list(names) for client, names in dataset.partition.items()}
    _write_json(folder / "partition.json", {"clients": clients})
    labels = dataset.labels
    if len(labels):
        labels = labels.assign(
            time=np.concatenate([axes[run.split, run.name] for run in dataset.runs])
        )
    labels.to_parquet(folder / "labels.parquet", index=False)
    instances = dataset.instances
    for column, step in (("start_time", "start"), ("end_time", "end")):
        rows = zip(instances["split"], instances["run"], instances[step], strict=True)
        instances = instances.assign(**{column: [axes[split, run][k] for split, run, k in rows]})
    instances.to_csv(folder / "root_causes.csv", index=False, lineterminator="\n")
    _write_json(
        folder / "dataset.json",
        {
            "format": FORMAT,
            "fedgranger": __version__,
            **dataset.facts,
            "splits": ["train", *dataset.splits],
            "runs": [
                {"split": run.split, "name": run.name, "rows": run.panel.num_steps}
                for run in dataset.runs
            ],
        },
    )


def write_machines_index(
    folder: Path, facts: Sequence[dict[str, Any]], instances: Sequence[pd.DataFrame]
) -> None:
    """Write what the sub-folders of SMD's machines have in common, and all their anomalies."""
    shared = ("name", "version", "source", "licence", "citation", "partition")
    machines = {
        str(entry["machine"]): {
            key: entry[key] for key in ("counts", "constant_columns", "notes", "hashes")
        }
        for entry in facts
    }
    head = {key: facts[0][key] for key in shared}
    _write_json(
        folder / "dataset.json",
        {"format": FORMAT, "fedgranger": __version__, **head, "machines": machines},
    )
    table = pd.concat(instances, ignore_index=True)
    table.to_csv(folder / "root_causes.csv", index=False, lineterminator="\n")


def read_prepared(folder: str | Path) -> PreparedDataset:
    """Read what `fedgranger datasets prepare` wrote (for SMD: the folder of one machine).

    Raises:
        DataError: the folder is not a prepared data set.
    """
    folder = Path(folder)
    facts = _read_json(folder / "dataset.json")
    if facts.get("format") != FORMAT or "runs" not in facts:
        is_index = "machines" in facts
        remedy = "pass the folder of one machine in it" if is_index else "prepare it again"
        raise DataError(f"'{folder}' is not one prepared data set of format {FORMAT}; {remedy}")
    partition = {c: tuple(v) for c, v in _read_json(folder / "partition.json")["clients"].items()}
    table = pd.read_parquet(folder / "labels.parquet")
    train = _read_panel(folder / "train", partition)
    joined = {split: _read_panel(folder / split, partition) for split in facts["splits"][1:]}
    offsets = dict.fromkeys(joined, 0)
    runs = []
    for entry in facts["runs"]:
        split, start = entry["split"], offsets[entry["split"]]
        offsets[split] = start + entry["rows"]
        panel = joined[split].slice(start, offsets[split])
        is_run = (table["split"] == split) & (table["run"] == entry["name"])
        labels = table.loc[is_run, "label"].to_numpy().astype(np.int8)
        runs.append(Run(entry["name"], split, _local(panel), labels))
    instances = pd.read_csv(folder / "root_causes.csv", keep_default_na=False)
    times = {(run.split, run.name): run.panel.time for run in runs}
    for column, step in (("start_time", "start"), ("end_time", "end")):
        rows = zip(instances["split"], instances["run"], instances[step], strict=True)
        instances[column] = [times[split, run][k] for split, run, k in rows]
    if runs:
        table["time"] = np.concatenate([run.panel.time for run in runs])
    extra = ("format", "fedgranger", "splits", "runs")
    kept = {key: value for key, value in facts.items() if key not in extra}
    return PreparedDataset(facts["name"], train, tuple(runs), table, instances, partition, kept)


def _joined_axis(runs: Sequence[Run]) -> list[np.ndarray]:
    times = [run.panel.time for run in runs]
    if times[0].dtype.kind == "M" or len(runs) == 1:
        return times
    stride = 10 ** len(str(2 * max(len(time) for time in times)))
    return [position * stride + time for position, time in enumerate(times)]


def _join(runs: Sequence[Run], times: Sequence[np.ndarray]) -> Panel:
    clients = []
    for client in runs[0].panel:
        values = np.concatenate([run.panel[client.name].values for run in runs])
        observed = np.ones(values.shape, np.bool_)
        clients.append(ClientData(client.name, client.sensors, values, observed))
    return Panel(tuple(clients), np.concatenate(times))


def _local(panel: Panel) -> Panel:
    """Count the steps of a run from 0 where the axis is not time stamps."""
    if panel.time.dtype.kind == "M":
        return panel
    return Panel(panel.clients, panel.time - panel.time[0])


def _read_panel(folder: Path, partition: dict[str, tuple[str, ...]]) -> Panel:
    """Read as written: unlike `Panel.read` it keeps columns that are constant in one split."""
    clients, time = [], np.zeros(0)
    for client, names in partition.items():
        path = folder / f"{client}.parquet"
        if not path.is_file():
            raise DataError(f"'{path}' is missing; prepare the data set again")
        table = arrow_parquet.read_table(path, use_threads=False)
        time = table["time"].to_numpy()
        values = np.column_stack([table[name].to_numpy() for name in names])
        clients.append(ClientData(client, names, values, np.ones(values.shape, np.bool_)))
    return Panel(tuple(clients), time)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"'{path}' cannot be read as JSON ({error}); pass a folder that "
            "'fedgranger datasets prepare' wrote"
        ) from None
    return content if isinstance(content, dict) else {}
