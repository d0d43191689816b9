"""Data with a known truth for comparing methods: the paper's setting, and what departs from it.

    h⁺ = A_own h + A_cross φ(h) + w,    y_m = C_m h_m + v_m

with φ the identity in the paper's setting. What the methods get is what the clients of a run would
send: least-squares states of each client, from a model that it identified on its own sensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from fedgranger.client.identify import identify
from fedgranger.client.params import LocalModel, known_models
from fedgranger.data.panel import Panel
from fedgranger.data.synthetic import simulate
from fedgranger.data.truth import Truth
from fedgranger.errors import ConfigError
from fedgranger.federation.direct import state_source
from fedgranger.inference.states import StateSource
from fedgranger.linalg.spectral import spectral_radius
from fedgranger_research.baselines.method_protocol import BaselineError, Columns
from fedgranger_research.baselines.true_dynamics import Dynamics, dynamics_of

RESPONSES = {"linear": lambda h: h, "tanh": np.tanh, "cosine": lambda h: np.sqrt(2) * np.cos(h)}
"""φ: how a cause acts. The cosine is even: a cause whose mean is zero leaves no correlation with
its effect. Effects get another mean by it, so what they drive in turn is not without trace."""
LARGEST_RADIUS = 0.98
BURN_IN = 300
SHOCKS = 11
"""Keeps these draws apart from others of the same seed."""


@dataclass(frozen=True)
class Scenario:
    """How data are made; the defaults are the paper's setting.

    Attributes:
        num_steps: T.
        num_clients: M.
        state_dim: p, states per client.
        sensor_dim: d, sensors per client.
        edge_share: of the M(M − 1) ordered pairs of clients, how many have an edge.
        strength: factor on the blocks across clients; where the whole would come too close to
            instability it is shrunk.
        measurement_var: variance of a sensor's noise.
        process_correlation: common correlation of all process noises, also across clients.
        student_df: degrees of freedom of Student-t noise, None: Gaussian.
        missing_share: of every client's time steps; a step that anybody misses is left out.
        latent_driver: one more client drives all others and is not in the data.
        response: of an effect to its cause, one of `RESPONSES`.
        models: "identified" by each client on its own sensors, or "known".
    """

    num_steps: int = 2000
    num_clients: int = 6
    state_dim: int = 2
    sensor_dim: int = 8
    edge_share: float = 0.3
    strength: float = 1.0
    measurement_var: float = 0.1
    process_correlation: float = 0.0
    student_df: float | None = None
    missing_share: float = 0.0
    latent_driver: bool = False
    response: str = "linear"
    models: str = "identified"

    def __post_init__(self) -> None:
        """Refuse what cannot be made."""
        if self.response not in RESPONSES:
            raise ConfigError(
                f"response is {self.response!r}; choose one of {', '.join(RESPONSES)}"
            )
        if self.models not in ("identified", "known"):
            raise ConfigError(f"models is {self.models!r}; choose identified or known")

    @property
    def differences(self) -> dict[str, Any]:
        """What departs from the paper's setting."""
        usual = asdict(Scenario())
        return {name: value for name, value in asdict(self).items() if value != usual[name]}


class Problem(NamedTuple):
    """Columns, and what is known about them.

    Attributes:
        columns: what methods get.
        is_true: entry (i, j): column j at t − 1 drives column i at t. An entry counts as true when
            its pair of clients has an edge, so the coordinates of the states do not matter; within
            a client all are true.
        is_client_true: the same per pair of clients, [effect, cause]; the diagonal is true.
        is_known: per pair of clients, whether `is_client_true` is known; all, unless made from
            recordings.
        dynamics: of the clients in the data, where the simulation knows them.
    """

    columns: Columns
    is_true: Bool[np.ndarray, "effect cause"]
    is_client_true: Bool[np.ndarray, "effect_client cause_client"]
    is_known: Bool[np.ndarray, "effect_client cause_client"]
    dynamics: Dynamics | None = None

    @property
    def owner(self) -> np.ndarray:
        """Client of every column."""
        return np.repeat(np.arange(len(self.columns.dims)), self.columns.dims)

    @property
    def own_transitions(self) -> tuple[np.ndarray, ...] | None:
        """A_mm of every client where the simulation knows them; the paper gives them to FedGC."""
        if self.dynamics is None:
            return None
        A, owner = self.dynamics.transition, self.owner
        return tuple(A[np.ix_(owner == m, owner == m)] for m in range(len(self.columns.dims)))


