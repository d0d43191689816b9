"""The run that a client follows: how far it is, kept on the site's disk.

θ of a round is a fact that never changes; those of the last two rounds are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fedgranger.client.learner import ClientMemory
from fedgranger.data.time_axis import TimeGrid
from fedgranger.federation.store import Store

RECORD = "party"
KEPT_ROUNDS = 2


class FollowedRun(NamedTuple):
    """What a client knows of a run.

    Attributes:
        run: its name.
        options: the client's options as text.
        epoch: of the server's last start.
        round_index: the last round.
        rounds: θ of the rounds that it still has.
        grid: the common time axis; None before the run has begun.
    """

    run: str = ""
    options: str = ""
    epoch: int = 0
    round_index: int = 0
    rounds: Mapping[int, ClientMemory] = {}
    grid: TimeGrid | None = None

    def with_round(self, round_index: int, memory: ClientMemory) -> FollowedRun:
        """One round further."""
        kept = {k: one for k, one in self.rounds.items() if k > round_index - KEPT_ROUNDS}
        return self._replace(round_index=round_index, rounds={**kept, round_index: memory})

    def save(self, store: Store, data_hash: str) -> None:
        """Write it to the disk, whole or not at all."""
        grid, arrays = self.grid, {}
        values = {
            "run": self.run,
            "options": self.options,
            "epoch": self.epoch,
            "round": self.round_index,
            "rounds": sorted(self.rounds),
            "data": data_hash,
            "grid": None if grid is None else [grid[0], str(grid[1]), str(grid[2])],
        }
        for k, memory in self.rounds.items():
            arrays[f"augmentation_{k}"], arrays[f"pass_start_{k}"] = memory
        if grid is not None:
            arrays["stretches"] = np.array(grid.stretches, dtype=np.int64)
        store.save(RECORD, values, arrays)


def load_run(store: Store, data_hash: str) -> FollowedRun | None:
    """Read it; None when there is none, or of other data: what was learned does not hold."""
    record = store.load(RECORD)
    if record is None or record[0]["data"] != data_hash:
        return None
    values, arrays = record
    grid = None
    if values["grid"] is not None:
        if "stretches" not in arrays:  # of an older version
            return None
        kind, first, interval = values["grid"]
        stretches = tuple((start, stop) for start, stop in arrays["stretches"].tolist())
        grid = TimeGrid(kind, Fraction(first), Fraction(interval), stretches)
    rounds = {
        k: ClientMemory(arrays[f"augmentation_{k}"], arrays[f"pass_start_{k}"])
        for k in values["rounds"]
    }
    return FollowedRun(
        values["run"], values["options"], values["epoch"], values["round"], rounds, grid
    )
