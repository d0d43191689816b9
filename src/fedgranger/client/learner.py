"""How a client takes part in training, step-wise or by exact solves: the client's side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from fedgranger.client import augment, augmentation_solver
from fedgranger.client.augment import AugmentState, ClientWindow
from fedgranger.client.prepared_client import PreparedClient, augment_params
from fedgranger.config import RunConfig
from fedgranger.convergence import correction_size
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.messages import ServerMessage
from fedgranger.privacy.release import Release

_descend = jax.jit(augment.step)


class ClientMemory(NamedTuple):
    """What a client must not lose: θ now, and θ when the present pass began.

    In neural training θ is one vector, the weights and Adam's moments, and the second is empty.
    """

    augmentation: np.ndarray
    pass_start: np.ndarray


class Learner(ABC):
    """One client's part of a round, which has its time steps in pieces. All methods are pure.

    A round is a window of `size` time steps in one piece, unless a learner says otherwise.
    """

    def __init__(self, prepared: PreparedClient, size: int, start: np.ndarray) -> None:
        self._prepared, self._size, self._start = prepared, size, start
        self._num_pairs = len(prepared.data.values) - 1

    @property
    def name(self) -> str:
        """The client's."""
        return self._prepared.data.name

    @property
    def num_windows(self) -> int:
        """How many windows of `size` time steps the record has."""
        return -(-self._num_pairs // self._size)

    @property
    def state_dim(self) -> int:
        """States per time step, so numbers per time step of a gradient."""
        return self._prepared.data.model.state_dim

    def initial(self) -> ClientMemory:
        """θ⁰."""
        return ClientMemory(self._start, self._start)

    def num_pieces(self, round_index: int) -> int:  # noqa: ARG002
        """Pieces of a round's time steps."""
        return 1

    def _span(self, round_index: int, piece: int = 0) -> tuple[int, int]:  # noqa: ARG002
        """First time step of a piece and the one after its last."""
        start = (round_index % self.num_windows) * self._size
        return start, min(start + self._size, self._num_pairs)

    def piece_length(self, round_index: int, piece: int) -> int:
        """Time steps of one piece; 0 when there is no such piece."""
        if not 0 <= piece < self.num_pieces(round_index):
            return 0
        start, stop = self._span(round_index, piece)
        return stop - start

    def send(self, memory: ClientMemory, round_index: int, piece: int) -> Mapping[str, np.ndarray]:
        """Filtered and augmented states of one piece."""
        steps = self._prepared.data.steps(*self._span(round_index, piece))
        h_c = steps.filtered_states
        return {
            "filtered_states": h_c,
            "augmented_states": h_c + steps.measurements @ memory.augmentation.T,
            "is_observed": steps.is_observed,
        }

    @abstractmethod
    def learn(
        self, memory: ClientMemory, round_index: int, gradients: Sequence[np.ndarray]
    ) -> ClientMemory:
        """θ for round `round_index` from the server's gradients of the round before."""

    def augmentation(self, memory: ClientMemory) -> np.ndarray:
        """θ of measurements in the model's units."""
        return memory.augmentation

    def hello_releases(self) -> tuple[Release, ...]:
        """What it releases with noise before the first round, for the ledger."""
        return ()

    def round_releases(self, memory: ClientMemory) -> tuple[Release, ...]:  # noqa: ARG002
        """What states corrected with this θ release with noise."""
        return ()

    def feedback_releases(self, memory: ClientMemory, round_index: int) -> tuple[Release, ...]:  # noqa: ARG002
        """What this θ has seen that the one before had not: what is sent later depends on it."""
        return ()

    def report(self, memory: ClientMemory, round_index: int) -> tuple[float, float] | None:  # noqa: ARG002
        """Change and size of θy over the pass that has just ended, if one has.

        Step-wise learners report: the server judges exact solves by itself, and neural training has
        a fixed number of passes, whatever they change.
        """
        return None


class SgdLearner(Learner):
    """The paper's loop: a window of W time steps per round, each in one piece."""

    def __init__(
        self, prepared: PreparedClient, config: RunConfig, window: int, start: np.ndarray
    ) -> None:
        super().__init__(prepared, window, start)
        self._params = augment_params(prepared, config)

    def learn(
        self, memory: ClientMemory, round_index: int, gradients: Sequence[np.ndarray]
    ) -> ClientMemory:
        """One descent step on the window of the round before."""
        steps = self._prepared.data.steps(*self._span(round_index - 1))
        window = ClientWindow(*map(jax_array, steps))
        state = AugmentState(jax_array(memory.augmentation))
        new, _ = _descend(self._params, state, window, ServerMessage(jax_array(gradients[0])))
        theta = np.asarray(new.augmentation)
        starts_pass = (round_index - 1) % self.num_windows == 0
        return ClientMemory(theta, memory.augmentation if starts_pass else memory.pass_start)

    def report(self, memory: ClientMemory, round_index: int) -> tuple[float, float] | None:
        """At the first round of every later pass."""
        if round_index == 0 or round_index % self.num_windows:
            return None
        theta, moment = memory.augmentation, self._prepared.second_moment[None]
        change = correction_size((theta - memory.pass_start)[None], moment)
        return float(change[0]), float(correction_size(theta[None], moment)[0])


class NewtonLearner(Learner):
    """Exact solves: a round takes all time steps, in pieces of bounded size."""

    def __init__(
        self, prepared: PreparedClient, config: RunConfig, message_steps: int, start: np.ndarray
    ) -> None:
        super().__init__(prepared, message_steps, start)
        steps, model = prepared.data.steps(0, self._num_pairs), prepared.data.model
        y = steps.measurements
        paired = steps.has_next / max(float(steps.has_next.sum()), 1.0)
        self._share = steps.is_observed / max(float(steps.is_observed.sum()), 1.0)
        CA, A = model.predicted_observation, model.self_transition
        self._solve = augmentation_solver.prepare(
            CA.T @ CA,
            A.T @ A,
            (paired[:, None] * y).T @ y,
            (self._share[:, None] * y).T @ y,
            (paired[:, None] * steps.local_targets).T @ y,
            local_step_size=prepared.step_sizes.local,
            feedback_step_size=prepared.step_sizes.feedback,
            ridge=config.augmentation_ridge,
        )

    def num_pieces(self, round_index: int) -> int:  # noqa: ARG002
        """As many as it takes to send all time steps."""
        return self.num_windows

    def _span(self, round_index: int, piece: int = 0) -> tuple[int, int]:  # noqa: ARG002
        start = piece * self._size
        return start, min(start + self._size, self._num_pairs)

    def learn(
        self, memory: ClientMemory, round_index: int, gradients: Sequence[np.ndarray]
    ) -> ClientMemory:
        """Solve for θ."""
        theta, feedback = memory.augmentation, np.zeros(memory.augmentation.shape)
        for piece, gradient in enumerate(gradients):
            start, stop = self._span(round_index, piece)
            y = self._prepared.data.scaled(start, stop)
            feedback += (self._share[start:stop, None] * gradient).T @ y
        return ClientMemory(self._solve(theta, feedback), theta)
