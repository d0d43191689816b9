"""Draw a stable linear system with chosen or random cross-client edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgranger.data.truth import Truth
from fedgranger.errors import ConfigError
from fedgranger.linalg.psd import is_positive_definite
from fedgranger.linalg.spectral import spectral_radius

EDGE_STRENGTH = (0.4, 0.8)
"""Range of a block's Frobenius norm, divided by the square root of its smaller side, before the
whole matrix is scaled to its spectral radius."""


def client_names(num_clients: int) -> tuple[str, ...]:
    """client1, client2, …, padded with zeros so that sorting keeps the order."""
    width = len(str(num_clients))
    return tuple(f"client{m + 1:0{width}d}" for m in range(num_clients))


def draw_system(
    rng: np.random.Generator,
    clients: Sequence[str],
    *,
    state_dims: int | Sequence[int],
    sensor_dims: int | Sequence[int],
    edges: int | Sequence[tuple[str, str]],
    spectral_radius_target: float,
    process_cov: float | np.ndarray,
    process_correlation: float,
    measurement_var: float | Sequence[float],
) -> Truth:
    """Draw A, C, Q and R; see `synthetic.simulate` for the arguments."""
    M = len(clients)
    p = _per_client("state_dims", state_dims, M)
    d = _per_client("sensor_dims", sensor_dims, M)
    for name, p_m, d_m in zip(clients, p, d, strict=True):
        if d_m < p_m:
            raise ConfigError(
                f"client '{name}': {d_m} sensors for {p_m} states; use at least as many sensors"
            )
    pairs = _choose_edges(rng, clients, edges)
    if pairs and spectral_radius_target == 0:
        raise ConfigError("spectral_radius is 0, which leaves no room for edges; ask for edges=0")
    transition = _draw_transition(rng, clients, p, pairs, spectral_radius_target)
    variances = _per_client_float("measurement_var", measurement_var, M)
    observation = {
        name: rng.standard_normal((d_m, p_m)) for name, p_m, d_m in zip(clients, p, d, strict=True)
    }
    return Truth(
        tuple(clients),
        pairs,
        transition,
        dict(zip(clients, p, strict=True)),
        observation,
        _process_cov(process_cov, process_correlation, sum(p)),
        {name: v * np.eye(d_m) for name, v, d_m in zip(clients, variances, d, strict=True)},
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
    rng: np.random.Generator, clients: Sequence[str], edges: int | Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    possible = [(cause, effect) for effect in clients for cause in clients if cause != effect]
    if isinstance(edges, int):
        if not 0 <= edges <= len(possible):
            raise ConfigError(
                f"{edges} edges were asked for; {len(clients)} clients can have 0 to "
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


def _per_client_float(name: str, value: float | Sequence[float], M: int) -> list[float]:
    values = [float(value)] * M if isinstance(value, int | float) else [float(v) for v in value]
    if len(values) != M or not all(v > 0 and np.isfinite(v) for v in values):
        raise ConfigError(f"{name} is {value!r}; give one positive number, or one per client")
    return values
