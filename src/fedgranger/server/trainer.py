"""How the server takes part in training: step-wise, by exact solves, or with recurrent rows.

All trainers take in a round's messages (`absorb`) and return the gradients of all clients, or None
when it was the last round; `spans` are the lengths of a round's pieces, `memory` is all that a
restart needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fedgranger import convergence
from fedgranger.config import RunConfig
from fedgranger.convergence import Progress
from fedgranger.linalg.blocks import client_slices, pack_square, pad_stack
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.messages import ClientMessage
from fedgranger.server import row_solver
from fedgranger.server.granger import ServerState, answer
from fedgranger.server.jacobian_trace import JacobianTrace
from fedgranger.server.loss_trace import rounds_per_row
from fedgranger.server.neural_trainer import NeuralTrainer
from fedgranger.server.round_messages import RoundMessages, Rows
from fedgranger.server.row_setup import (
    ServerStepSize,
    couplings,
    initial_rows,
    row_step_sizes,
    server_params,
)
from fedgranger.server.row_solver import RowHistory

NEWTON_TOLERANCE = 1e-10


class SgdTrainer:
    """The paper's loop over windows of W time steps."""

    sends_filtered_once = False
    ends_by_reports = True
    """The last round brings only the clients' reports on the pass before it."""
    jacobian: JacobianTrace | None = None

    def __init__(self, rows: Rows, config: RunConfig, window: int) -> None:
        self._rows, self._config, self._window = rows, config, window
        coupling = couplings(rows.names, config)
        self.step_sizes = row_step_sizes(rows.state_gains, coupling, config)
        self._params = server_params(rows.transitions, coupling, self.step_sizes, config)
        self._state = initial_rows(rows.names, rows.dims, coupling, config)
        self._pass_start = self._state
        self._progress = convergence.start(len(rows.names))
        self.rounds_per_pass = -(-rows.num_pairs // window)
        self.rounds_per_row = rounds_per_row(self.rounds_per_pass, window)
        self.most_rounds = config.passes * self.rounds_per_pass
        self.losses = np.zeros(len(rows.names))

    @property
    def granger(self) -> np.ndarray:
        """Â without its diagonal blocks, P x P."""
        return pack_square(self._state, self._rows.dims)

    @property
    def distance(self) -> float:
        """Estimated relative distance to the limit."""
        return self._progress.distance

    def spans(self, round_index: int) -> list[int]:
        """One piece: the round's window."""
        start = (round_index % self.rounds_per_pass) * self._window
        return [min(self._window, self._rows.num_pairs - start)]

    def absorb(self, round_index: int, messages: RoundMessages) -> list[np.ndarray] | None:
        """One descent step of every row."""
        if round_index and round_index % self.rounds_per_pass == 0:
            self._end_pass(messages)
            is_last = round_index // self.rounds_per_pass >= self._config.passes
            if is_last or self._progress.distance <= self._config.tolerance:
                return None
        p, steps = max(self._rows.dims), len(messages.filtered[0])
        stacked = ClientMessage(
            jax_array(pad_stack(messages.filtered, (steps, p))),
            jax_array(pad_stack(messages.augmented, (steps, p))),
            jax_array(np.stack(messages.observed).astype(np.bool_)),
        )
        state, reply, info = _answer(self._params, ServerState(jax_array(self._state)), stacked)
        self._state = np.asarray(state.granger_row)
        self.losses = np.asarray(info.server_loss)
        gradients = np.asarray(reply.gradients)
        return [gradients[m, :, :dim] for m, dim in enumerate(self._rows.dims)]

    def _end_pass(self, messages: RoundMessages) -> None:
        if messages.reports is None:
            raise RuntimeError("a pass ended without the clients' reports")
        change, size = np.array(messages.reports).T
        moved = convergence.row_size(self._state - self._pass_start)
        self._progress = convergence.update(
            self._progress,
            np.stack([change, moved]),
            np.stack([size, convergence.row_size(self._state)]),
        )
        self._pass_start = self._state

    def memory(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Rows, where the pass began, and how the last passes moved."""
        distance = self._progress.distance
        return {"distance": distance if np.isfinite(distance) else None}, {
            "rows": self._state,
            "pass_start": self._pass_start,
            "changes": self._progress.changes,
            "losses": self.losses,
        }

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Undo `memory`."""
        self._state, self._pass_start = arrays["rows"], arrays["pass_start"]
        distance = values["distance"]
        self._progress = Progress(arrays["changes"], np.inf if distance is None else distance)
        self.losses = arrays["losses"]


class NewtonTrainer:
    """Exact solves of every row, extrapolated."""

    sends_filtered_once = True
    ends_by_reports = False
    rounds_per_row = 1
    rounds_per_pass = 1
    jacobian: JacobianTrace | None = None

    def __init__(self, rows: Rows, config: RunConfig, message_steps: int) -> None:
        self._rows, self._config, self._size = rows, config, message_steps
        coupling = couplings(rows.names, config)
        owner = np.repeat(np.arange(len(rows.names)), rows.dims)
        self.step_sizes: tuple[ServerStepSize, ...] = ()
        self._columns = [np.flatnonzero(listens[owner]) for listens in coupling]
        self._solvers: list[row_solver.NewtonRow] = []
        self._own = client_slices(rows.dims)
        self._current = [
            np.zeros((dim, len(columns)))
            for dim, columns in zip(rows.dims, self._columns, strict=True)
        ]
        self._histories = [row_solver.empty_history(*row.shape) for row in self._current]
        self._has_answered = False
        self.most_rounds = config.last_round
        self.distance = np.inf  # largest relative distance ‖Φ(x) − x‖ of a row
        self.losses = np.zeros(len(rows.names))

    @property
    def granger(self) -> np.ndarray:
        """Â without its diagonal blocks, P x P."""
        total = sum(self._rows.dims)
        out = np.zeros((total, total))
        for own, columns, row in zip(self._own, self._columns, self._current, strict=True):
            out[own, columns] = row
        return out

    def spans(self, round_index: int) -> list[int]:  # noqa: ARG002
        """All time steps, in pieces."""
        num_pairs = self._rows.num_pairs
        return [min(self._size, num_pairs - start) for start in range(0, num_pairs, self._size)]

    def absorb(self, round_index: int, messages: RoundMessages) -> list[np.ndarray] | None:
        """Solve every row, choose where to go on from, and compute the gradients there."""
        states = np.concatenate(messages.filtered, axis=1)
        observed = [np.asarray(flags) > 0 for flags in messages.observed]
        if not self._solvers:
            ridge = self._config.granger_ridge
            self._solvers = [
                row_solver.prepare(states, flags, columns, ridge)
                for flags, columns in zip(observed, self._columns, strict=True)
            ]
        gradients, distances = [], []
        for m, (A, solver, flags) in enumerate(
            zip(self._rows.transitions, self._solvers, observed, strict=True)
        ):
            correction = flags[:, None] * ((messages.augmented[m] - messages.filtered[m]) @ A.T)
            solved = row_solver.solve(solver, correction)
            distance = np.inf
            if not self._has_answered:  # the first θ came from its prior, not from a row
                self._current[m] = solved
            else:
                self._histories[m], self._current[m], distance = row_solver.accelerate(
                    self._histories[m], self._current[m], solved
                )
            distances.append(distance)
            predicted = states[:, self._columns[m]] @ self._current[m].T
            residual = flags[:, None] * (correction - predicted)
            self.losses[m] = (residual**2).sum() / max(float(flags.sum()), 1.0)
            gradients.append(2 * residual @ A)
        self._has_answered = True
        self.distance = float(max(distances))
        if self.distance <= NEWTON_TOLERANCE or round_index >= self.most_rounds:
            return None
        return gradients

    def memory(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Rows and their histories."""
        arrays: dict[str, np.ndarray] = {"losses": self.losses}
        for m, (row, history) in enumerate(zip(self._current, self._histories, strict=True)):
            arrays[f"row_{m}"] = row
            arrays[f"rows_{m}"], arrays[f"solved_{m}"] = history
        values = {
            "has_answered": self._has_answered,
            "distance": self.distance if np.isfinite(self.distance) else None,
        }
        return values, arrays

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Undo `memory`."""
        count = range(len(self._current))
        self._current = [arrays[f"row_{m}"] for m in count]
        self._histories = [RowHistory(arrays[f"rows_{m}"], arrays[f"solved_{m}"]) for m in count]
        self._has_answered = values["has_answered"]
        self.distance = np.inf if values["distance"] is None else values["distance"]
        self.losses = np.array(arrays["losses"])


Trainer = SgdTrainer | NewtonTrainer | NeuralTrainer


def make_trainer(rows: Rows, config: RunConfig, window: int, message_steps: int) -> Trainer:
    """The trainer that the options ask for."""
    if config.training_solver == "newton":
        return NewtonTrainer(rows, config, message_steps)
    if config.training_solver == "neural":
        return NeuralTrainer(rows, config)
    return SgdTrainer(rows, config, window)


_answer = jax.jit(answer)
