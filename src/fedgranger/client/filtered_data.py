"""A client's data as its learner consumes them: filtered once, cut into windows on demand."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from fedgranger.client.kalman import filter_params, run
from fedgranger.client.params import LocalModel
from fedgranger.data.panel import ClientData
from fedgranger.linalg.spectral import WindowMoments, window_moments

CHUNK_STEPS = 65_536


class WindowArrays(NamedTuple):
    """The fields of `augment.ClientWindow` for a stretch of time steps, as NumPy arrays."""

    measurements: np.ndarray
    filtered_states: np.ndarray
    local_targets: np.ndarray
    local_energies: np.ndarray
    is_observed: np.ndarray
    has_next: np.ndarray


class FilteredData(NamedTuple):
    """Private data of one client, ready for training.

    Attributes:
        name: the client.
        model: its local model.
        values: raw measurements (time, sensor), not copied.
        filtered_states: h_c for every time step.
        is_observed: the row is complete; incomplete rows count as missing.
        has_next: the row and its successor are complete and consecutive.
    """

    name: str
    model: LocalModel
    values: np.ndarray
    filtered_states: np.ndarray
    is_observed: np.ndarray
    has_next: np.ndarray

    def scaled(self, start: int, stop: int) -> np.ndarray:
        """Measurements in the model's units, zero where missing."""
        rows = slice(start, stop)
        return np.where(self.is_observed[rows, None], self.model.scaled(self.values[rows]), 0.0)

    def steps(self, start: int, stop: int) -> WindowArrays:
        """Return the learner's inputs for the time steps `start:stop` (stop at most T - 1)."""
        h_c, paired = self.filtered_states[start:stop], self.has_next[start:stop]
        y = self.scaled(start, stop + 1)
        CA = self.model.predicted_observation
        innovation = np.where(paired[:, None], y[1:] - h_c @ CA.T, 0.0)
        return WindowArrays(
            y[:-1],
            h_c,
            innovation @ CA,
            (innovation**2).sum(axis=1),
            self.is_observed[start:stop],
            paired,
        )


def measured_moments(data: FilteredData, window: int) -> WindowMoments:
    """Moments of the scaled measurements over the steps that training uses."""
    num_pairs = len(data.values) - 1
    return window_moments(data.scaled(0, num_pairs), data.is_observed[:-1], window)


def state_moments(data: FilteredData, window: int) -> WindowMoments:
    """Moments of the filtered states over the steps that training uses."""
    states = data.filtered_states[:-1]
    return window_moments(states, np.ones(len(states), dtype=np.bool_), window)


def filter_data(client: ClientData, model: LocalModel, segment_starts: np.ndarray) -> FilteredData:
    """Filter a client's data in chunks of bounded size."""
    complete = client.row_observed
    num_steps = len(client.values)
    states = np.empty((num_steps, model.state_dim))
    has_next = np.zeros(num_steps, dtype=np.bool_)
    has_next[:-1] = complete[:-1] & complete[1:] & ~segment_starts[1:]
    data = FilteredData(client.name, model, client.values, states, complete, has_next)
    params, last = filter_params(model), jnp.zeros(model.state_dim)
    for start in range(0, num_steps, CHUNK_STEPS):
        stop = min(start + CHUNK_STEPS, num_steps)
        filtered = run(
            params,
            last,
            jnp.asarray(data.scaled(start, stop)),
            jnp.asarray(complete[start:stop]),
            jnp.asarray(segment_starts[start:stop]),
        )
        states[start:stop] = np.asarray(filtered)
        last = filtered[-1]
    return data
