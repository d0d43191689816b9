"""A Monte Carlo ensemble of the real learner, to check the covariance recursion against.

Every replica draws its own prior and its own measurement noise around the same mean trajectory
and runs `rounds.step`, the code that trains. The filtered states are the same for all (A1).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from fedgranger.client.augment import AugmentState, ClientWindow
from fedgranger.config import RunConfig
from fedgranger.rounds import RoundParams, RoundState, send, step
from fedgranger.runtime.inprocess import stack_windows
from fedgranger.runtime.setup import Setup
from fedgranger.server.granger import ServerState, answer
from fedgranger.uncertainty.inputs import MeasurementNoise


class Sample(NamedTuple):
    """All replicas when a round begins, leading axes (replica, client).

    Attributes:
        round: which.
        augmentation: θ.
        granger: Â, row over the stacked states of all clients.
        measurement: y at the round's first step.
        augmented_state: h_a − h_c there, what is random in the message up.
        gradient: the message down there.
    """

    round: int
    augmentation: np.ndarray
    granger: np.ndarray
    measurement: np.ndarray
    augmented_state: np.ndarray
    gradient: np.ndarray


def run_ensemble(
    setup: Setup,
    config: RunConfig,
    noise: MeasurementNoise,
    *,
    replicas: int,
    marks: list[int],
    seed: int,
) -> list[Sample]:
    """Run all replicas and sample them when the rounds `marks` begin."""
    key = jax.random.key(seed)
    M, (p, d) = len(setup.client_data), setup.padded_dims
    key, prior_key, noise_key = jax.random.split(key, 3)
    state = _draw_prior(setup, config, prior_key, replicas)
    factors = _factors(setup, noise)
    first = jax.random.normal(noise_key, (replicas, M, d))
    current = jnp.einsum("mde,rme->rmd", factors[0], first)
    out, now = [], 0
    CA = np.zeros((M, d, p))
    for m, stream in enumerate(setup.client_data):
        part = stream.model.predicted_observation
        CA[m, : part.shape[0], : part.shape[1]] = part
    CA = jnp.asarray(CA)
    for mark in marks:
        while now < mark:
            count = min(mark - now, 500)
            windows = stack_windows(setup, now, count)
            W = setup.window
            following = factors[now * W + 1 : (now + count) * W + 1]
            following = following.reshape(count, W, M, d, d)
            state, current, key = _run(setup.params, CA, state, current, key, windows, following)
            now += count
        window = jax.tree.map(lambda leaf: leaf[0], stack_windows(setup, now, 1))
        out.append(_sample(setup.params, now, state, current, window))
    return out


def _draw_prior(setup: Setup, config: RunConfig, key: Array, replicas: int) -> RoundState:
    p, d = setup.padded_dims
    M = len(setup.client_data)
    theta_key, granger_key = jax.random.split(key)
    real = np.zeros((M, p, d))
    rows = np.zeros((M, p))
    for m, stream in enumerate(setup.client_data):
        real[m, : stream.model.state_dim, : stream.model.num_sensors] = 1.0
        rows[m, : stream.model.state_dim] = 1.0
    coupling = np.asarray(setup.params.server.coupling)
    there = rows[:, :, None] * (coupling * rows.reshape(-1))[:, None, :]
    theta = config.augmentation_prior_location + config.augmentation_prior_scale * (
        jax.random.normal(theta_key, (replicas, M, p, d))
    )
    granger = config.granger_prior_location + config.granger_prior_scale * (
        jax.random.normal(granger_key, (replicas, M, p, M * p))
    )
    return RoundState(
        AugmentState(theta * jnp.asarray(real)[None]),
        ServerState(granger * jnp.asarray(there)[None]),
    )


def _factors(setup: Setup, noise: MeasurementNoise) -> Array:
    """Square roots of the noise covariances in sensor coordinates, (time, client, d, d)."""
    _, d = setup.padded_dims
    num_steps = len(setup.client_data[0].values)
    out = np.zeros((num_steps + setup.window + 1, len(setup.client_data), d, d))
    for m, stream in enumerate(setup.client_data):
        cov = noise.between(m, 0, num_steps, full=True)
        values, vectors = np.linalg.eigh(cov)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        size = cov.shape[1]
        root = noise.bases[m] @ root * stream.is_observed[:, None, None]
        out[:num_steps, m, :size, :size] = root
    return jnp.asarray(out)


@partial(jax.jit, donate_argnums=(2,))
def _run(
    params: RoundParams,
    CA: Array,
    state: RoundState,
    current: Array,
    key: Array,
    windows: ClientWindow,
    following: Array,
) -> tuple[RoundState, Array, Array]:
    replicas = current.shape[0]
    W = windows.measurements.shape[2]

    def one(carry: tuple, inputs: tuple) -> tuple[tuple, None]:
        state, current, key = carry
        window, factors = inputs
        key, own = jax.random.split(key)
        unit = jax.random.normal(own, (replicas, W, *current.shape[1:]))
        noise = jnp.einsum("wmde,rwme->rmwd", factors, unit)
        here = jnp.concatenate([current[:, :, None], noise[:, :, :-1]], axis=2)
        new = jax.vmap(partial(_noisy_step, params, CA, window))(state, here, noise)
        return (new, noise[:, :, -1], key), None

    return lax.scan(one, (state, current, key), (windows, following))[0]


def _noisy_step(
    params: RoundParams,
    CA: Array,
    window: ClientWindow,
    state: RoundState,
    here: Array,
    following: Array,
) -> RoundState:
    return step(params, state, _noisy(window, CA, here, following))[0]


def _noisy(window: ClientWindow, CA: Array, here: Array, following: Array) -> ClientWindow:
    targets = jnp.einsum("mwd,mdp->mwp", following, CA) * window.has_next[..., None].astype(
        following.dtype
    )
    return ClientWindow(
        window.measurements + here * window.is_observed[..., None].astype(here.dtype),
        window.filtered_states,
        window.local_targets + targets,
        window.local_energies,
        window.is_observed,
        window.has_next,
    )


def _sample(
    params: RoundParams, mark: int, state: RoundState, current: Array, window: ClientWindow
) -> Sample:
    noise = jnp.zeros((*current.shape[:2], *window.measurements.shape[1:]))
    noise = noise.at[:, :, 0].set(current)

    def one(state: RoundState, noise: Array) -> tuple[Array, Array, Array]:
        seen = ClientWindow(
            window.measurements + noise * window.is_observed[..., None].astype(noise.dtype),
            window.filtered_states,
            window.local_targets,
            window.local_energies,
            window.is_observed,
            window.has_next,
        )
        message = send(state.clients, seen)
        _, reply, _ = answer(params.server, state.server, message)
        correction = message.augmented_states - message.filtered_states
        return seen.measurements[:, 0], correction[:, 0], reply.gradients[:, 0]

    y, correction, gradient = jax.vmap(one)(state, noise)
    arrays = (state.clients.augmentation, state.server.granger_row, y, correction, gradient)
    return Sample(mark, *(np.asarray(array) for array in arrays))
