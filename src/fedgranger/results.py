"""`Result`: the outcome of a fit, as tables and as a run folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.config import RunConfig, read_toml
from fedgranger.errors import RunError

__all__ = ["EDGE_COLUMNS", "ENTRY_COLUMNS", "Result", "write_atomically"]

EDGE_COLUMNS = ("cause", "effect", "strength", "statistic", "df", "p_value", "q_value", "is_edge")
ENTRY_COLUMNS = (
    "cause",
    "effect",
    "row",
    "col",
    "estimate",
    "std_error",
    "ci_low",
    "ci_high",
    "p_value",
)


@dataclass(frozen=True, eq=False)
class Result:
    """What a fit found.

    Attributes:
        clients: names, in the order of the panel.
        state_dims: states per client, same order.
        granger: Â with A_mm on the diagonal, P x P; block [m, n] is the influence of n on m.
        augmentations: θ_m per client (in a deployment they stay with their client).
        trace: losses along training; columns pass_index, round, client, local_loss, server_loss.
        manifest: versions, seed, data hash, timings, bytes and how training ended.
        config: the options of the run.
    """

    clients: tuple[str, ...]
    state_dims: tuple[int, ...]
    granger: np.ndarray
    augmentations: dict[str, np.ndarray]
    trace: pd.DataFrame
    manifest: dict[str, Any]
    config: RunConfig

    def block(self, effect: str, cause: str) -> np.ndarray:
        """Â_mn with m = effect, n = cause."""
        offsets = np.concatenate([[0], np.cumsum(self.state_dims)])
        for name in (effect, cause):
            if name not in self.clients:
                raise RunError(f"no client '{name}'; the run has {', '.join(self.clients)}")
        m, n = self.clients.index(effect), self.clients.index(cause)
        return self.granger[offsets[m] : offsets[m + 1], offsets[n] : offsets[n + 1]]

    def edges(self, *, sort: bool = False) -> pd.DataFrame:
        """One row per ordered pair of clients; `strength` is the Frobenius norm of its block.

        The test columns are empty: FedGC's estimate alone carries no p-value.

        Args:
            sort: strongest first, instead of by client order.
        """
        rows = [
            (cause, effect, float(np.linalg.norm(self.block(effect, cause))))
            for effect in self.clients
            for cause in self.clients
            if cause != effect
        ]
        table = pd.DataFrame(rows, columns=list(EDGE_COLUMNS[:3]))
        table = table.reindex(columns=list(EDGE_COLUMNS))
        if sort:
            table = table.sort_values("strength", ascending=False, kind="stable")
            table = table.reset_index(drop=True)
        return table

    def entries(self) -> pd.DataFrame:
        """One row per entry of every cross-client block (row and col count states from 0)."""
        rows = [
            (cause, effect, i, j, float(value))
            for effect in self.clients
            for cause in self.clients
            if cause != effect
            for (i, j), value in np.ndenumerate(self.block(effect, cause))
        ]
        table = pd.DataFrame(rows, columns=list(ENTRY_COLUMNS[:5]))
        return table.reindex(columns=list(ENTRY_COLUMNS))

    def save(self, folder: str | Path) -> None:
        """Write the run folder; every file appears whole, `manifest.json` last."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {
            f"augmentation_{m}": self.augmentations[name] for m, name in enumerate(self.clients)
        }
        arrays |= {
            "granger": self.granger,
            "clients": np.array(self.clients),
            "state_dims": np.array(self.state_dims),
        }
        write_atomically(
            folder / "config.toml", lambda path: path.write_text(self.config.to_toml())
        )
        write_atomically(folder / "estimate.npz", lambda path: _save_arrays(path, arrays))
        write_atomically(
            folder / "edges.csv", lambda path: self.edges().to_csv(path, index=False)
        )
        write_atomically(
            folder / "entries.csv", lambda path: self.entries().to_csv(path, index=False)
        )
        write_atomically(
            folder / "trace.parquet", lambda path: self.trace.to_parquet(path, index=False)
        )
        text = json.dumps(self.manifest, indent=1, ensure_ascii=False) + "\n"
        write_atomically(folder / "manifest.json", lambda path: path.write_text(text))

    @classmethod
    def load(cls, folder: str | Path) -> Result:
        """Read a run folder.

        Raises:
            RunError: the folder is not a finished run.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise RunError(f"{folder}: no such run folder; make one with 'fedgranger fit'")
        if not (folder / "manifest.json").exists():
            hint = (
                "it was interrupted, continue it with 'fedgranger fit --resume'"
                if (folder / "checkpoint.npz").exists()
                else "make one with 'fedgranger fit'"
            )
            raise RunError(f"{folder}: not a finished run; {hint}")
        try:
            with np.load(folder / "estimate.npz", allow_pickle=False) as arrays:
                clients = tuple(str(name) for name in arrays["clients"])
                return cls(
                    clients,
                    tuple(int(dim) for dim in arrays["state_dims"]),
                    arrays["granger"],
                    {name: arrays[f"augmentation_{m}"] for m, name in enumerate(clients)},
                    pd.read_parquet(folder / "trace.parquet"),
                    json.loads((folder / "manifest.json").read_text()),
                    RunConfig.from_mapping(read_toml(folder / "config.toml")),
                )
        except (OSError, KeyError, ValueError) as error:
            raise RunError(f"{folder}: damaged run folder ({error}); run the fit again") from None


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary neighbour, then rename it: readers never see half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with path.open("wb") as file:  # np.savez would append .npz to a temporary name
        np.savez(file, allow_pickle=False, **arrays)
