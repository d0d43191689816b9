"""How a client takes part in neural training: its correction is a recurrent network.

Same rounds and messages as `learner`: a window of `batch_steps` time steps per round, states up,
gradients down. The window is cut into sequences of `sequence_steps`, which the network reads side
by side, each from an empty memory. A client's memory is one vector: weights and Adam's moments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from fedgranger.client import neural_augment
from fedgranger.client.learner import ClientMemory, Learner
from fedgranger.client.neural_augment import Prediction, SequenceWindow
from fedgranger.client.prepared_client import PreparedClient
from fedgranger.config import RunConfig
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.recurrent import NetworkShape, Trained, cut, joined, pack, unpack, untrained

_augment = eqx.filter_jit(neural_augment.augmented_states)
_descend = eqx.filter_jit(neural_augment.step)


class LinearPrediction(eqx.Module):
    """C A h: what a linear local model expects of a state."""

    predicted_observation: Float[Array, "obs_dim state_dim"]

    def __call__(self, state: Float[Array, " state_dim"]) -> Float[Array, " obs_dim"]:
        """The next measurement."""
        return self.predicted_observation @ state


def network_shape(num_sensors: int, state_dim: int, config: RunConfig) -> NetworkShape:
    """Sizes of a client's network."""
    return NetworkShape(num_sensors, config.client_hidden_dim, state_dim)


class NeuralLearner(Learner):
    """A client's network, from these weights.

    `starts`: steps that do not follow the one before; `predict`: what the local model expects.
    """

    def __init__(
        self,
        prepared: PreparedClient,
        config: RunConfig,
        weights: np.ndarray,
        starts: np.ndarray,
        predict: Prediction,
    ) -> None:
        super().__init__(prepared, config.batch_steps, weights)
        model = prepared.data.model
        self._shape = network_shape(model.num_sensors, model.state_dim, config)
        self._rate, self._starts, self._predict = config.client_learning_rate, starts, predict
        self._steps = config.sequence_steps

    def initial(self) -> ClientMemory:
        """The first weights, without any update."""
        return ClientMemory(pack(untrained(self._start)), np.zeros(0))

    def window(self, round_index: int) -> SequenceWindow:
        """The private inputs of a round; every round of a run has the same shape."""
        start, stop = self._span(round_index)
        y, data = self._prepared.data.scaled(start, stop + 1), self._prepared.data
        rows = slice(start, stop)
        parts = (
            y[:-1],
            y[1:],
            data.filtered_states[rows],
            data.is_observed[rows],
            data.has_next[rows],
            self._starts[rows],
        )
        return SequenceWindow(*(jax_array(self.cut(part)) for part in parts))

    def send(self, memory: ClientMemory, round_index: int, piece: int) -> Mapping[str, np.ndarray]:
        """Filtered and augmented states of a round."""
        weights = jax_array(unpack(memory.augmentation).weights)
        h_a = np.asarray(_augment(self._shape, weights, self.window(round_index)))
        h_c, observed = self.filtered(round_index)
        return {
            "filtered_states": h_c,
            "augmented_states": joined(h_a, self.piece_length(round_index, piece)),
            "is_observed": observed,
        }

    def filtered(self, round_index: int) -> tuple[np.ndarray, np.ndarray]:
        """h_c of a round, and where it was measured."""
        rows, data = slice(*self._span(round_index)), self._prepared.data
        return data.filtered_states[rows], data.is_observed[rows]

    def learn(
        self, memory: ClientMemory, round_index: int, gradients: Sequence[np.ndarray]
    ) -> ClientMemory:
        """One step of Adam on the window of the round before."""
        trained = Trained(*map(jax_array, unpack(memory.augmentation)))
        window, reply = self.window(round_index - 1), jax_array(self.cut(gradients[0]))
        new, _ = _descend(self._shape, self._predict, self._rate, trained, window, reply)
        return ClientMemory(pack(new), memory.pass_start)

    def augmentation(self, memory: ClientMemory) -> np.ndarray:
        """The network's weights."""
        return np.asarray(unpack(memory.augmentation).weights)

    def cut(self, values: np.ndarray) -> np.ndarray:
        """A round's time steps cut into sequences."""
        return cut(values, -(-min(self._size, self._num_pairs) // self._steps), self._steps)
