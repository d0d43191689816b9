r"""Before a private run: what it would cost, and what its tests would still find.

States with noise of covariance N have the estimating function of the latent test

$$\psi_t = (\tilde s_{t+1} - A \tilde s_t)\,\tilde s_t^\top + A (E + N),$$

whose long-run covariance S gives \(\mathrm{Cov}(\hat A) = G_0^{-1} S\, G_0^{-1} / T\) (THEORY 5).
A and G₀ are those of the states without noise, of a simulated system or of data that are in one
place; S is measured on them with noise drawn. So no matrix has to be estimated from noise, and the
plan speaks of records of any length, those in which a run would have to refuse included.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedgranger.client.client_side import set_up_client
from fedgranger.config import PrivacyOptions, RunConfig
from fedgranger.data.panel import Panel
from fedgranger.data.synthetic import simulate
from fedgranger.errors import RunError
from fedgranger.federation.direct import source_of_clients
from fedgranger.inference.estimate import Estimate
from fedgranger.inference.latent import fit_latent
from fedgranger.inference.states import StateSource, complete_rows
from fedgranger.inference.strength import detectable_strength, power_at
from fedgranger.privacy.sensitivity import memoryless
from fedgranger.text import counted

ALPHA = 0.05
SIMULATED_STEPS = 20_000
DEFAULT_STEPS = 10_000
LARGEST_DF = 1e6


class PlannedSystem(NamedTuple):
    """States without noise, what is known of them, and the time steps that are planned for."""

    name: str
    source: StateSource
    fit: Estimate
    num_steps: int


class PlanRow(NamedTuple):
    """One value of ε.

    Attributes:
        epsilon: None: no noise.
        noise: standard deviation of the noise in units of a state's.
        power: chance to find the influence that was asked about.
        detectable: strength that is found with probability 0.8.
        steps_needed: time steps at which that influence is found with probability 0.8.
    """

    epsilon: float | None
    noise: float
    power: float
    detectable: float
    steps_needed: float


def read_system(
    data: Path | None, states: int, num_clients: int, num_steps: int | None
) -> PlannedSystem:
    """Data that are in one place, or a simulated system with a third of all links."""
    config = RunConfig(state_dim=states, lags=1)
    if data is not None:
        panel = Panel.read(data)
        name = f"{len(panel.names)} clients of {data}"
    else:
        panel, _ = simulate(num_clients, SIMULATED_STEPS, state_dims=states, seed=0)
        name = f"{num_clients} simulated clients with {counted(states, 'state')}"
    starts = panel.segment_starts
    clients = [set_up_client(one, panel.time, starts, config, is_filtered=False) for one in panel]
    latent = fit_latent(complete_rows(source_of_clients(clients)), config)
    steps = num_steps or (DEFAULT_STEPS if data is None else panel.num_steps)
    return PlannedSystem(name, latent.source, latent.fit, steps)


def make_plan(
    system: PlannedSystem,
    options: PrivacyOptions,
    epsilons: Sequence[float],
    strength: float,
    report: Callable[[str, int, int], None] = lambda *_: None,
) -> list[PlanRow]:
    """A row per ε, the last one without noise."""
    rows = []
    for k, epsilon in enumerate([*epsilons, None]):
        report("planning", k, len(epsilons) + 1)
        noise = 0.0
        if epsilon is not None:
            noise = _noise_of(replace(options, epsilon=epsilon), system)
        rows.append(_row(system, epsilon, noise, strength))
    return rows


def _noise_of(options: PrivacyOptions, system: PlannedSystem) -> float:
    """X of the largest client: noise on a state in units of the state's deviation."""
    terms, dim = options.terms, max(system.source.dims)
    if terms is None:
        raise RunError("the plan has no noise")
    sizes = terms.sizes(dim, system.num_steps, has_tests=True, has_rounds=False)
    return memoryless(terms.bound(dim), terms.neighbours, system.num_steps) / sizes.states


def _row(system: PlannedSystem, epsilon: float | None, noise: float, strength: float) -> PlanRow:
    dims = system.source.dims
    covs = block_covs(system, noise)
    df = min(float(system.num_steps), LARGEST_DF)
    sizes = [detectable_strength(cov, df, ALPHA) for cov in covs.values()]
    middle = int(np.argsort(sizes)[len(sizes) // 2])
    m, n = list(covs)[middle]
    detectable = sizes[middle]
    found = power_at(strength, detectable, dims[m] * dims[n], df, ALPHA) if strength else ALPHA
    needed = system.num_steps * (detectable / strength) ** 2 if strength else np.inf
    return PlanRow(epsilon, noise, found, detectable, needed)


def block_covs(
    system: PlannedSystem, noise: float, seed: int = 0
) -> dict[tuple[int, int], np.ndarray]:
    """Covariance of every block's entries (row by row) in a run with that noise, by pair."""
    source, fit = system.source, system.fit
    states = np.concatenate([chunk.states for chunk in source.chunks()]) - fit.moments.mean
    starts = np.concatenate([chunk.starts for chunk in source.chunks()])
    owner, added = source.owner, np.zeros((source.total_dim, source.total_dim))
    rng = np.random.default_rng(seed)
    for m in range(len(source.dims)):
        own = np.flatnonzero(owner == m)
        unit = noise * np.linalg.cholesky(states[:, own].T @ states[:, own] / len(states))
        added[np.ix_(own, own)] = unit @ unit.T
        states[:, own] += rng.standard_normal((len(states), len(own))) @ unit.T
    follows = ~starts[1:]
    x, after = states[:-1][follows], states[1:][follows]
    error = after - x @ fit.transition.T
    z = x @ fit.inverse_cov
    constant = fit.transition @ (source.error_cov + added) @ fit.inverse_cov
    out = {}
    for m, n in itertools.permutations(range(len(source.dims)), 2):
        rows, columns = np.flatnonzero(owner == m), np.flatnonzero(owner == n)
        phi = error[:, rows, None] * z[:, None, columns] + constant[np.ix_(rows, columns)]
        phi = phi.reshape(len(phi), -1)
        now, next_to = phi.T @ phi, phi[1:].T @ phi[:-1]
        out[m, n] = (now + next_to + next_to.T) / len(phi) / system.num_steps
    return out
