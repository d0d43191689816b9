"""How the server takes part in exact solves: every row at once, and gradients at it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.config import RunConfig
from fedgranger.linalg.blocks import client_slices
from fedgranger.server import row_solver
from fedgranger.server.round_messages import RoundMessages, Rows
from fedgranger.server.row_setup import ServerStepSize, couplings
from fedgranger.server.row_solver import RowHistory

NEWTON_TOLERANCE = 1e-10


class NewtonMemory(NamedTuple):
    """What the server must not lose between exact solves.

    Attributes:
        rows: of Â, the columns that each client listens to.
        histories: earlier rows, for the extrapolation.
        distance: largest relative distance ‖Φ(x) − x‖ of a row.
        losses: of every row in the last round.
    """

    rows: tuple[np.ndarray, ...]
    histories: tuple[RowHistory, ...]
    distance: np.ndarray
    losses: np.ndarray


class NewtonTrainer:
    """Exact solves of every row, extrapolated."""

    sends_filtered_once = True
    ends_by_reports = False
    rounds_per_row = 1
    rounds_per_pass = 1

    def __init__(self, rows: Rows, config: RunConfig, message_steps: int) -> None:
        self._rows, self._config, self._size = rows, config, message_steps
        coupling = couplings(rows.names, config)
        owner = np.repeat(np.arange(len(rows.names)), rows.dims)
        self.step_sizes: tuple[ServerStepSize, ...] = ()
        self._columns = [np.flatnonzero(listens[owner]) for listens in coupling]
        self._solvers: list[row_solver.NewtonRow] = []  # of states that never change
        self._own = client_slices(rows.dims)
        self.most_rounds = config.last_round

    def initial(self) -> NewtonMemory:
        """Rows of zeros; the first round solves for them."""
        sizes = [(dim, len(own)) for dim, own in zip(self._rows.dims, self._columns, strict=True)]
        histories = tuple(row_solver.empty_history(*size) for size in sizes)
        rows, losses = tuple(np.zeros(size) for size in sizes), np.zeros(len(sizes))
        return NewtonMemory(rows, histories, np.array(np.inf), losses)

    def granger(self, memory: NewtonMemory) -> np.ndarray:
        """Â without its diagonal blocks, P x P."""
        total = sum(self._rows.dims)
        out = np.zeros((total, total))
        for own, columns, row in zip(self._own, self._columns, memory.rows, strict=True):
            out[own, columns] = row
        return out

    def spans(self, round_index: int) -> list[int]:  # noqa: ARG002
        """All time steps, in pieces."""
        num_pairs = self._rows.num_pairs
        return [min(self._size, num_pairs - start) for start in range(0, num_pairs, self._size)]

    def step(
        self, memory: NewtonMemory, round_index: int, messages: RoundMessages
    ) -> tuple[NewtonMemory, list[np.ndarray] | None]:
        """Solve every row, choose where to go on from, and compute the gradients there."""
        states = np.concatenate(messages.filtered, axis=1)
        observed = [np.asarray(flags) > 0 for flags in messages.observed]
        if not self._solvers:
            ridge = self._config.granger_ridge
            self._solvers = [
                row_solver.prepare(states, flags, columns, ridge)
                for flags, columns in zip(observed, self._columns, strict=True)
            ]
        rows, histories = list(memory.rows), list(memory.histories)
        gradients, distances, losses = [], [], []
        for m, (A, solver, flags) in enumerate(
            zip(self._rows.transitions, self._solvers, observed, strict=True)
        ):
            correction = flags[:, None] * ((messages.augmented[m] - messages.filtered[m]) @ A.T)
            solved = row_solver.solve(solver, correction)
            distance = np.inf
            if round_index == 0:  # the first θ came from its prior, not from a row
                rows[m] = solved
            else:
                histories[m], rows[m], distance = row_solver.accelerate(
                    histories[m], rows[m], solved
                )
            distances.append(distance)
            predicted = states[:, self._columns[m]] @ rows[m].T
            residual = flags[:, None] * (correction - predicted)
            losses.append((residual**2).sum() / max(float(flags.sum()), 1.0))
            gradients.append(2 * residual @ A)
        distance = np.array(max(distances))
        memory = NewtonMemory(tuple(rows), tuple(histories), distance, np.array(losses))
        is_last = distance <= NEWTON_TOLERANCE or round_index >= self.most_rounds
        return memory, None if is_last else gradients
