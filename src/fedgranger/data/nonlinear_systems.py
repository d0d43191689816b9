r"""Nonlinear systems with known edges: what nonlinear models and tests are tried on.

Every system is a map of its own time step with process noise, \(h^+ = f(h) + \sigma w\), so that a
client drives another exactly where f says so (sampling a differential equation would link all).

- `quadratic`: clients turn linearly, and each cause acts through squares and products of its
  states, \(h_m^+ = A_m h_m + \sum_n B_n (h_n \circ h_n - 1,\, h_{n1} h_{n2})\); a cause of such an
  edge does not help a linear prediction. Edges run one way, so that nothing grows.
- `nonlinear-var`: bounded own dynamics and influences of three kinds in turn, increasing
  (tanh), even (a bump) and an interaction with the effect's own state.
- `lorenz96`: one variable per client on a ring, driven by its two neighbours before and the next
  one (Lorenz 1996), forced by F = 4 and by noise, in Euler steps of 0.03.
- `lotka-volterra`: logarithms of competing populations that grow by Ricker's law,
  \(x_m^+ = x_m + r (1 - e^{x_m} - \sum_n a_{mn} e^{x_n})\).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgranger.data.client_data import ClientData
from fedgranger.data.disturbances import observed_steps
from fedgranger.data.panel import Panel
from fedgranger.data.simulation_options import DYNAMICS, SimulationOptions
from fedgranger.data.truth import Truth
from fedgranger.errors import ConfigError

BURN_IN = 2000
JACOBIAN_STEPS = 2000
"""The truth's transition is the mean of ∂f/∂h over so many steps."""
LORENZ_STEP, LORENZ_FORCE, LORENZ_NOISE = 0.03, 4.0, 1.0
GROWTH, COMPETITION, GROWTH_NOISE = 0.6, 0.5, 0.15
Map = Callable[[jax.Array], jax.Array]


class NonlinearSystem(NamedTuple):
    """One drawn system.

    Attributes:
        edges: (cause, effect) by number of the client.
        advance: f, of all clients' states side by side.
        noise: σ.
        start: of the burn-in.
    """

    edges: tuple[tuple[int, int], ...]
    state_dim: int
    advance: Map
    noise: float
    start: np.ndarray


def _random_pairs(
    rng: np.random.Generator, M: int, count: int, *, one_way: bool
) -> list[tuple[int, int]]:
    """Ordered pairs (cause, effect); one way: along a random order of the clients."""
    order = rng.permutation(M)
    rank = np.argsort(order)
    pairs = [(n, m) for n in range(M) for m in range(M) if n != m]
    pairs = [(n, m) for n, m in pairs if not one_way or rank[n] < rank[m]]
    if count > len(pairs):
        raise ConfigError(f"{count} edges for {len(pairs)} possible pairs; ask for fewer edges")
    return sorted(pairs[place] for place in rng.permutation(len(pairs))[:count])


def _rotation(rng: np.random.Generator, radius: float) -> np.ndarray:
    angle = rng.uniform(0.2, 1.2)
    cos, sin = radius * np.cos(angle), radius * np.sin(angle)
    return np.array([[cos, -sin], [sin, cos]])


def _quadratic(rng: np.random.Generator, M: int, num_edges: int) -> NonlinearSystem:
    pairs = _random_pairs(rng, M, num_edges, one_way=True)
    own = jnp.array([_rotation(rng, 0.7) for _ in range(M)])
    mix = np.zeros((M, M, 2, 3))
    for n, m in pairs:
        B = rng.standard_normal((2, 3))
        mix[m, n] = 0.4 * B / np.linalg.norm(B)
    B = jnp.array(mix)
    scale = 1 / np.sqrt(1 - 0.7**2)

    def advance(h: jax.Array) -> jax.Array:
        s = h.reshape(M, 2)
        z = s / scale
        shapes = jnp.stack([z[:, 0] ** 2 - 1, z[:, 1] ** 2 - 1, z[:, 0] * z[:, 1]], axis=1)
        return (jnp.einsum("mij,mj->mi", own, s) + jnp.einsum("mnik,nk->mi", B, shapes)).reshape(-1)

    return NonlinearSystem(tuple(pairs), 2, advance, 1.0, np.zeros(2 * M))


def _nonlinear_var(rng: np.random.Generator, M: int, num_edges: int) -> NonlinearSystem:
    pairs = _random_pairs(rng, M, num_edges, one_way=False)
    own = jnp.array([_rotation(rng, 0.9) for _ in range(M)])
    weights, reads = np.zeros((3, M, M, 2)), np.zeros((M, M, 2))
    for place, (n, m) in enumerate(pairs):
        out, read = rng.standard_normal((2, 2))
        weights[place % 3, m, n] = 0.5 * out / np.linalg.norm(out)
        reads[m, n] = read / np.linalg.norm(read)
    W, R = jnp.array(weights), jnp.array(reads)

    def advance(h: jax.Array) -> jax.Array:
        s = h.reshape(M, 2)
        x = jnp.einsum("mni,ni->mn", R, s)
        bump = jnp.exp(-(x**2)) - 0.5
        product = jnp.tanh(x) * jnp.tanh(s[:, :1])
        kinds = jnp.stack([jnp.tanh(x), 1.5 * bump, 1.5 * product])
        linked = jnp.einsum("kmni,kmn->mi", W, kinds)
        return (1.2 * jnp.tanh(jnp.einsum("mij,mj->mi", own, s)) + linked).reshape(-1)

    return NonlinearSystem(tuple(pairs), 2, advance, 0.7, np.zeros(2 * M))


