"""How the server takes part in training: step-wise, by exact solves, or with recurrent rows.

A trainer holds what stays the same in a run; what changes is its memory, all that a restart needs.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

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
from fedgranger.server.loss_trace import rounds_per_row
from fedgranger.server.neural_trainer import NeuralMemory, NeuralTrainer
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


class SgdMemory(NamedTuple):
    """What the server must not lose between step-wise rounds.

    Attributes:
        rows: Â, padded to the largest client.
        pass_start: the rows when the present pass began.
        changes: how the last passes moved (`convergence.Progress`).
        distance: estimated relative distance to the limit.
        losses: of every row in the last round.
    """

    rows: np.ndarray
    pass_start: np.ndarray
    changes: np.ndarray
    distance: np.ndarray
    losses: np.ndarray


class SgdTrainer:
    """The paper's loop over windows of W time steps."""

    sends_filtered_once = False
    ends_by_reports = True

    def __init__(self, rows: Rows, config: RunConfig, window: int) -> None:
        self._rows, self._config, self._window = rows, config, window
        self._coupling = couplings(rows.names, config)
        self.step_sizes = row_step_sizes(rows.state_gains, self._coupling, config)
        self._params = server_params(rows.transitions, self._coupling, self.step_sizes, config)
        self.rounds_per_pass = -(-rows.num_pairs // window)
        self.rounds_per_row = rounds_per_row(self.rounds_per_pass, window)
        self.most_rounds = config.passes * self.rounds_per_pass

    def initial(self) -> SgdMemory:
        """Rows drawn from the prior."""
        names = self._rows.names
        rows = initial_rows(names, self._rows.dims, self._coupling, self._config)
        changes, distance = convergence.start(len(names))
        return SgdMemory(rows, rows, changes, np.array(distance), np.zeros(len(names)))

    def granger(self, memory: SgdMemory) -> np.ndarray:
        """Â without its diagonal blocks, P x P."""
        return pack_square(memory.rows, self._rows.dims)

    def spans(self, round_index: int) -> list[int]:
        """One piece: the round's window."""
        start = (round_index % self.rounds_per_pass) * self._window
        return [min(self._window, self._rows.num_pairs - start)]

    def step(
        self, memory: SgdMemory, round_index: int, messages: RoundMessages
    ) -> tuple[SgdMemory, list[np.ndarray] | None]:
        """One descent step of every row."""
        if round_index and round_index % self.rounds_per_pass == 0:
            memory = _end_pass(memory, messages)
            is_last = round_index // self.rounds_per_pass >= self._config.passes
            if is_last or memory.distance <= self._config.tolerance:
                return memory, None
        p, steps = max(self._rows.dims), len(messages.filtered[0])
        stacked = ClientMessage(
            jax_array(pad_stack(messages.filtered, (steps, p))),
            jax_array(pad_stack(messages.augmented, (steps, p))),
            jax_array(np.stack(messages.observed).astype(np.bool_)),
        )
        state, reply, info = _answer(self._params, ServerState(jax_array(memory.rows)), stacked)
        gradients = np.asarray(reply.gradients)
        return (
            memory._replace(
                rows=np.asarray(state.granger_row), losses=np.asarray(info.server_loss)
            ),
            [gradients[m, :, :dim] for m, dim in enumerate(self._rows.dims)],
        )


def _end_pass(memory: SgdMemory, messages: RoundMessages) -> SgdMemory:
    """Judge how far the limit is; the next pass begins."""
    if messages.reports is None:
        raise RuntimeError("a pass ended without the clients' reports")
    change, size = np.array(messages.reports).T
    moved = convergence.row_size(memory.rows - memory.pass_start)
    changes, distance = convergence.update(
        Progress(memory.changes, float(memory.distance)),
        np.stack([change, moved]),
        np.stack([size, convergence.row_size(memory.rows)]),
    )
    return memory._replace(pass_start=memory.rows, changes=changes, distance=np.array(distance))


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


Memory = SgdMemory | NewtonMemory | NeuralMemory


@runtime_checkable
class Trainer(Protocol):
    """What stays the same in a run.

    Attributes:
        sends_filtered_once: filtered states come up in the first round only.
        step_sizes: of every row, where there are any.
        rounds_per_pass: rounds that go once through the record.
        rounds_per_row: so many rounds have a row of losses together.
        ends_by_reports: the last round brings only the clients' reports on the pass before it.
        most_rounds: training ends there at the latest.
    """

    sends_filtered_once: bool
    step_sizes: tuple[ServerStepSize, ...]
    rounds_per_pass: int
    rounds_per_row: int
    ends_by_reports: bool
    most_rounds: int

    def initial(self) -> Any:
        """The memory before the first round."""
        ...

    def granger(self, memory: Any) -> np.ndarray:
        """Â without its diagonal blocks, P x P."""
        ...

    def spans(self, round_index: int) -> list[int]:
        """Time steps of every piece of a round."""
        ...

    def step(
        self, memory: Any, round_index: int, messages: RoundMessages
    ) -> tuple[Any, list[np.ndarray] | None]:
        """One round: the next memory and all clients' gradients, None when it was the last."""
        ...


def make_trainer(rows: Rows, config: RunConfig, window: int, message_steps: int) -> Trainer:
    """The trainer that the options ask for."""
    if config.training_solver == "newton":
        return NewtonTrainer(rows, config, message_steps)
    if config.training_solver == "neural":
        return NeuralTrainer(rows, config)
    return SgdTrainer(rows, config, window)


_answer = jax.jit(answer)
