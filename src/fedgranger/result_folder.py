"""A run folder as a whole: what `Result.save` writes and `Result.load` reads."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedgranger.config import RunConfig, read_toml
from fedgranger.errors import RunError
from fedgranger.inference.reference import Reference
from fedgranger.manifest_types import Manifest
from fedgranger.normal_operation import Monitor, Season
from fedgranger.result_arrays import (
    OTHER_FILES,
    OVER_TIME_FILE,
    inference_arrays,
    other_tables,
    read_inference,
)
from fedgranger.run_folder import (
    CHECKPOINT,
    FORMER,
    MANIFEST,
    OF_OLDER_VERSION,
    RESTORE,
    RunFolder,
    read_manifest,
    with_formulas,
)
from fedgranger.server.jacobian_trace import JacobianTrace
from fedgranger.uncertainty.quantities import QUANTITIES, Quantities
from fedgranger.uncertainty.record import Propagation

if TYPE_CHECKING:
    from fedgranger.results import Result

ROOT_CAUSE_FILE = "rca.json"
REPORT_FILE = "report.html"
INCIDENTS_FILE = "incidents.jsonl"
NORMAL_FILE = "normal.npz"
JACOBIAN_FILE = "jacobian.npz"
SEASONS_FILE = "seasons.json"
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
        _save_uncertainty(run, result.uncertainty)
    if result.reference is not None:
        _save_normal(run, result.monitors, result.reference)
    if any(season.lengths for season in result.seasons.values()):
        whole = {name: season.to_mapping() for name, season in result.seasons.items()}
        run.write_text(SEASONS_FILE, json.dumps(whole) + "\n")
    if result.jacobian is not None:
        run.write_arrays(JACOBIAN_FILE, result.jacobian._asdict())
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
        if (folder / FORMER).exists() and not (folder / CHECKPOINT).exists():
            raise RunError(f"{folder}: holds {OF_OLDER_VERSION}")
        hint = (
            "it was interrupted, continue it with 'fedgranger fit --resume'"
            if (folder / CHECKPOINT).exists()
            else "make one with 'fedgranger fit'"
        )
        raise RunError(f"{folder}: not a finished run; {hint}")
    try:
        return _fields(folder)
    except RunError:
        raise
    except (OSError, EOFError, LookupError, TypeError, ValueError, zipfile.BadZipFile) as error:
        what = f"{type(error).__name__}: {error}"
        raise RunError(f"{folder}: damaged run folder ({what}); {RESTORE}") from None


def _fields(folder: Path) -> dict[str, Any]:
    manifest = read_manifest(folder)
    with np.load(folder / "estimate.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    clients = tuple(arrays["clients"].tolist())
    monitors, reference = _load_normal(folder)
    return {
        "clients": clients,
        "state_dims": tuple(arrays["state_dims"].tolist()),
        "granger": arrays.get("granger"),
        "augmentations": {
            name: arrays[f"augmentation_{m}"]
            for m, name in enumerate(clients)
            if f"augmentation_{m}" in arrays
        },
        "inference": read_inference(folder, manifest.inference, arrays),
        "trace": pd.read_parquet(folder / "trace.parquet"),
        "manifest": manifest,
        "config": RunConfig.from_mapping(read_toml(folder / "config.toml")),
        "uncertainty": _load_uncertainty(folder, manifest),
        "monitors": monitors,
        "reference": reference,
        "seasons": _load_seasons(folder),
        "jacobian": _load_jacobian(folder),
    }


def _save_uncertainty(run: RunFolder, found: Propagation) -> None:
    """Covariances along the first pass."""
    arrays = {}
    for m, client in enumerate(found.clients):
        arrays |= {f"{name}_{m}": value for name, value in found.final[client]._asdict().items()}
        arrays[f"mean_augmentation_{m}"], arrays[f"mean_granger_{m}"] = found.means[client]
        arrays[f"granger_path_{m}"] = found.granger_paths[client]
    arrays["clients"] = np.array(found.clients)
    arrays["prior_time"] = np.array([found.prior_time[client] for client in found.clients])
    run.write_arrays("uncertainty.npz", arrays)
    run.write_table("uncertainty.csv", found.table)


def _load_uncertainty(folder: Path, manifest: Manifest) -> Propagation | None:
    """Undo `_save_uncertainty`; None when they were not asked for."""
    level = manifest.config.get("uncertainty", "none")
    if level == "none":
        return None
    table = pd.read_csv(
        folder / "uncertainty.csv", keep_default_na=False, na_values={"prior": "", "data": ""}
    )
    with np.load(folder / "uncertainty.npz", allow_pickle=False) as arrays:
        names = tuple(arrays["clients"].tolist())
        final = {
            client: Quantities(*(arrays[f"{name}_{m}"] for name in QUANTITIES))
            for m, client in enumerate(names)
        }
        means = {
            client: (arrays[f"mean_augmentation_{m}"], arrays[f"mean_granger_{m}"])
            for m, client in enumerate(names)
        }
        paths = {client: arrays[f"granger_path_{m}"] for m, client in enumerate(names)}
        prior_time = dict(zip(names, arrays["prior_time"].tolist(), strict=True))
    return Propagation(
        names,
        level,
        with_formulas(table, names),
        final,
        means,
        paths,
        prior_time,
    )


def _save_normal(run: RunFolder, monitors: Mapping[str, Monitor], reference: Reference) -> None:
    """One array per field; clients are numbered in the order of the reference.

    Of a run between parties only the reference is here: every site keeps its monitor.
    """
    arrays = {f"reference_{name}": np.array(value) for name, value in reference._asdict().items()}
    for m, client in enumerate(reference.names):
        if client in monitors:
            own = monitors[client].to_arrays()
            arrays |= {f"{name}_{m}": value for name, value in own.items()}
    run.write_arrays(NORMAL_FILE, arrays)


def _load_normal(folder: Path) -> tuple[dict[str, Monitor], Reference | None]:
    """Undo `_save_normal`; nothing when the run has not learned what is normal."""
    if not (folder / NORMAL_FILE).exists():
        return {}, None
    with (folder / NORMAL_FILE).open("rb") as raw, np.load(raw, allow_pickle=False) as arrays:
        read = {name: arrays[f"reference_{name}"] for name in Reference._fields}
        read |= {name: tuple(read[name].tolist()) for name in ("names", "dims")}
        reference, monitors = Reference(**read), {}
        for m, client in enumerate(reference.names):
            end = f"_{m}"
            own = {name.removesuffix(end): arrays[name] for name in arrays if name.endswith(end)}
            if own:
                monitors[client] = Monitor.from_arrays(own)
    return monitors, reference


def _load_seasons(folder: Path) -> dict[str, Season]:
    """What every client took out of its data because it repeats; empty when nobody did."""
    if not (folder / SEASONS_FILE).exists():
        return {}
    table = json.loads((folder / SEASONS_FILE).read_text(encoding="utf-8"))
    return {name: Season.from_mapping(entry) for name, entry in table.items()}


def _load_jacobian(folder: Path) -> JacobianTrace | None:
    """Granger blocks over time; None when the run has none."""
    if not (folder / JACOBIAN_FILE).exists():
        return None
    with np.load(folder / JACOBIAN_FILE, allow_pickle=False) as arrays:
        return JacobianTrace(*(arrays[name] for name in JacobianTrace._fields))