def _lorenz96(rng: np.random.Generator, M: int, num_edges: int | None) -> NonlinearSystem:
    if M < 4:
        raise ConfigError(f"lorenz96 has {M} clients; it needs at least 4 on its ring")
    _only_its_own("lorenz96", num_edges)
    pairs = sorted(((m + k) % M, m) for m in range(M) for k in (-2, -1, 1))

    def advance(h: jax.Array) -> jax.Array:
        speed = (jnp.roll(h, -1) - jnp.roll(h, 2)) * jnp.roll(h, 1) - h + LORENZ_FORCE
        step = LORENZ_STEP * speed
        return h + step / (1 + (step / 3) ** 4)  # tames steps that would run away

    noise = LORENZ_NOISE * np.sqrt(LORENZ_STEP)
    return NonlinearSystem(tuple(pairs), 1, advance, noise, rng.standard_normal(M))


def _lotka_volterra(rng: np.random.Generator, M: int, num_edges: int) -> NonlinearSystem:
    pairs = _random_pairs(rng, M, num_edges, one_way=False)
    mix = np.zeros((M, M))
    for n, m in pairs:
        mix[m, n] = COMPETITION * rng.uniform(0.7, 1.3)
    a = jnp.array(mix)

    def advance(h: jax.Array) -> jax.Array:
        size = jnp.exp(h)
        return h + GROWTH * (1 - size - a @ size)

    return NonlinearSystem(tuple(pairs), 1, advance, GROWTH_NOISE, np.full(M, -0.5))


def _only_its_own(name: str, num_edges: int | None) -> None:
    if num_edges is not None:
        raise ConfigError(f"{name} has edges of its own; leave 'edges' out")


SYSTEMS: dict[str, Callable[..., NonlinearSystem]] = dict(
    zip(DYNAMICS[1:], (_quadratic, _nonlinear_var, _lorenz96, _lotka_volterra), strict=True)
)
TAKEN = (
    *("dynamics", "num_clients", "num_steps", "edges", "sensor_dims", "measurement_var"),
    *("missing_share", "seed", "scenario"),
)
"""Options that these systems have."""


def simulate_nonlinear(clients: tuple[str, ...], asked: SimulationOptions) -> tuple[Panel, Truth]:
    """Record a nonlinear system: `sensor_dims` mixtures of each client's states.

    States are in units of the process noise, so `measurement_var` means what it does in a linear
    system.
    """
    usual = SimulationOptions()
    other = [
        name
        for name in vars(usual)
        if name not in TAKEN and getattr(asked, name) != getattr(usual, name)
    ]
    if other:
        raise ConfigError(f"{asked.dynamics} does not know '{other[0]}'; leave it out")
    edges, d, variance = asked.edges, asked.sensor_dims, asked.measurement_var
    if not isinstance(edges, int | None):
        raise ConfigError(f"{asked.dynamics} takes one number as 'edges'")
    if not isinstance(d, int) or not isinstance(variance, int | float):
        raise ConfigError(f"{asked.dynamics} has one 'sensor_dims' and 'measurement_var' for all")
    states, truth = draw_states(asked.dynamics, clients, asked.num_steps, edges, asked.seed)
    rng, data = np.random.default_rng([asked.seed, 1]), []
    p = states.shape[1] // len(clients)
    if d < p:
        raise ConfigError(f"sensor_dims is {d} for {p} states; use at least as many sensors")
    recorded = observed_steps(clients, asked, rng)
    sensors = tuple(f"s{j + 1}" for j in range(d))
    for name in clients:
        C = truth.observation_matrices[name] = rng.standard_normal((d, p))
        truth.measurement_covs[name] = variance * np.eye(d)
        noise = np.sqrt(variance) * rng.standard_normal((len(states), d))
        observed = np.broadcast_to(recorded[name][:, None], noise.shape).copy()
        values = np.where(observed, states[:, truth.rows(name)] @ C.T + noise, 0.0)
        data.append(ClientData(name, sensors, values, observed))
    return Panel(tuple(data), np.arange(asked.num_steps)), truth


def draw_states(
    name: str, clients: tuple[str, ...], num_steps: int, num_edges: int | None, seed: int
) -> tuple[np.ndarray, Truth]:
    """States (time, state) in units of the process noise, and the truth without sensors.

    Three in ten pairs are edges unless their number is given. The transition of the truth is the
    mean Jacobian: a block of zeros there can still be an edge.
    """
    rng, M = np.random.default_rng(seed), len(clients)
    if num_edges is None and name != "lorenz96":
        num_edges = max(1, round(0.3 * M * (M - 1)))
    with jax.enable_x64(True):
        system = SYSTEMS[name](rng, M, num_edges)
        w = system.noise * rng.standard_normal((BURN_IN + num_steps, M * system.state_dim))
        states, jacobian = _path(system.advance, jnp.array(system.start), jnp.array(w))
    if not np.isfinite(states).all():
        raise ConfigError(f"{name} with seed {seed} grows without bound; give another seed")
    jacobian[np.abs(jacobian) < 1e-12] = 0.0
    edges = tuple((clients[n], clients[m]) for n, m in system.edges)
    dims = dict.fromkeys(clients, system.state_dim)
    return states[BURN_IN:] / system.noise, Truth(clients, edges, jacobian, dims)


def _path(advance: Map, start: jax.Array, w: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    def step(h: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = advance(h) + noise
        return h, h

    states = jax.jit(lambda first, noises: lax.scan(step, first, noises)[1])(start, w)
    mean = jax.jit(lambda path: jax.vmap(jax.jacfwd(advance))(path).mean(axis=0))
    return np.array(states), np.array(mean(states[-JACOBIAN_STEPS:]))
