"""Simulate measurements of a linear state-space system with known cross-client influence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key
from scipy.linalg import block_diag

from fedgranger.data.disturbances import (
    COUNTER,
    add_counter,
    add_cycle,
    add_mean_shifts,
    change_unit,
    observed_steps,
)
from fedgranger.data.dynamics import (
    advance_matrix,
    known_process_cov,
    reading_errors,
    state_std,
    with_dead_time,
)
from fedgranger.data.linear_system import client_names, draw_system
from fedgranger.data.panel import ClientData, Panel
from fedgranger.data.scenarios import scenario_options
from fedgranger.data.simulation_checks import (
    check_disturbances,
    check_noise,
    check_outage,
    check_shares,
)
from fedgranger.data.truth import Truth
from fedgranger.errors import ConfigError

__all__ = ["simulate"]

CHUNK_STEPS = 65_536
BURN_IN_TIME_CONSTANTS = 20


def simulate(
    num_clients: int = 6,
    num_steps: int = 5000,
    *,
    clients: Sequence[str] | None = None,
    state_dims: int | Sequence[int] = 2,
    sensor_dims: int | Sequence[int] = 8,
    edges: int | Sequence[tuple[str, str]] | None = None,
    spectral_radius: float = 0.9,
    process_cov: float | np.ndarray = 1.0,
    process_correlation: float = 0.0,
    measurement_var: float | Sequence[float] = 0.1,
    measurement_correlation: float = 0.0,
    student_df: float | None = None,
    mean_shifts: int = 0,
    shift_size: float = 3.0,
    missing_share: float = 0.0,
    outage_share: float = 0.0,
    outage_client: str | None = None,
    outage_steps: int | None = None,
    reading_feedback: float = 0.0,
    dead_time: int = 0,
    unit_factor: float = 1.0,
    counter: bool = False,
    cycle_size: float = 0.0,
    cycle_period: float = 24.0,
    seed: int = 0,
    system: Truth | None = None,
    scenario: str | None = None,
) -> tuple[Panel, Truth]:
    """Simulate a panel and return it with the truth behind it.

    Args:
        num_clients: M; ignored when `clients` or `system` is given.
        num_steps: T.
        clients: names; default client1, client2, …
        state_dims: states per client, one number or one each.
        sensor_dims: sensors per client, one number or one each.
        edges: (cause, effect) pairs, or how many random ones; default 30 % of all pairs.
        spectral_radius: of the whole transition matrix, below 1.
        process_cov: variance of the process noise, or a P x P covariance.
        process_correlation: common correlation of all process noises, also across clients.
        measurement_var: measurement variance, one number or one per client.
        measurement_correlation: common correlation of all measurement noises, across clients.
        student_df: degrees of freedom of Student-t noise; None is Gaussian.
        mean_shifts: how often one client's sensors jump to another level for good.
        shift_size: size of those jumps, in standard deviations of the sensor.
        missing_share: share of a client's time steps that are missing.
        outage_share: share of the time steps, in one block, for which one client is off.
        outage_client: which; default a random one.
        outage_steps: length of a block, when there are to be several.
        reading_feedback: share of every influence, within and across clients, that acts through
            the sensors' readings (a controller) instead of the states; with it sensor noise
            enters the dynamics.
        dead_time: steps that an edge takes beyond the usual one. Where that would take the system
            over its spectral radius, the whole transition is shrunk.
        unit_factor: the first client's first sensor is recorded in a unit this much smaller.
        counter: the first client has one more sensor, the running total of its first.
        cycle_size: amplitude of a cycle in all clients' states, in their standard deviations.
        cycle_period: its period in time steps.
        seed: of the system and of the noise.
        system: a truth returned by an earlier call, to draw new data from the same system.
        scenario: name in `scenarios.SCENARIOS`; the options it sets replace those given.

    Example:
        >>> panel, truth = simulate(2, 100, edges=[("client1", "client2")], seed=1)
        >>> truth.edges
        (('client1', 'client2'),)
    """
    if scenario is not None:
        given = {name: value for name, value in locals().items() if name != "scenario"}
        return simulate(**{**given, **scenario_options(scenario)})
    check_noise(num_steps, measurement_correlation, student_df, mean_shifts, shift_size, seed)
    check_shares(missing_share, outage_share, reading_feedback)
    check_disturbances(dead_time, unit_factor, cycle_size, cycle_period)
    rng = np.random.default_rng(seed)
    if system is None:
        if clients is None and num_clients < 1:
            raise ConfigError(f"num_clients is {num_clients}; at least 1 is needed")
        names = tuple(clients) if clients is not None else client_names(num_clients)
        if not names:
            raise ConfigError("clients is empty; at least one name is needed")
        if len(set(names)) != len(names):
            raise ConfigError(f"client names are not unique: {', '.join(names)}")
        system = draw_system(
            rng,
            names,
            state_dims=state_dims,
            sensor_dims=sensor_dims,
            edges=round(0.3 * len(names) * (len(names) - 1)) if edges is None else edges,
            spectral_radius_target=spectral_radius,
            process_cov=process_cov,
            process_correlation=process_correlation,
            measurement_var=measurement_var,
        )
        system = replace(system, reading_feedback=float(reading_feedback))
        system = change_unit(with_dead_time(system, dead_time, spectral_radius), unit_factor)
    known_process_cov(system)
    system = replace(system, measurement_covs=_measurement_covs(system, measurement_correlation))
    noise_chol = _noise_chol(system, measurement_correlation)
    with jax.enable_x64(True):
        values = _measurements(system, num_steps, noise_chol, student_df, seed)
    columns = np.cumsum([len(C) for C in system.observation_matrices.values()])[:-1]
    parts = dict(zip(system.clients, np.split(values, columns, axis=1), strict=True))
    add_mean_shifts(parts, mean_shifts, shift_size, rng)
    check_outage(system.clients, outage_client, outage_steps)
    outage = (outage_client, outage_steps)
    recorded = observed_steps(system.clients, num_steps, missing_share, outage_share, rng, *outage)
    if cycle_size:
        std = state_std(system, noise_chol @ noise_chol.T)
        add_cycle(parts, system, std, cycle_size, cycle_period, rng)
    counting = add_counter(parts) if counter else None
    client_data = []
    for name, part in parts.items():
        observed = np.broadcast_to(recorded[name][:, None], part.shape).copy()
        sensors = [f"s{j + 1}" for j in range(part.shape[1])]
        if name == counting:
            sensors[-1] = COUNTER
        # a view of all clients' columns when nothing was missing
        part = np.ascontiguousarray(np.where(observed, part, 0.0) if not observed.all() else part)
        client_data.append(ClientData(name, tuple(sensors), part, observed))
    return Panel(tuple(client_data), np.arange(num_steps)), system


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
    constants = tuple(jnp.asarray(matrix) for matrix in constants)
    key = jax.random.key(seed)
    radius = float(np.max(np.abs(np.linalg.eigvals(advance))))
    burn_in = round(BURN_IN_TIME_CONSTANTS / (1 - radius))
    df = 0.0 if student_df is None else float(student_df)
    past = jnp.zeros(len(advance))
    values = np.empty((num_steps, len(noise_chol)))
    start = -burn_in
    while start < num_steps:
        length = min(CHUNK_STEPS, num_steps - start)
        chunk_key = jax.random.fold_in(key, start + burn_in)
        past, y = _run(chunk_key, *constants, past, length, df)
        if start + length > 0:
            values[max(start, 0) : start + length] = np.asarray(y)[max(-start, 0) :]
        start += length
    return values


@partial(jax.jit, static_argnames=("length", "df"))
def _run(
    key: Key[Array, ""],
    A: Float[Array, "past past"],
    C: Float[Array, "obs dim"],
    Q_chol: Float[Array, "dim dim"],
    R_chol: Float[Array, "obs obs"],
    read: Float[Array, "dim obs"],
    past: Float[Array, " past"],
    length: int,
    df: float,
) -> tuple[Float[Array, " past"], Float[Array, "time obs"]]:
    """Advance z and its past; `dynamics` has the equations."""
    process_key, measurement_key = jax.random.split(key)
    P = len(Q_chol)
    w = _noise(process_key, (length, P), df) @ Q_chol.T
    v = _noise(measurement_key, (length, len(C)), df) @ R_chol.T

    def advance(z: Array, noises: tuple[Array, Array]) -> tuple[Array, Array]:
        w_t, e_t = noises
        z = A @ z
        h = z[:P] + w_t
        return jnp.concatenate([h + e_t, z[P:]]), h

    past, states = lax.scan(advance, past, (w, v @ read.T))
    return past, states @ C.T + v


def _noise(key: Key[Array, ""], shape: tuple[int, int], df: float) -> Float[Array, "time dim"]:
    """Independent draws with unit variance."""
    if df == 0.0:
        return jax.random.normal(key, shape)
    return jax.random.t(key, df, shape) * np.sqrt((df - 2) / df)
