"""A run's state on disk: enough to continue bit for bit, tied to its data and options."""

from __future__ import annotations

import zipfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from fedgranger.client.augment import AugmentState
from fedgranger.convergence import Progress
from fedgranger.errors import RunError
from fedgranger.rounds import RoundState
from fedgranger.run_folder import write_atomically
from fedgranger.runtime.inprocess import Snapshot, TraceRow
from fedgranger.server.granger import ServerState

__all__ = ["FILE_NAME", "load", "save"]

FILE_NAME = "checkpoint.npz"


def save(folder: Path, snapshot: Snapshot, trace: list[TraceRow], fingerprint: str) -> None:
    """Write the checkpoint whole or not at all.

    Args:
        folder: the run folder.
        snapshot: state after the last completed chunk.
        trace: losses so far.
        fingerprint: identifies data, options and version; a resume must match it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        "fingerprint": np.array(fingerprint),
        "position": np.array([snapshot.pass_index, snapshot.chunk, int(snapshot.is_finished)]),
        "augmentation": np.asarray(snapshot.state.clients.augmentation),
        "granger": np.asarray(snapshot.state.server.granger_row),
        "start_augmentation": np.asarray(snapshot.pass_start.clients.augmentation),
        "start_granger": np.asarray(snapshot.pass_start.server.granger_row),
        "changes": snapshot.progress.changes,
        "distance": np.array(snapshot.progress.distance),
        "trace_position": np.array([[row.pass_index, row.round] for row in trace]).reshape(-1, 2),
        "local_loss": np.array([row.local_loss for row in trace]),
        "server_loss": np.array([row.server_loss for row in trace]),
    }

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_atomically(folder / FILE_NAME, write)


def load(folder: Path, fingerprint: str) -> tuple[Snapshot, list[TraceRow]]:
    """Read the checkpoint of the same run.

    Raises:
        RunError: there is none, it is damaged, or it belongs to other data or options.
    """
    path = folder / FILE_NAME
    if not path.exists():
        raise RunError(
            f"{folder}: nothing to resume, there is no {FILE_NAME}; run without --resume"
        )
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        found = str(arrays["fingerprint"])
        pass_index, chunk, is_finished = (int(value) for value in arrays["position"])
        trace = [
            TraceRow(int(position[0]), int(position[1]), local, server)
            for position, local, server in zip(
                arrays["trace_position"], arrays["local_loss"], arrays["server_loss"], strict=True
            )
        ]
        snapshot = Snapshot(
            pass_index,
            chunk,
            _state(arrays["augmentation"], arrays["granger"]),
            _state(arrays["start_augmentation"], arrays["start_granger"]),
            Progress(arrays["changes"], float(arrays["distance"])),
            bool(is_finished),
        )
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise RunError(f"{path}: damaged checkpoint ({error}); run without --resume") from None
    if found != fingerprint:
        raise RunError(
            f"{path}: was made with other data, options or version; "
            "repeat the command that started the run, or use another --out"
        )
    return snapshot, trace


def _state(augmentation: np.ndarray, granger: np.ndarray) -> RoundState:
    return RoundState(AugmentState(jnp.asarray(augmentation)), ServerState(jnp.asarray(granger)))
