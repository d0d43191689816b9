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

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

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


class LossTrace(NamedTuple):
    """The trace of rounds that come one by one.

    Attributes:
        places: pass and rounds made, of every row.
        server_losses: of every row.
        mean: losses since the last row.
        steps: observed time steps that they are means of.
    """

    places: Int[np.ndarray, "row 2"]
    server_losses: Float[np.ndarray, "row client"]
    mean: Float[np.ndarray, " client"]
    steps: Float[np.ndarray, " client"]

    @property
    def rows(self) -> list[TraceRow]:
        """Clients' own losses stay with them."""
        return [
            TraceRow(int(place[0]), int(place[1]), np.full(len(losses), np.nan), losses)
            for place, losses in zip(self.places, self.server_losses, strict=True)
        ]

    def add(
        self,
        round_index: int,
        losses: np.ndarray,
        num_steps: np.ndarray,
        *,
        rounds_per_pass: int,
        rounds_per_row: int,
    ) -> LossTrace:
        """With a round's losses, means over so many steps per client."""
        steps = self.steps + num_steps
        mean = self.mean + (losses - self.mean) * (num_steps / np.maximum(steps, 1.0))
        pass_index, before = divmod(round_index, rounds_per_pass)
        if (before + 1) % rounds_per_row and before + 1 < rounds_per_pass:
            return self._replace(mean=mean, steps=steps)
        places = np.concatenate([self.places, [[pass_index, round_index + 1]]])
        server_losses, none = np.concatenate([self.server_losses, mean[None]]), np.zeros(len(mean))
        return LossTrace(places, server_losses, none, none)


def no_losses(num_clients: int) -> LossTrace:
    """Before the first round."""
    places, none = np.zeros((0, 2), dtype=np.int64), np.zeros(num_clients)
    return LossTrace(places, np.zeros((0, num_clients)), none, none)
