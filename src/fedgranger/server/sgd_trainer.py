"""How the server takes part in step-wise training: a descent step of every row per round."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from fedgranger import convergence
from fedgranger.config import RunConfig
from fedgranger.convergence import Progress
from fedgranger.linalg.blocks import pack_square, pad_stack
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.messages import ClientMessage
from fedgranger.server.granger import ServerState, answer
from fedgranger.server.loss_trace import rounds_per_row
from fedgranger.server.round_messages import RoundMessages, Rows
from fedgranger.server.row_setup import couplings, initial_rows, row_step_sizes, server_params

_answer = jax.jit(answer)


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
