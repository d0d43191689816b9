"""A run's state on disk: enough to continue bit for bit, tied to its data and options."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedgranger._version import __version__
from fedgranger.client.augment import AugmentState
from fedgranger.client.params import LocalModel
from fedgranger.config import RunConfig
from fedgranger.convergence import Progress
from fedgranger.errors import RunError
from fedgranger.federation.store import DiskFiles, NoRecords, Record, Store
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.rounds import RoundState
from fedgranger.run_folder import CHECKPOINT, FORMER, MANIFEST, OF_OLDER_VERSION
from fedgranger.runtime.inprocess import Snapshot
from fedgranger.server.granger import ServerState
from fedgranger.server.loss_trace import TraceRow


class Checkpoints:
    """A run's checkpoint: where it goes on from, and where its state is left now and then.

    It is a record of a `Store`, like those that the parties of a federation go on from.

    Args:
        folder: the run folder; None keeps nothing.
        fingerprint: identifies data, options and version; a resume must match it.
        seconds: how often to save.
        is_resumed: continue from what is there.

    Raises:
        RunError: there is nothing to resume, it is damaged, or belongs to other data or options.
    """

    def __init__(
        self, folder: Path | None, fingerprint: str, seconds: float, *, is_resumed: bool
    ) -> None:
        self._folder, self._fingerprint, self.seconds = folder, fingerprint, seconds
        self._store = NoRecords() if folder is None else Store(DiskFiles(folder))
        self.is_resumed = is_resumed and folder is not None
        self.resumed: Snapshot | None = None
        self.trace: list[TraceRow] = []
        self.rounds: Record | None = None
        if is_resumed and folder is not None:
            self._load(folder)

    def save(self, snapshot: Snapshot | None) -> None:
        """Write the state after the last completed chunk, and the losses so far.

        Without a snapshot it is a mark only: there is a run to resume.
        """
        arrays = {} if snapshot is None else _arrays(snapshot, self.trace)
        self._store.save(CHECKPOINT, {"fingerprint": self._fingerprint}, arrays)

    def save_rounds(self, values: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Write where rounds that are made one by one stand."""
        self._store.save(CHECKPOINT, {"fingerprint": self._fingerprint, "rounds": values}, arrays)

    def file(self, name: str) -> Path | None:
        """A file of the run folder, if there is one."""
        return None if self._folder is None else self._folder / name

    def forget(self, *names: str) -> None:
        """Remove files that nothing will be continued from."""
        if self._folder is not None:
            for name in names:
                (self._folder / name).unlink(missing_ok=True)

    def _load(self, folder: Path) -> None:
        """Go on from the checkpoint of the same run; from the beginning where it is a mark only."""
        path = folder / CHECKPOINT
        damaged = RunError(
            f"{path}: damaged checkpoint; use --overwrite instead of --resume to start again"
        )
        record = self._store.load(CHECKPOINT, if_damaged=damaged)
        if record is None:
            refuse_former(folder)
            is_finished = (folder / MANIFEST).exists()
            state, remedy = f"there is no {CHECKPOINT}", "run without --resume"
            if is_finished:
                state = "the run is finished"
                remedy = "to fit again use --overwrite instead of --resume"
            raise RunError(f"{folder}: nothing to resume, {state}; {remedy}")
        values, arrays = record
        try:
            known = values["fingerprint"]
            is_snapshot = len(arrays) > 0 and "rounds" not in values
            resumed = _unpack(arrays) if is_snapshot else (None, [])
        except (LookupError, TypeError, ValueError):  # whole, but something else
            raise damaged from None
        if known != self._fingerprint:
            raise RunError(
                f"{path}: was made with other data, options or version; "
                "repeat the command that started the run, or use another --out"
            )
        self.resumed, self.trace = resumed
        if "rounds" in values:
            self.rounds = values["rounds"], arrays


def refuse_former(folder: Path) -> None:
    """Refuse a folder whose only checkpoint has the former format.

    Raises:
        RunError: it has.
    """
    if (folder / FORMER).exists() and not (folder / CHECKPOINT).exists():
        raise RunError(f"{folder}: holds {OF_OLDER_VERSION}")


def _arrays(snapshot: Snapshot, trace: list[TraceRow]) -> dict[str, np.ndarray]:
    return {
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


def _unpack(arrays: dict[str, np.ndarray]) -> tuple[Snapshot, list[TraceRow]]:
    pass_index, chunk, is_finished = (int(value) for value in arrays["position"])
    rows = zip(
        arrays["trace_position"].tolist(), arrays["local_loss"], arrays["server_loss"], strict=True
    )
    trace = [TraceRow(int(place[0]), int(place[1]), local, server) for place, local, server in rows]
    snapshot = Snapshot(
        pass_index,
        chunk,
        _state(arrays["augmentation"], arrays["granger"]),
        _state(arrays["start_augmentation"], arrays["start_granger"]),
        Progress(arrays["changes"], float(arrays["distance"])),
        bool(is_finished),
    )
    return snapshot, trace


def _state(augmentation: np.ndarray, granger: np.ndarray) -> RoundState:
    return RoundState(AugmentState(jax_array(augmentation)), ServerState(jax_array(granger)))


def fingerprint(data_hash: str, config: RunConfig, models: Mapping[str, LocalModel]) -> str:
    """Tell a run by its data, options, declared models and version from others."""
    digest = hashlib.sha256(f"{__version__} {data_hash}".encode())
    digest.update(json.dumps(config.to_mapping(), sort_keys=True).encode())
    for name, model in sorted(models.items()):
        digest.update(name.encode())
        for leaf in jax.tree.leaves(model):
            digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()