def draw_problem(scenario: Scenario, seed: int) -> Problem:
    """Simulate a system and its recording, and let the clients make their states."""
    M = scenario.num_clients
    num_edges = round(scenario.edge_share * M * (M - 1))
    options: dict[str, Any] = {
        "state_dims": scenario.state_dim,
        "sensor_dims": scenario.sensor_dim,
        "measurement_var": scenario.measurement_var,
        "process_correlation": scenario.process_correlation,
        "student_df": scenario.student_df,
        "missing_share": scenario.missing_share,
        "seed": seed,
    }
    with jax.enable_x64(True):
        _, system = simulate(M, 2, edges=num_edges, **options)
        if scenario.latent_driver:
            names = system.clients
            edges = [*system.edges, *(("unseen", name) for name in names)]
            _, system = simulate(M + 1, 2, clients=(*names, "unseen"), edges=edges, **options)
        system = _stronger(system, scenario.strength)
        if scenario.response == "linear":
            panel, system = simulate(M, scenario.num_steps, system=system, **options)
        else:
            panel = _respond(system, scenario, seed)
        panel = Panel(tuple(c for c in panel if c.name != "unseen"), panel.time)
        if scenario.models == "known":
            models = known_models(system)
        else:
            models = identified_models(panel, scenario.state_dim)
        columns = sent_columns(panel, models)
    dynamics = dynamics_of(system, columns.names, models)
    return with_truth(columns, system.edges)._replace(dynamics=dynamics)


def with_truth(columns: Columns, edges: tuple[tuple[str, str], ...]) -> Problem:
    """Columns whose (cause, effect) pairs of clients are known."""
    names = columns.names
    linked = np.array([[e == c or (c, e) in edges for c in names] for e in names], dtype=np.bool_)
    owner = np.repeat(np.arange(len(names)), columns.dims)
    return Problem(columns, linked[np.ix_(owner, owner)], linked, np.ones_like(linked))


def identified_models(panel: Panel, state_dim: int | str = "auto") -> dict[str, LocalModel]:
    """Every client's model of its own sensors, from its own data."""
    starts = panel.segment_starts
    return {client.name: identify(client, starts, state_dim=state_dim) for client in panel}


def sent_columns(panel: Panel, models: Mapping[str, LocalModel]) -> Columns:
    """The states that clients with these models would send, at the steps that all of them have."""
    with jax.enable_x64(True):
        return columns_of(state_source(panel, models))


def columns_of(source: StateSource) -> Columns:
    """The states that a server has, at the steps that all clients have.

    Raises:
        BaselineError: there is no such step.
    """
    chunks = list(source.chunks())
    states = np.concatenate([chunk.states for chunk in chunks])
    complete = np.concatenate([chunk.observed.all(axis=1) for chunk in chunks])
    starts = np.concatenate([chunk.starts for chunk in chunks])
    if not complete.any():
        raise BaselineError(
            "no time step has readings of all clients, and the compared methods need such steps; "
            "give data in which the clients' times overlap"
        )
    starts[1:] |= ~complete[:-1]
    starts, states = starts[complete], states[complete]
    starts[0] = True
    series = np.split(states, np.cumsum(source.dims)[:-1], axis=1)
    return Columns(source.names, tuple(series), starts, source.error_covs)


def _stronger(system: Truth, factor: float) -> Truth:
    """Scale the blocks across clients, and the whole where it would become nearly unstable."""
    if factor == 1.0:
        return system
    A = factor * system.transition
    for name in system.clients:
        rows = system.rows(name)
        A[rows, rows] = system.transition[rows, rows]
    radius = spectral_radius(A)
    return replace(system, transition=A * min(1.0, LARGEST_RADIUS / radius))


def _respond(system: Truth, scenario: Scenario, seed: int) -> Panel:
    """Run the system with another response of effects to causes, Gaussian noise, no gaps."""
    if scenario.student_df is not None or scenario.missing_share:
        raise ConfigError(
            f"response is {scenario.response!r}; it goes with Gaussian noise and no missing "
            "steps, so leave student_df and missing_share out"
        )
    if system.process_cov is None:
        raise RuntimeError("a simulated system has its noise")
    rng = np.random.default_rng([SHOCKS, seed])
    own = np.zeros_like(system.transition)
    for name in system.clients:
        rows = system.rows(name)
        own[rows, rows] = system.transition[rows, rows]
    cross, phi = system.transition - own, RESPONSES[scenario.response]
    shocks = rng.standard_normal((scenario.num_steps + BURN_IN, len(own)))
    shocks = shocks @ np.linalg.cholesky(system.process_cov).T
    h, states = np.zeros(len(own)), np.empty_like(shocks)
    for t, w in enumerate(shocks):
        h = own @ h + cross @ phi(h) + w
        states[t] = h
    states = states[BURN_IN:]
    arrays: dict[str, Float[np.ndarray, "time sensor"]] = {}
    for name in system.clients:
        C, R = system.observation_matrices[name], system.measurement_covs[name]
        noise = rng.standard_normal((len(states), len(C))) @ np.linalg.cholesky(R).T
        arrays[name] = states[:, system.rows(name)] @ C.T + noise
    return Panel.from_arrays(arrays)
