"""Simulate measurements of a linear state-space system with known cross-client influence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key
from scipy.linalg import block_diag

from fedgranger.data.client_data import ClientData
from fedgranger.data.disturbances import (
    COUNTER,
    add_counter,
    add_cycle,
    add_mean_shifts,
    change_unit,
    observed_steps,
)
from fedgranger.data.linear_system import (
    advance_matrix,
    client_names,
    draw_system,
    known_process_cov,
    reading_errors,
    state_std,
    with_dead_time,
)
from fedgranger.data.nonlinear_systems import simulate_nonlinear
from fedgranger.data.panel import Panel
from fedgranger.data.simulation_options import SCENARIOS, SimulationOptions
from fedgranger.data.truth import Truth
from fedgranger.errors import ConfigError
from fedgranger.option_fields import check_choice

CHUNK_STEPS = 65_536
BURN_IN_TIME_CONSTANTS = 20
ROUNDED_DRAWS = 4**10
"""Up to so many draws of noise their number is rounded up to a power of four."""


def simulate(
    num_clients: int = 6,
    num_steps: int = 5000,
    *,
    clients: Sequence[str] | None = None,
    system: Truth | None = None,
    **options: Any,
) -> tuple[Panel, Truth]:
    """Simulate a panel and return it with the truth behind it.

    Args:
        num_clients: M; ignored when `clients` or `system` is given.
        num_steps: T.
        clients: names; default client1, client2, …
        system: a truth returned by an earlier call, to draw new data from the same system.
        options: those of `SimulationOptions`; `fedgranger simulate --help` has them all. In
            Python `process_cov` may also be a P x P matrix.

    Example:
        >>> panel, truth = simulate(2, 100, edges=[("client1", "client2")], seed=1)
        >>> truth.edges
        (('client1', 'client2'),)
    """
    given = {"num_clients": num_clients, "num_steps": num_steps, **options}
    if options.get("scenario"):
        check_choice("scenario", options["scenario"], tuple(SCENARIOS))
        given |= SCENARIOS[options["scenario"]]
    asked = SimulationOptions.from_mapping(given)
    rng = np.random.default_rng(asked.seed)
    names = client_names(asked.num_clients) if clients is None else tuple(clients)
    if not names:
        raise ConfigError("clients is empty; at least one name is needed")
    if len(set(names)) != len(names):
        raise ConfigError(f"client names are not unique: {', '.join(names)}")
    if asked.dynamics != "linear":
        if system is not None:
            raise ConfigError("'system' is of a linear system; leave 'dynamics' or 'system' out")
        return simulate_nonlinear(names, asked)
    if system is None:
        drawn = draw_system(rng, names, asked)
        delayed = with_dead_time(drawn, asked.dead_time, asked.spectral_radius)
        system = change_unit(delayed, asked.unit_factor)
    known_process_cov(system)
    correlation = asked.measurement_correlation
    system = replace(system, measurement_covs=_measurement_covs(system, correlation))
    noise_chol = _noise_chol(system, correlation)
    with jax.enable_x64(True):
        values = _measurements(system, asked.num_steps, noise_chol, asked.student_df, asked.seed)
    columns = np.cumsum([len(C) for C in system.observation_matrices.values()])[:-1]
    parts = dict(zip(system.clients, np.split(values, columns, axis=1), strict=True))
    add_mean_shifts(parts, asked.mean_shifts, asked.shift_size, rng)
    recorded = observed_steps(system.clients, asked, rng)
    if asked.cycle_size:
        std = state_std(system, noise_chol @ noise_chol.T)
        add_cycle(parts, system, asked.cycle_size * std, asked.cycle_period, rng)
    counting = add_counter(parts) if asked.counter else None
    client_data = []
    for name, part in parts.items():
        observed = np.broadcast_to(recorded[name][:, None], part.shape).copy()
        sensors = [f"s{j + 1}" for j in range(part.shape[1])]
        if name == counting:
            sensors[-1] = COUNTER
        # a view of all clients' columns when nothing was missing
        part = np.ascontiguousarray(np.where(observed, part, 0.0) if not observed.all() else part)
        client_data.append(ClientData(name, tuple(sensors), part, observed))
    return Panel(tuple(client_data), np.arange(asked.num_steps)), system


def _measurement_covs(system: Truth, correlation: float) -> dict[str, np.ndarray]:
    """R_mm per client: the system's variances with this correlation."""
    covs = {}
    for name, R in system.measurement_covs.items():
        sd = np.sqrt(np.diag(R))
        covs[name] = np.outer(sd, sd) * ((1 - correlation) * np.eye(len(sd)) + correlation)
    return covs


