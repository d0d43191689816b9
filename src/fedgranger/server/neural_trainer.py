"""How the server takes part in neural training: recurrent rows, and a last pass that only reads.

Rounds and messages are those of step-wise training. After `network_passes` passes the rows stand
still for one more: every round of it gives their Jacobians, averaged over the time steps of each
sequence. The trace of these over time is the time-varying Granger block, its mean is Â.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np

from fedgranger.config import RunConfig
from fedgranger.linalg.blocks import client_slices, pack_square, pad_stack
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.recurrent import NetworkShape, Trained, cut, joined, untrained
from fedgranger.server import neural_rows
from fedgranger.server.granger import stack_states
from fedgranger.server.jacobian_trace import JacobianTrace
from fedgranger.server.loss_trace import rounds_per_row
from fedgranger.server.neural_rows import NeuralParams, SequenceMessages
from fedgranger.server.round_messages import RoundMessages, Rows
from fedgranger.server.row_setup import ServerStepSize, couplings, draw_prior

_answer = eqx.filter_jit(neural_rows.answer)
_jacobians = eqx.filter_jit(neural_rows.jacobians)


def row_shape(dims: tuple[int, ...], config: RunConfig) -> NetworkShape:
    """Sizes of a row's network; states are padded to the largest client's."""
    p = max(dims)
    return NetworkShape(len(dims) * p, config.server_hidden_dim, p)


def first_weights(names: tuple[str, ...], shape: NetworkShape, config: RunConfig) -> np.ndarray:
    """Draw every row's first weights from the prior of Â⁰, with the run's seed."""
    return np.stack([draw_prior((shape.num_weights,), config, "network", name) for name in names])


def row_params(rows: Rows, config: RunConfig) -> NeuralParams:
    """Constants of all rows; a network sees its own client and those that may influence it."""
    p, M = max(rows.dims), len(rows.names)
    seen = couplings(rows.names, config) | np.eye(M, dtype=np.bool_)
    return NeuralParams(
        jax_array(pad_stack(rows.transitions, (p, p))),
        jax_array(np.full(M, config.next_state_weight)),
        jax_array(np.repeat(seen, p, axis=1).astype(np.float64)),
    )


def sequence_messages(
    messages: RoundMessages, starts: np.ndarray, cut_steps: Callable[[np.ndarray], np.ndarray]
) -> SequenceMessages:
    """A round's messages cut into sequences; a next state must follow and be measured.

    The last time step of a round has none: its next state comes with the next round.
    """
    shape = (len(starts), max(part.shape[1] for part in messages.filtered))
    observed = [np.asarray(flags) > 0 for flags in messages.observed]
    following = np.append(~starts[1:], False)

    def shifted(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values[1:], np.zeros_like(values[:1])])

    columns = (
        pad_stack(messages.filtered, shape),
        pad_stack(messages.augmented, shape),
        pad_stack([shifted(part) for part in messages.filtered], shape),
        np.stack(observed),
        np.stack([flags & shifted(flags) & following for flags in observed]),
    )
    return SequenceMessages(*(jax_array(np.stack([*map(cut_steps, part)])) for part in columns))


class NeuralMemory(NamedTuple):
    """What the server must not lose between rounds of neural training.

    Attributes:
        trained: every row's weights, with Adam's moments.
        jacobian: Granger blocks over time, as far as they have been read.
        distance: infinite; networks have no limit that could be known.
        losses: of every row in the last round.
    """

    trained: Trained
    jacobian: JacobianTrace
    distance: np.ndarray
    losses: np.ndarray


class NeuralTrainer:
    """Recurrent rows in windows of `batch_steps` time steps."""

    sends_filtered_once = False
    ends_by_reports = False

    def __init__(self, rows: Rows, config: RunConfig) -> None:
        self._rows, self._config = rows, config
        self._shape = row_shape(rows.dims, config)
        self.step_sizes: tuple[ServerStepSize, ...] = ()
        self.rounds_per_pass = -(-rows.num_pairs // config.batch_steps)
        self.most_rounds = (config.network_passes + 1) * self.rounds_per_pass
        self.rounds_per_row = rounds_per_row(self.rounds_per_pass, config.batch_steps)
        self._params = row_params(rows, config)

    def initial(self) -> NeuralMemory:
        """Weights drawn from the prior; nothing has been read."""
        names, P, none = self._rows.names, sum(self._rows.dims), np.zeros(0, dtype=np.int64)
        trained = untrained(first_weights(names, self._shape, self._config))
        jacobian = JacobianTrace(none, none, np.zeros((0, P, P)), np.zeros((0, P, P)))
        return NeuralMemory(trained, jacobian, np.array(np.inf), np.zeros(len(names)))

    def granger(self, memory: NeuralMemory) -> np.ndarray:
        """Mean Jacobian without its diagonal blocks, P x P."""
        P = sum(self._rows.dims)
        out = memory.jacobian.mean if len(memory.jacobian.blocks) else np.zeros((P, P))
        owner = np.repeat(np.arange(len(self._rows.dims)), self._rows.dims)
        return np.where(owner[:, None] == owner[None, :], 0.0, out)

    def spans(self, round_index: int) -> list[int]:
        """One piece: the round's window."""
        start = self._first_step(round_index)
        return [min(self._config.batch_steps, self._rows.num_pairs - start)]

    def _first_step(self, round_index: int) -> int:
        return (round_index % self.rounds_per_pass) * self._config.batch_steps

    def step(
        self, memory: NeuralMemory, round_index: int, messages: RoundMessages
    ) -> tuple[NeuralMemory, list[np.ndarray] | None]:
        """One step of Adam of every row; in the last pass the Jacobians instead."""
        is_reading = round_index >= self._config.network_passes * self.rounds_per_pass
        window, is_start = self._window(round_index, messages)
        trained, rate = Trained(*map(jax_array, memory.trained)), self._config.server_learning_rate
        found, replies, losses = _answer(self._shape, rate, self._params, trained, window, is_start)
        memory = memory._replace(losses=np.asarray(losses))
        if is_reading:
            memory = memory._replace(jacobian=self._read(memory, round_index, window, is_start))
        else:
            weights = Trained(*(np.asarray(part) for part in found))  # type: ignore[arg-type]
            memory = memory._replace(trained=weights)
        if round_index >= self.most_rounds - 1:
            return memory, None
        steps = self.spans(round_index)[0]
        replies = np.asarray(replies)
        return memory, [joined(replies[m], steps)[:, :dim] for m, dim in enumerate(self._rows.dims)]

    def _window(
        self, round_index: int, messages: RoundMessages
    ) -> tuple[SequenceMessages, jax.Array]:
        """A round's messages cut into sequences, and where time has a break."""
        first, steps = self._first_step(round_index), self.spans(round_index)[0]
        starts = self._rows.starts[first : first + steps]
        return sequence_messages(messages, starts, self._cut), jax_array(self._cut(starts))

    def _read(
        self,
        memory: NeuralMemory,
        round_index: int,
        window: SequenceMessages,
        is_start: jax.Array,
    ) -> JacobianTrace:
        """The trace with the Jacobians of one more round."""
        states = stack_states(window.filtered_states)
        weights = jax_array(memory.trained.weights)
        found = np.asarray(_jacobians(self._shape, self._params, weights, states, is_start))
        steps, L = self.spans(round_index)[0], self._config.sequence_steps
        firsts = np.arange(0, steps, L)
        lengths = np.minimum(steps - firsts, L)
        parts = [self._whole_blocks(found[:, k, :length]) for k, length in enumerate(lengths)]
        before = memory.jacobian
        return JacobianTrace(
            np.append(before.first_steps, self._first_step(round_index) + firsts),
            np.append(before.num_steps, lengths),
            np.concatenate([before.blocks, np.stack([J.mean(axis=0) for J in parts])]),
            np.concatenate([before.squares, np.stack([(J**2).mean(axis=0) for J in parts])]),
        )

    def _whole_blocks(self, rows: np.ndarray) -> np.ndarray:
        """J of some time steps, (step, P, P), from the padded rows; A_mm is added."""
        dims = self._rows.dims
        out = np.stack([pack_square(rows[:, t], dims) for t in range(rows.shape[1])])
        for own, A in zip(client_slices(dims), self._rows.transitions, strict=True):
            out[:, own, own] += A
        return out

    def _cut(self, values: np.ndarray) -> np.ndarray:
        L = self._config.sequence_steps
        return cut(values, -(-min(self._config.batch_steps, self._rows.num_pairs) // L), L)
