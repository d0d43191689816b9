"""How a client takes part in training, step-wise or by exact solves: the client's side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from fedgranger.client import augment, augmentation_solver
from fedgranger.client.augment import AugmentState, ClientWindow
from fedgranger.client.filtered_data import WindowArrays
from fedgranger.client.prepared_client import PreparedClient, augment_params
from fedgranger.config import RunConfig
from fedgranger.convergence import correction_size
from fedgranger.messages import ServerMessage


class ClientMemory(NamedTuple):
    """What a client must not lose: θ now, and θ when the present pass began."""

    augmentation: np.ndarray
    pass_start: np.ndarray


@runtime_checkable
class Learner(Protocol):
    """One client's part of a round. All methods are pure."""

    def initial(self) -> ClientMemory:
        """θ before the first round."""
        ...

    def send(self, memory: ClientMemory, round_index: int, piece: int) -> Mapping[str, np.ndarray]:
        """States of one piece of the round's time steps."""
        ...

    def learn(
        self, memory: ClientMemory, round_index: int, gradients: Sequence[np.ndarray]
    ) -> ClientMemory:
        """θ for round `round_index` from the server's gradients of the round before."""
        ...

    def report(self, memory: ClientMemory, round_index: int) -> tuple[float, float] | None:
        """Change and size of θy over the pass that has just ended, if one has."""
        ...

    def piece_length(self, round_index: int, piece: int) -> int:
        """Time steps of one piece; 0 when there is no such piece."""
        ...

    def num_pieces(self, round_index: int) -> int:
        """Pieces of a round's time steps."""
        ...


class SgdLearner:
    """The paper's loop: a window of W time steps per round, each in one piece."""

    def __init__(
        self, prepared: PreparedClient, config: RunConfig, window: int, start: np.ndarray
    ) -> None:
        self._prepared, self._window, self._start = prepared, window, start
        self._params = augment_params(prepared, config)
        self._num_pairs = len(prepared.data.values) - 1
        self._num_rounds = -(-self._num_pairs // window)

    def initial(self) -> ClientMemory:
        """θ⁰."""
        return ClientMemory(self._start, self._start)

    def piece_length(self, round_index: int, piece: int) -> int:
        """Time steps of the round's window."""
        start, stop = self._span(round_index)
        return stop - start if piece == 0 else 0

    def num_pieces(self, round_index: int) -> int:  # noqa: ARG002
        """One: the round's window."""
        return 1

    def _span(self, round_index: int) -> tuple[int, int]:
        start = (round_index % self._num_rounds) * self._window
        return start, min(start + self._window, self._num_pairs)

    def send(self, memory: ClientMemory, round_index: int, piece: int) -> Mapping[str, np.ndarray]:  # noqa: ARG002
        """Filtered and augmented states of the round's window."""
        steps = self._prepared.data.steps(*self._span(round_index))
        return _states(steps, memory.augmentation)

    def learn(
        self, memory: ClientMemory, round_index: int, gradients: Sequence[np.ndarray]
    ) -> ClientMemory:
        """One descent step on the window of the round before."""
        window = ClientWindow(
            *map(jnp.asarray, self._prepared.data.steps(*self._span(round_index - 1)))
        )
        state = AugmentState(jnp.asarray(memory.augmentation))
        new, _ = _descend(self._params, state, window, ServerMessage(jnp.asarray(gradients[0])))
        theta = np.asarray(new.augmentation)
        starts_pass = (round_index - 1) % self._num_rounds == 0
        return ClientMemory(theta, memory.augmentation if starts_pass else memory.pass_start)

    def report(self, memory: ClientMemory, round_index: int) -> tuple[float, float] | None:
        """At the first round of every later pass."""
        if round_index == 0 or round_index % self._num_rounds:
            return None
        theta, moment = memory.augmentation, self._prepared.second_moment[None]
        change = correction_size((theta - memory.pass_start)[None], moment)
        return float(change[0]), float(correction_size(theta[None], moment)[0])


class NewtonLearner:
    """Exact solves: a round takes all time steps, in pieces of bounded size."""

    def __init__(
        self, prepared: PreparedClient, config: RunConfig, message_steps: int, start: np.ndarray
    ) -> None:
        self._prepared, self._size, self._start = prepared, message_steps, start
        data = prepared.data
        self._num_pairs = len(data.values) - 1
        steps = data.steps(0, self._num_pairs)
        y = steps.measurements
        paired = steps.has_next / max(float(steps.has_next.sum()), 1.0)
        self._share = steps.is_observed / max(float(steps.is_observed.sum()), 1.0)
        CA, A = data.model.predicted_observation, data.model.self_transition
        self._solver = augmentation_solver.prepare(
            CA.T @ CA,
            A.T @ A,
            (paired[:, None] * y).T @ y,
            (self._share[:, None] * y).T @ y,
            (paired[:, None] * steps.local_targets).T @ y,
            local_step_size=prepared.step_sizes.local,
            feedback_step_size=prepared.step_sizes.feedback,
            ridge=config.augmentation_ridge,
        )

    def initial(self) -> ClientMemory:
        """θ⁰."""
        return ClientMemory(self._start, self._start)

    def piece_length(self, round_index: int, piece: int) -> int:  # noqa: ARG002
        """Time steps of a piece."""
        start, stop = self._span(piece)
        return max(stop - start, 0) if piece >= 0 else 0

    def num_pieces(self, round_index: int) -> int:  # noqa: ARG002
        """All time steps, in pieces of bounded size."""
        return -(-self._num_pairs // self._size)

    def _span(self, piece: int) -> tuple[int, int]:
        return piece * self._size, min((piece + 1) * self._size, self._num_pairs)

    def send(self, memory: ClientMemory, round_index: int, piece: int) -> Mapping[str, np.ndarray]:  # noqa: ARG002
        """Filtered and augmented states of the piece."""
        return _states(self._prepared.data.steps(*self._span(piece)), memory.augmentation)

    def learn(
        self,
        memory: ClientMemory,
        round_index: int,  # noqa: ARG002
        gradients: Sequence[np.ndarray],
    ) -> ClientMemory:
        """Solve for θ."""
        theta, feedback = memory.augmentation, np.zeros(memory.augmentation.shape)
        for piece, gradient in enumerate(gradients):
            start, stop = self._span(piece)
            y = self._prepared.data.scaled(start, stop)
            feedback += (self._share[start:stop, None] * gradient).T @ y
        return ClientMemory(augmentation_solver.step(self._solver, theta, feedback), theta)

    def report(self, memory: ClientMemory, round_index: int) -> None:
        """The server judges exact solves by itself."""


def make_learner(
    prepared: PreparedClient, config: RunConfig, window: int, message_steps: int, start: np.ndarray
) -> Learner:
    """The learner that the options ask for, with its θ⁰."""
    if config.training_solver == "newton":
        return NewtonLearner(prepared, config, message_steps, start)
    return SgdLearner(prepared, config, window, start)


_descend = jax.jit(augment.step)


def _states(steps: WindowArrays, theta: np.ndarray) -> Mapping[str, np.ndarray]:
    h_c = steps.filtered_states
    return {
        "filtered_states": h_c,
        "augmented_states": h_c + steps.measurements @ theta.T,
        "is_observed": steps.is_observed,
    }
