"""Losses along training, a row after every eighth of a pass (`trace.parquet`), in any run.

- `pass_index`: the pass, from 0; every round of Newton is one.
- `round`: rounds made when the row was written.
- `client`: its name.
- `local_loss`: mean squared error of the client's prediction of its measurements. NaN where rounds
  are messages: it stays with the client.
- `server_loss`: mean square of what the server's row leaves of the client's correction.

Both are means over the time steps of the rounds since the row before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

TRACE_COLUMNS = ["pass_index", "round", "client", "local_loss", "server_loss"]
ROWS_PER_PASS = 8
LARGEST_STEPS = 65_536


class TraceRow(NamedTuple):
    """Mean losses per client over the rounds since the row before; `round` have been made."""

    pass_index: int
    round: int
    local_loss: np.ndarray
    server_loss: np.ndarray


def rounds_per_row(rounds_per_pass: int, window: int) -> int:
    """An eighth of a pass, bounded so that memory for them does not grow with T."""
    return max(1, min(-(-rounds_per_pass // ROWS_PER_PASS), LARGEST_STEPS // window))


def trace_table(names: tuple[str, ...], rows: Iterable[TraceRow]) -> pd.DataFrame:
    """The rows of all clients, `TRACE_COLUMNS`."""
    table = [
        (row.pass_index, row.round, *values)
        for row in rows
        for values in zip(names, row.local_loss, row.server_loss, strict=True)
    ]
    return pd.DataFrame(table, columns=TRACE_COLUMNS)


class LossTrace:
    """The trace of rounds that come one by one."""

    def __init__(self, num_clients: int, rounds_per_pass: int, rounds_per_row: int) -> None:
        self._per_pass, self._per_row = rounds_per_pass, rounds_per_row
        self.rows: list[TraceRow] = []
        self._mean, self._steps = np.zeros(num_clients), np.zeros(num_clients)

    def add(self, round_index: int, losses: np.ndarray, num_steps: np.ndarray) -> None:
        """Take in a round's losses, means over so many steps per client."""
        self._steps = self._steps + num_steps
        share = num_steps / np.maximum(self._steps, 1.0)
        self._mean = self._mean + (losses - self._mean) * share
        done = round_index % self._per_pass + 1
        if done % self._per_row == 0 or done == self._per_pass:
            unknown = np.full(len(losses), np.nan)
            place = round_index // self._per_pass, round_index + 1
            self.rows.append(TraceRow(*place, unknown, self._mean))
            self._mean, self._steps = np.zeros(len(losses)), np.zeros(len(losses))

    def memory(self) -> dict[str, Any]:
        """All that a restart needs."""
        rows = [[row.pass_index, row.round, *row.server_loss.tolist()] for row in self.rows]
        return {"rows": rows, "mean": self._mean.tolist(), "steps": self._steps.tolist()}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Undo `memory`."""
        self._mean, self._steps = np.array(values["mean"]), np.array(values["steps"])
        unknown = np.full(len(self._mean), np.nan)
        self.rows = [
            TraceRow(int(row[0]), int(row[1]), unknown, np.array(row[2:])) for row in values["rows"]
        ]
