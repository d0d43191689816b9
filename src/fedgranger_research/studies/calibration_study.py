"""Run a calibration study: many data sets, several processes, resumable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from fedgranger.disk import write_atomically
from fedgranger_research.parallel import completed
from fedgranger_research.studies.calibration_trials import Record, Setting, run_data_set, summarise


def run_study(
    folder: Path,
    settings: list[Setting],
    num_data_sets: int,
    *,
    jobs: int,
    first_seed: int = 0,
    report: Callable[[str, int, int], None] = lambda *_: None,
) -> None:
    """Run every data set that is not in the folder yet, one file per data set."""
    todo = [
        (setting, seed)
        for setting in settings
        for seed in range(first_seed, first_seed + num_data_sets)
        if not _path(folder, setting, seed).exists()
    ]
    total = len(settings) * num_data_sets
    done = total - len(todo)
    report("data sets", done, total)
    tasks = ((folder, setting, seed) for setting, seed in todo)
    for _ in completed(_run_one, tasks, jobs):
        done += 1
        report("data sets", done, total)


def load_records(
    folder: Path, setting: Setting, num_data_sets: int, first_seed: int = 0
) -> list[Record]:
    """Read the data sets of one setting."""
    records = []
    for seed in range(first_seed, first_seed + num_data_sets):
        with np.load(_path(folder, setting, seed), allow_pickle=False) as arrays:
            values = {name: arrays[name] for name in Record._fields if name in arrays}
        plain = {name: part.item() if part.ndim == 0 else part for name, part in values.items()}
        records.append(Record(**plain))
    return records


def summary_table(
    folder: Path, settings: list[Setting], num_data_sets: int, first_seed: int = 0
) -> pd.DataFrame:
    """One row per setting: size, power, coverage, F1 and FDR with Monte Carlo errors."""
    rows = []
    for setting in settings:
        alpha = float(setting.options.get("alpha", 0.05))
        summary = summarise(load_records(folder, setting, num_data_sets, first_seed), alpha)
        rows.append({"setting": setting.name, **asdict(summary)})
    return pd.DataFrame(rows)


def _run_one(folder: Path, setting: Setting, seed: int) -> None:
    record = run_data_set(setting, seed)
    path = _path(folder, setting, seed)
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(target: Path) -> None:
        with target.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **record._asdict())

    write_atomically(path, write)


def _path(folder: Path, setting: Setting, seed: int) -> Path:
    return folder / setting.name / f"{seed:05d}.npz"