def _noise_chol(system: Truth, correlation: float) -> np.ndarray:
    """Factor of the covariance of all measurement noises."""
    noise_sd = np.sqrt(np.concatenate([np.diag(R) for R in system.measurement_covs.values()]))
    d = len(noise_sd)
    return noise_sd[:, None] * np.linalg.cholesky(
        (1 - correlation) * np.eye(d) + correlation * np.ones((d, d))
    )


def _measurements(
    system: Truth, num_steps: int, noise_chol: np.ndarray, student_df: float | None, seed: int
) -> np.ndarray:
    """Run the system from a burnt-in state; noise comes in chunks, so memory holds only y."""
    advance = advance_matrix(system)
    constants = (
        advance,
        block_diag(*system.observation_matrices.values()),
        np.linalg.cholesky(known_process_cov(system)),
        noise_chol,
        reading_errors(system),
    )
    key = jax.random.key(seed)
    radius = float(np.max(np.abs(np.linalg.eigvals(advance))))
    burn_in = round(BURN_IN_TIME_CONSTANTS / (1 - radius))
    df = 0.0 if student_df is None else float(student_df)
    past = np.zeros(len(advance))
    values = np.empty((num_steps, len(noise_chol)))
    start = -burn_in
    while start < num_steps:
        length = min(CHUNK_STEPS, num_steps - start)
        chunk_key = jax.random.fold_in(key, start + burn_in)
        process_key, measurement_key = jax.random.split(chunk_key)
        noises = (
            _noise(process_key, (length, len(constants[2])), df),
            _noise(measurement_key, (length, len(noise_chol)), df),
        )
        past, y = _run(*noises, *constants, past)
        if start + length > 0:
            values[max(start, 0) : start + length] = np.asarray(y)[max(-start, 0) :]
        start += length
    return values


@jax.jit
def _run(
    w: Float[Array, "time dim"],
    v: Float[Array, "time obs"],
    A: Float[Array, "past past"],
    C: Float[Array, "obs dim"],
    Q_chol: Float[Array, "dim dim"],
    R_chol: Float[Array, "obs obs"],
    read: Float[Array, "dim obs"],
    past: Float[Array, " past"],
) -> tuple[Float[Array, " past"], Float[Array, "time obs"]]:
    """Advance z and its past under unit noises; `linear_system` has the equations."""
    P = len(Q_chol)
    w, v = w @ Q_chol.T, v @ R_chol.T

    def advance(z: Array, noises: tuple[Array, Array]) -> tuple[Array, Array]:
        w_t, e_t = noises
        z = A @ z
        h = z[:P] + w_t
        return jnp.concatenate([h + e_t, z[P:]]), h

    past, states = lax.scan(advance, past, (w, v @ read.T))
    return past, states @ C.T + v


def _noise(key: Key[Array, ""], shape: tuple[int, int], df: float) -> np.ndarray:
    """Independent draws with unit variance.

    More than are needed: draw k does not depend on how many there are, and compiling the
    generator for every length and width would take longer than most simulations.
    """
    size = shape[0] * shape[1]
    rounded = 4 ** max(6, ((size - 1).bit_length() + 1) // 2)
    drawn = _draws(key, rounded if size <= ROUNDED_DRAWS else size, df)
    return np.asarray(drawn)[:size].reshape(shape)


@partial(jax.jit, static_argnames=("size", "df"))
def _draws(key: Key[Array, ""], size: int, df: float) -> Float[Array, " size"]:
    if df == 0.0:
        return jax.random.normal(key, (size,))
    return jax.random.t(key, df, (size,)) * np.sqrt((df - 2) / df)
