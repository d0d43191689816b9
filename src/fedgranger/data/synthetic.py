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

from fedgranger.data.panel import ClientData, Panel
from fedgranger.data.system import client_names, draw_system
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
    seed: int = 0,
    system: Truth | None = None,
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
        seed: of the system and of the noise.
        system: a truth returned by an earlier call, to draw new data from the same system.

    Example:
        >>> panel, truth = simulate(2, 100, edges=[("client1", "client2")], seed=1)
        >>> truth.edges
        (('client1', 'client2'),)
    """
    if not np.isfinite(shift_size):
        raise ConfigError(f"shift_size is {shift_size}; it must be a finite number")
    _check(num_steps, measurement_correlation, student_df, mean_shifts, missing_share, seed)
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
    system = replace(system, measurement_covs=_measurement_covs(system, measurement_correlation))
    with jax.enable_x64(True):
        values = _measurements(system, num_steps, measurement_correlation, student_df, seed)
    columns = np.cumsum([len(C) for C in system.observation_matrices.values()])[:-1]
    parts = dict(zip(system.clients, np.split(values, columns, axis=1), strict=True))
    for _ in range(mean_shifts):
        name, start = rng.choice(system.clients), int(rng.integers(1, max(num_steps, 2)))
        jump = rng.choice([-1.0, 1.0], size=parts[name].shape[1]) * parts[name].std(axis=0)
        parts[name][start:] += shift_size * jump
    client_data = []
    for name, part in parts.items():
        observed = np.ones(part.shape, dtype=np.bool_)
        if missing_share:
            observed &= (rng.random(num_steps) >= missing_share)[:, None]
            part = np.where(observed, part, 0.0)
        sensors = tuple(f"s{j + 1}" for j in range(part.shape[1]))
        client_data.append(ClientData(name, sensors, np.ascontiguousarray(part), observed))
    return Panel(tuple(client_data), np.arange(num_steps)), system


def _measurement_covs(system: Truth, correlation: float) -> dict[str, np.ndarray]:
    """R_mm per client: the system's variances with this correlation."""
    covs = {}
    for name, R in system.measurement_covs.items():
        sd = np.sqrt(np.diag(R))
        covs[name] = np.outer(sd, sd) * ((1 - correlation) * np.eye(len(sd)) + correlation)
    return covs


def _measurements(
    system: Truth, num_steps: int, correlation: float, student_df: float | None, seed: int
) -> np.ndarray:
    """Run the system from a burnt-in state; noise comes in chunks, so memory holds only y."""
    A = jnp.asarray(system.transition)
    C = jnp.asarray(block_diag(*system.observation_matrices.values()))
    Q_chol = np.linalg.cholesky(_known(system.process_cov))
    noise_sd = np.sqrt(np.concatenate([np.diag(R) for R in system.measurement_covs.values()]))
    d = len(noise_sd)
    R_chol = noise_sd[:, None] * np.linalg.cholesky(
        (1 - correlation) * np.eye(d) + correlation * np.ones((d, d))
    )
    key = jax.random.key(seed)
    radius = float(np.max(np.abs(np.linalg.eigvals(system.transition))))
    burn_in = round(BURN_IN_TIME_CONSTANTS / (1 - radius))
    df = 0.0 if student_df is None else float(student_df)
    state = jnp.zeros(len(A))
    values = np.empty((num_steps, d))
    start = -burn_in
    while start < num_steps:
        length = min(CHUNK_STEPS, num_steps - start)
        chunk_key = jax.random.fold_in(key, start + burn_in)
        state, y = _run(
            chunk_key, A, C, jnp.asarray(Q_chol), jnp.asarray(R_chol), state, length, df
        )
        if start + length > 0:
            values[max(start, 0) : start + length] = np.asarray(y)[max(-start, 0) :]
        start += length
    return values


@partial(jax.jit, static_argnames=("length", "df"))
def _run(
    key: Key[Array, ""],
    A: Float[Array, "dim dim"],
    C: Float[Array, "obs dim"],
    Q_chol: Float[Array, "dim dim"],
    R_chol: Float[Array, "obs obs"],
    state: Float[Array, " dim"],
    length: int,
    df: float,
) -> tuple[Float[Array, " dim"], Float[Array, "time obs"]]:
    process_key, measurement_key = jax.random.split(key)
    w = _noise(process_key, (length, len(A)), df) @ Q_chol.T
    v = _noise(measurement_key, (length, len(C)), df) @ R_chol.T

    def advance(h: Array, w_t: Array) -> tuple[Array, Array]:
        h = A @ h + w_t
        return h, h

    state, states = lax.scan(advance, state, w)
    return state, states @ C.T + v


def _noise(key: Key[Array, ""], shape: tuple[int, int], df: float) -> Float[Array, "time dim"]:
    """Independent draws with unit variance."""
    if df == 0.0:
        return jax.random.normal(key, shape)
    return jax.random.t(key, df, shape) * np.sqrt((df - 2) / df)


def _known(process_cov: np.ndarray | None) -> np.ndarray:
    if process_cov is None:
        raise ConfigError(
            "this truth was read from truth.json, which has no noise covariances; "
            "pass the one that simulate() returned"
        )
    return process_cov


def _check(
    num_steps: int,
    measurement_correlation: float,
    student_df: float | None,
    mean_shifts: int,
    missing_share: float,
    seed: int,
) -> None:
    if num_steps < 2:
        raise ConfigError(f"num_steps is {num_steps}; at least 2 are needed")
    if not 0 <= measurement_correlation < 1:
        raise ConfigError(
            f"measurement_correlation is {measurement_correlation}; it must be 0 to below 1"
        )
    if student_df is not None and not student_df > 2:
        raise ConfigError(f"student_df is {student_df}; it must exceed 2 to have a variance")
    if mean_shifts < 0:
        raise ConfigError(f"mean_shifts is {mean_shifts}; it must be 0 or more")
    if not 0 <= missing_share < 1:
        raise ConfigError(f"missing_share is {missing_share}; it must be 0 to below 1")
    if seed < 0:
        raise ConfigError(f"seed is {seed}; it must be 0 or more")
