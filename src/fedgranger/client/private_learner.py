r"""A client's part of private rounds of FedGC: everything that θ has seen was seen with noise.

With z the measurements in units in which the local model gives them covariance I, clipped to norm
B, a client's own equation (`augmentation_solver`) knows its data through few numbers:

| what | released | one time step moves it by at most |
|---|---|---|
| filtered states of all steps | once | 2B × the filter's gain (`sensitivity.filtered`) |
| E[zzᵀ] over steps with a successor, and over all, and E[(CA)ᵀν zᵀ] | never; θ depends on it | \
√(2B⁴/n² + 2B⁴/m² + (4BV/n)²) |
| E[g zᵀ] of a round, g the server's gradients | never; θ depends on it | 2B max‖g‖/m |
| θz of all steps | every round | 2B ‖θ‖ |

V bounds (CA)ᵀν, ν = y⁺ − CA h_c with the filtered states *as they were sent*; n and m are the
numbers of steps. Each is a Gaussian release, so θ of every round is computed from what was released
already, and the next augmented states depend on z alone. Gradients are charged when θ learns from
them, whether or not anybody asks for that round's states: θ of all later rounds depends on them.
(That h_a is accounted for as if θ were given, without noise on what θ was solved from, is the
flaw that the audit in tests/privacy/test_audit.py finds.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import scipy.linalg

from fedgranger.client import augmentation_solver
from fedgranger.client.kalman import FilteredData, filter_data, state_moments, steady_gain
from fedgranger.client.learner import ClientMemory, NewtonLearner
from fedgranger.client.prepared_client import PreparedClient
from fedgranger.client.private_states import above, clip_in_units, model_units, moved_steps
from fedgranger.config import RunConfig
from fedgranger.data.client_data import ClientData
from fedgranger.messages import ClientHello
from fedgranger.privacy.release import Release, SecretNoise
from fedgranger.privacy.sensitivity import Filter, Neighbours, filtered, memoryless
from fedgranger.privacy.terms import Sizes


class PrivateLearner(NewtonLearner):
    """Exact solves from noisy moments; θ here maps z to the states."""

    def __init__(
        self,
        client: ClientData,
        starts: np.ndarray,
        prepared: PreparedClient,
        config: RunConfig,
        message_steps: int,
        start: np.ndarray,
        noise: SecretNoise,
    ) -> None:
        terms = config.client_terms
        if terms is None:
            raise RuntimeError("the run is not private")
        model, steps = prepared.data.model, len(client.values)
        self._terms, self._noise, self._model = terms, noise, model
        self._sizes: Sizes = terms.sizes(
            model.state_dim, steps, has_tests=config.test != "none", has_rounds=True
        )
        self._size, self._num_pairs = message_steps, steps - 1
        self._units = model_units(prepared.data, client)
        self._bound = terms.bound(model.num_sensors)
        self._treatment = client.treatment
        observed = prepared.data.is_observed
        z = np.zeros_like(client.values)
        y = prepared.data.scaled(0, steps)[observed]
        z[observed], _ = clip_in_units(y, self._units.sensors, self._bound)
        self._z = z
        self._sent, self._sent_release = self._release_filtered(client, starts)
        self._solve = self._release_moments(prepared.data, config)
        self._start = start @ self._units.sensors
        self._augmented: tuple[bytes, np.ndarray, Release] | None = None

    @property
    def state_dim(self) -> int:
        """p, of its local model."""
        return self._model.state_dim

    def hello(self) -> ClientHello:
        """A_mm, and the gain of the filtered states as they are sent."""
        gain = state_moments(self._sent, self._num_pairs).gain
        return ClientHello(jnp.asarray(self._model.self_transition), jnp.asarray(gain))

    def augmentation(self, memory: ClientMemory) -> np.ndarray:
        """θ of measurements instead of z."""
        L = self._units.sensors
        return scipy.linalg.solve_triangular(L, memory.augmentation.T, lower=True, trans=1).T

    def _near(self, neighbours: Neighbours) -> Neighbours:
        return moved_steps(neighbours, self._treatment)

    def _release_filtered(
        self, client: ClientData, starts: np.ndarray
    ) -> tuple[FilteredData, Release]:
        """The clipped measurements filtered, and h_c with noise."""
        model, L = self._model, self._units.states
        values = model.centre + model.scale * (self._z @ self._units.sensors.T)
        clipped = replace(client, values=values)
        data = filter_data(clipped, model, starts)
        K = steady_gain(model).gain
        into = scipy.linalg.solve_triangular(L, np.eye(len(L)), lower=True)
        response = Filter(
            into @ model.self_transition @ L,
            into @ (np.eye(len(L)) - K @ model.observation_matrix) @ L,
            into @ K @ self._units.sensors,
        )

        def moved(near: Neighbours) -> float:
            return filtered(response, self._bound, self._near(near), data.is_observed, starts)

        scale = moved(self._terms.neighbours) / self._sizes.filtered
        sent, name = self._noise.add("filtered", data.filtered_states, scale * L)
        release = Release("filtered", name, lambda near: moved(near) / scale)
        return data._replace(filtered_states=sent), release

    def _release_moments(
        self, data: FilteredData, config: RunConfig
    ) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """The client's own equation from moments with noise."""
        model, z = self._model, self._z[:-1]
        CA, A = model.predicted_observation, model.self_transition
        paired, observed = data.has_next[:-1], data.is_observed[:-1]
        n, m = max(int(paired.sum()), 1), max(int(observed.sum()), 1)
        y = self._z @ self._units.sensors.T
        v = (y[1:] - self._sent.filtered_states[:-1] @ CA.T) @ CA
        V = self._terms.bound(model.state_dim)
        unit = self._units.targets
        v, _ = clip_in_units(np.where(paired[:, None], v, 0.0), unit, V)
        clean = np.concatenate(
            [
                (z[paired].T @ z[paired]) / n,
                (z[observed].T @ z[observed]) / m,
                (v.T @ z) / n,
            ]
        )
        B = self._bound

        def moved(near: Neighbours) -> float:
            w = self._near(near).length(len(z))
            squares, products = np.sqrt(2.0) * B**2 * w, 2 * B * V * min(w + 1, len(z))
            return float(np.sqrt((squares / n) ** 2 + (squares / m) ** 2 + (products / n) ** 2))

        scale = moved(self._terms.neighbours) / self._sizes.moments
        noisy, name = self._noise.add("moments", clean, scale)
        self._moments = Release("moments", name, lambda near: moved(near) / scale)
        d = z.shape[1]
        self._share = observed / m
        sizes = [
            1.0 if size == "auto" else float(size)
            for size in (config.local_step_size, config.feedback_step_size)
        ]
        return augmentation_solver.prepare(
            CA.T @ CA,
            A.T @ A,
            above(noisy[:d], scale * np.sqrt(d)),
            above(noisy[d : 2 * d], scale * np.sqrt(d)),
            unit @ noisy[2 * d :],
            local_step_size=sizes[0],
            feedback_step_size=sizes[1],
            ridge=config.augmentation_ridge,
        )

    def send(self, memory: ClientMemory, round_index: int, piece: int) -> Mapping[str, np.ndarray]:
        """Filtered and augmented states of one piece, both with noise."""
        rows = slice(*self._span(round_index, piece))
        augmented, _ = self._release_augmented(memory)
        return {
            "filtered_states": self._sent.filtered_states[:-1][rows],
            "augmented_states": augmented[rows],
            "is_observed": self._sent.is_observed[:-1][rows],
        }

    def hello_releases(self) -> tuple[Release, ...]:
        """The filtered states: their gain leaves before they do."""
        return (self._sent_release,)

    def round_releases(self, memory: ClientMemory) -> tuple[Release, ...]:
        """Filtered and augmented states, and the moments that θ was solved from."""
        return self._sent_release, self._moments, self._release_augmented(memory)[1]

    def feedback_releases(self, memory: ClientMemory, round_index: int) -> tuple[Release, ...]:
        """Gradients times measurements, released or not: θ of every later round depends on them."""
        each = self._sizes.feedback / self._near(self._terms.neighbours).length(self._num_pairs)

        def size(near: Neighbours) -> float:
            return each * self._near(near).length(self._num_pairs)

        content = hashlib.blake2b(memory.augmentation.tobytes(), digest_size=16).hexdigest()
        return (Release("feedback", f"θ of round {round_index}: {content}", size),)

    def _release_augmented(self, memory: ClientMemory) -> tuple[np.ndarray, Release]:
        """h_a of all steps: h_c as sent, and θz with noise where something was measured."""
        theta, L = memory.augmentation, self._units.states
        if self._augmented is not None and self._augmented[0] == theta.tobytes():
            return self._augmented[1:]
        observed = self._sent.is_observed[:-1]
        inside = scipy.linalg.solve_triangular(L, theta, lower=True)
        norm = float(np.linalg.norm(inside, 2))

        def moved(near: Neighbours) -> float:
            return norm * memoryless(self._bound, self._near(near), self._num_pairs)

        scale = moved(self._terms.neighbours) / self._sizes.augmented
        noisy, name = self._noise.add("augmented", self._z[:-1][observed] @ theta.T, scale * L)
        out = self._sent.filtered_states[:-1].copy()
        out[observed] += noisy
        size = self._sizes.augmented
        run = memoryless(1.0, self._near(self._terms.neighbours), self._num_pairs)
        release = Release(
            "augmented",
            name,
            lambda near: size * memoryless(1.0, self._near(near), self._num_pairs) / run,
        )
        self._augmented = (theta.tobytes(), out, release)
        return out, release

    def learn(
        self, memory: ClientMemory, round_index: int, gradients: Sequence[np.ndarray]
    ) -> ClientMemory:
        """Solve for θ from gradients times z, with noise."""
        g = np.concatenate(gradients)
        clean = (self._share[:, None] * g).T @ self._z[:-1]
        largest = float(np.sqrt((g**2).sum(axis=1).max())) * float(self._share.max())
        length = self._near(self._terms.neighbours).length(self._num_pairs)
        scale = 2 * self._bound * largest * length / self._sizes.feedback
        noisy, _ = self._noise.add(f"feedback {round_index}", clean, scale)
        theta = memory.augmentation
        return ClientMemory(self._solve(theta, noisy), theta)
