"""A stable linear system with chosen or random cross-client edges, and how its states advance.

    h⁺ = A_own z + A_cross z[dead_time steps ago] + w,    z = h + feedback · e,    y = C h + v

with A_own the clients' own blocks and e = (CᵀR⁻¹C)⁻¹CᵀR⁻¹v the error of the states that a
controller reads off the sensors. With feedback 0 nothing acts on readings; with 1 everything
does, own blocks and edges, and sensor noise is part of the dynamics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.linalg

from fedgranger.data.simulation_options import SimulationOptions
from fedgranger.data.truth import Truth
from fedgranger.errors import ConfigError
from fedgranger.linalg.psd import is_positive_definite
from fedgranger.linalg.spectral import spectral_radius
from fedgranger.text import counted

EDGE_STRENGTH = (0.4, 0.8)
"""Range of a block's Frobenius norm, divided by the square root of its smaller side, before the
whole matrix is scaled to its spectral radius."""
BISECTIONS = 60


def client_names(num_clients: int) -> tuple[str, ...]:
    """client1, client2, …, padded with zeros so that sorting keeps the order."""
    width = len(str(num_clients))
    return tuple(f"client{m + 1:0{width}d}" for m in range(num_clients))


def draw_system(
    rng: np.random.Generator, clients: tuple[str, ...], asked: SimulationOptions
) -> Truth:
    """Draw A, C, Q and R."""
    M = len(clients)
    p = _per_client("state_dims", asked.state_dims, M)
    d = _per_client("sensor_dims", asked.sensor_dims, M)
    for name, p_m, d_m in zip(clients, p, d, strict=True):
        if d_m < p_m:
            raise ConfigError(
                f"client '{name}': {counted(d_m, 'sensor')} for {p_m} states; use at least as "
                "many sensors"
            )
    pairs = _choose_edges(rng, clients, asked.edges)
    if pairs and asked.spectral_radius == 0:
        raise ConfigError("spectral_radius is 0, which leaves no room for edges; ask for edges=0")
    transition = _draw_transition(rng, clients, p, pairs, asked.spectral_radius)
    variances = _variances(asked.measurement_var, M)
    observation = {
        name: rng.standard_normal((d_m, p_m)) for name, p_m, d_m in zip(clients, p, d, strict=True)
    }
    return Truth(
        clients,
        pairs,
        transition,
        dict(zip(clients, p, strict=True)),
        observation,
        _process_cov(asked.process_cov, asked.process_correlation, sum(p)),
        {name: v * np.eye(d_m) for name, v, d_m in zip(clients, variances, d, strict=True)},
        reading_feedback=asked.reading_feedback,
    )


def _draw_transition(
    rng: np.random.Generator,
    clients: Sequence[str],
    p: Sequence[int],
    pairs: Sequence[tuple[str, str]],
    target: float,
) -> np.ndarray:
    offsets = np.concatenate([[0], np.cumsum(p)])
    A = np.zeros((offsets[-1], offsets[-1]))
    where = {name: slice(offsets[m], offsets[m + 1]) for m, name in enumerate(clients)}
    for m, name in enumerate(clients):
        block = rng.standard_normal((p[m], p[m]))
        A[where[name], where[name]] = block * rng.uniform(0.5, 0.9) / spectral_radius(block)
    for cause, effect in pairs:
        block = rng.standard_normal((p[clients.index(effect)], p[clients.index(cause)]))
        size = rng.uniform(*EDGE_STRENGTH) * np.sqrt(min(block.shape))
        A[where[effect], where[cause]] = block * size / np.linalg.norm(block)
    return A * target / spectral_radius(A)


def _choose_edges(
    rng: np.random.Generator, clients: Sequence[str], edges: int | Sequence[tuple[str, str]] | None
) -> tuple[tuple[str, str], ...]:
    possible = [(cause, effect) for effect in clients for cause in clients if cause != effect]
    if edges is None:
        edges = round(0.3 * len(possible))
    if isinstance(edges, int):
        if not 0 <= edges <= len(possible):
            raise ConfigError(
                f"{counted(edges, 'edge was', 'edges were')} asked for; {len(clients)} clients "
                "can have 0 to "
                f"{len(possible)}"
            )
        chosen = rng.choice(len(possible), size=edges, replace=False)
        return tuple(possible[k] for k in sorted(chosen))
    for edge in edges:
        if tuple(edge) not in possible:
            raise ConfigError(
                f"edge {tuple(edge)} does not join two different clients; "
                f"the clients are {', '.join(clients)}"
            )
    return tuple(dict.fromkeys((cause, effect) for cause, effect in edges))


def _process_cov(cov: float | np.ndarray, correlation: float, total: int) -> np.ndarray:
    if isinstance(cov, np.ndarray):
        Q = cov
    else:
        Q = float(cov) * ((1 - correlation) * np.eye(total) + correlation)
    if (
        Q.shape != (total, total)
        or not np.isfinite(Q).all()
        or not np.allclose(Q, Q.T)
        or not is_positive_definite(Q)
    ):
        raise ConfigError(
            f"process_cov must be a positive number or a positive definite {total} x {total} matrix"
        )
    return Q


def _per_client(name: str, value: int | Sequence[int], M: int) -> list[int]:
    values = [value] * M if isinstance(value, int) else [int(v) for v in value]
    if len(values) != M or min(values) < 1:
        raise ConfigError(
            f"{name} is {value!r}; give one positive whole number, or one for each of {M} clients"
        )
    return values


def _variances(value: float | Sequence[float], M: int) -> list[float]:
    values = [float(value)] * M if isinstance(value, int | float) else [float(v) for v in value]
    if len(values) != M or not all(v > 0 and np.isfinite(v) for v in values):
        raise ConfigError(
            f"measurement_var is {value!r}; give one positive number, or one per client"
        )
    return values


def advance_matrix(truth: Truth) -> np.ndarray:
    """Matrix that advances [z_t; z_{t-1}; …; z_{t-dead_time}]; A itself without dead time."""
    A, delay = truth.transition, truth.dead_time
    if not delay:
        return A
    P = len(A)
    own = np.zeros_like(A)
    for name in truth.clients:
        rows = truth.rows(name)
        own[rows, rows] = A[rows, rows]
    out = np.zeros((P * (delay + 1), P * (delay + 1)))
    out[:P, :P] = own
    out[:P, -P:] = A - own
    out[P:, :-P] = np.eye(P * delay)
    return out


def with_dead_time(truth: Truth, dead_time: int, target: float) -> Truth:
    """The same system with later edges, shrunk where it would exceed the spectral radius."""
    delayed = replace(truth, dead_time=dead_time)
    if not dead_time or spectral_radius(advance_matrix(delayed)) <= target:
        return delayed
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        tried = replace(delayed, transition=middle * truth.transition)
        if spectral_radius(advance_matrix(tried)) <= target:
            low = middle
        else:
            high = middle
    return replace(delayed, transition=low * truth.transition)


def reading_errors(truth: Truth) -> np.ndarray:
    """Matrix that maps v to feedback · e, (P, sensors)."""
    blocks = []
    for name in truth.clients:
        noise_sd = np.sqrt(np.diag(truth.measurement_covs[name]))
        weighted = truth.observation_matrices[name] / noise_sd[:, None]
        blocks.append(np.linalg.pinv(weighted) / noise_sd)
    return truth.reading_feedback * np.asarray(scipy.linalg.block_diag(*blocks))


def state_std(truth: Truth, measurement_cov: np.ndarray) -> np.ndarray:
    """Standard deviation of every state; `measurement_cov` is that of all sensors."""
    P, A = len(truth.transition), advance_matrix(truth)
    F = reading_errors(truth)
    read_cov = F @ measurement_cov @ F.T
    noise_cov = np.zeros_like(A)
    noise_cov[:P, :P] = known_process_cov(truth) + read_cov
    cov = scipy.linalg.solve_discrete_lyapunov(A, noise_cov)
    return np.sqrt(np.diag(cov)[:P] - np.diag(read_cov))


def known_process_cov(truth: Truth) -> np.ndarray:
    """Q, or one sentence when the truth has none."""
    if truth.process_cov is None:
        raise ConfigError(
            "this truth was read from truth.json, which has no noise covariances; "
            "pass the one that simulate() returned"
        )
    return truth.process_cov
