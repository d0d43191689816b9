"""A run folder as a whole: what `Result.save` writes and `Result.load` reads."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedgranger.config import RunConfig, read_toml
from fedgranger.errors import RunError
from fedgranger.result_files import (
    JACOBIAN_FILE,
    NORMAL_FILE,
    OTHER_FILES,
    OVER_TIME_FILE,
    SEASONS_FILE,
    inference_arrays,
    load_jacobian,
    load_normal,
    load_seasons,
    load_uncertainty,
    other_tables,
    read_inference,
    save_jacobian,
    save_normal,
    save_seasons,
    save_uncertainty,
)
from fedgranger.run_folder import MANIFEST, RunFolder, check_files

if TYPE_CHECKING:
    from fedgranger.results import Result

ROOT_CAUSE_FILE = "rca.json"
REPORT_FILE = "report.html"
INCIDENTS_FILE = "incidents.jsonl"
PARTS = ("data", "training", "inference", "bytes", "timings", "normal", "files")
"""Of a manifest, each with names of its own."""
FEDGC_FILES = ("edges_fedgc.csv", "entries_fedgc.csv")


def save_run(result: Result, folder: Path, *, overwrite: bool) -> None:
    """Write the run folder; every file appears whole, `manifest.json` last.

    Raises:
        RunError: the folder is a file or holds a run that may not be overwritten.
    """
    if folder.is_file():
        raise RunError(f"{folder}: is a file; give a folder")
    if not overwrite and (folder / MANIFEST).exists():
        raise RunError(f"{folder}: holds a run; give another folder, or overwrite=True")
    arrays = {
        f"augmentation_{m}": result.augmentations[name]
        for m, name in enumerate(result.clients)
        if name in result.augmentations
    }
    arrays |= {"clients": np.array(result.clients), "state_dims": np.array(result.state_dims)}
    if result.granger is not None:
        arrays["granger"] = result.granger
    if result.inference is not None:
        arrays |= inference_arrays(result.inference)
    run = RunFolder(folder)
    run.write_text("config.toml", result.config.to_toml())
    run.write_arrays("estimate.npz", arrays)
    tables = {"edges.csv": result.edges(), "entries.csv": result.entries()}
    if result.granger is not None:
        views = (result.edges(estimate="fedgc"), result.entries(estimate="fedgc"))
        tables |= dict(zip(FEDGC_FILES, views, strict=True))
    tables |= other_tables(result.inference)
    if result.inference is not None and result.inference.over_time is not None:
        tables[OVER_TIME_FILE] = result.inference.over_time
    for name, table in tables.items():
        run.write_table(name, table)
    run.write("trace.parquet", lambda path: result.trace.to_parquet(path, index=False))
    if result.uncertainty is not None:
        save_uncertainty(run, result.uncertainty)
    if result.reference is not None:
        save_normal(run, result.monitors, result.reference)
    save_seasons(run, result.seasons)
    save_jacobian(run, result.jacobian)
    run.remove_others(*FEDGC_FILES, *OTHER_FILES, OVER_TIME_FILE, JACOBIAN_FILE)
    run.remove_others(NORMAL_FILE, ROOT_CAUSE_FILE, INCIDENTS_FILE, SEASONS_FILE, REPORT_FILE)
    run.finish(result.manifest)


def read_run(folder: Path) -> dict[str, Any]:
    """The fields of the result in a run folder.

    Raises:
        RunError: the folder is not a finished run.
    """
    if not folder.is_dir():
        raise RunError(f"{folder}: no such run folder; make one with 'fedgranger fit'")
    if not (folder / MANIFEST).exists():
        hint = (
            "it was interrupted, continue it with 'fedgranger fit --resume'"
            if (folder / "checkpoint.npz").exists()
            else "make one with 'fedgranger fit'"
        )
        raise RunError(f"{folder}: not a finished run; {hint}")
    try:
        return _fields(folder)
    except RunError:
        raise
    except (OSError, EOFError, LookupError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise RunError(f"{folder}: damaged run folder ({error}); run the fit again") from None


def _fields(folder: Path) -> dict[str, Any]:
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    parts = {name: manifest.get(name, {}) for name in PARTS} if isinstance(manifest, dict) else {}
    if not parts or not all(isinstance(part, dict) for part in parts.values()):
        raise RunError(f"{folder / MANIFEST}: is not what a run wrote; restore it or fit again")
    check_files(folder, manifest)
    with np.load(folder / "estimate.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    clients = tuple(arrays["clients"].tolist())
    monitors, reference = load_normal(folder)
    return {
        "clients": clients,
        "state_dims": tuple(arrays["state_dims"].tolist()),
        "granger": arrays.get("granger"),
        "augmentations": {
            name: arrays[f"augmentation_{m}"]
            for m, name in enumerate(clients)
            if f"augmentation_{m}" in arrays
        },
        "inference": read_inference(folder, manifest["inference"], arrays),
        "trace": pd.read_parquet(folder / "trace.parquet"),
        "manifest": manifest,
        "config": RunConfig.from_mapping(read_toml(folder / "config.toml")),
        "uncertainty": load_uncertainty(folder, manifest),
        "monitors": monitors,
        "reference": reference,
        "seasons": load_seasons(folder),
        "jacobian": load_jacobian(folder),
    }
