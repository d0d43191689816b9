r"""Agree on one sparse acyclic model by ADMM: what NOTEARS-ADMM and FDBNL have in common.

All variables are Z, effects are the first of them, X; the model is \(X = Z\Theta + E\) and
\(h\) measures cycles among the effects (`graphs.cyclicity`). With \(S_k\) the client's second
moments and \(c\) its weight,

$$\min \sum_k \tfrac{c}{2}\mathrm{tr}\,(J - \Theta_k)^\top S_k (J - \Theta_k)
  + \sum \lambda_{ji}|\Theta_{ji}| \quad\text{s.t.}\quad \Theta_k = \Theta,\; h(\Theta) = 0.$$

A client answers the server's \(\Theta\) with its own minimiser; it keeps its dual \(\beta_k\), and
sends \(\rho_2\Theta_k + \beta_k\), which is all that the server's step needs. Both know the
schedule of \(\rho_2\), so nothing else crosses. (Ng & Zhang 2022, section 4; Chen et al. 2024.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from fedgranger_research.baselines.graphs import cyclicity
from fedgranger_research.baselines.method_protocol import Post
from fedgranger_research.baselines.sparse_minimum import minimise_sparse

LARGEST_PENALTY = 1e16


class Problem(NamedTuple):
    """What the server knows of the model.

    Attributes:
        allowed: entries that may differ from zero; the others stay zero.
        sparsity: λ per entry.
        num_holders: clients that hold both variables of an entry.
    """

    allowed: Bool[np.ndarray, "cause effect"]
    sparsity: Float[np.ndarray, "cause effect"]
    num_holders: Float[np.ndarray, "cause effect"]


class Schedule(NamedTuple):
    """Penalties and when to stop; the defaults are those of NOTEARS-ADMM's original.

    Attributes:
        first_cycle_penalty: ρ1 at the start.
        first_consensus_penalty: ρ2 at the start.
        cycle_growth: factor of ρ1 per iteration.
        consensus_growth: factor of ρ2 per iteration.
        max_iterations: stop there.
        cycle_tolerance: of h.
        consensus_tolerance: of the largest |Θ_k − Θ|.
    """

    first_cycle_penalty: float = 1e-3
    first_consensus_penalty: float = 1e-3
    cycle_growth: float = 1.75
    consensus_growth: float = 1.25
    max_iterations: int = 200
    cycle_tolerance: float = 1e-8
    consensus_tolerance: float = 1e-5


class Penalties(NamedTuple):
    """α, ρ1 and ρ2 of one iteration."""

    cycle_dual: float
    cycle: float
    consensus: float


class Agreement(NamedTuple):
    """The model, and how far it is from what was asked.

    Attributes:
        weights: Θ.
        status: "converged" or "stopped".
        num_iterations: of ADMM.
        cycle_residual: h at the end.
        consensus_residual: largest |Θ_k − Θ| at the end.
    """

    weights: Float[np.ndarray, "cause effect"]
    status: str
    num_iterations: int
    cycle_residual: float
    consensus_residual: float

    @property
    def residual(self) -> float:
        """What should be zero."""
        return max(self.cycle_residual, self.consensus_residual)


class ClientSide:
    """One client: its second moments, which never leave it, its Θ_k and its β_k."""

    def __init__(self, moments: np.ndarray, num_effects: int) -> None:
        """Take c·S_k; the client's effects are the first of its variables."""
        self._values, self._vectors = np.linalg.eigh(moments)
        self._targets = moments[:, :num_effects]
        self._dual = np.zeros_like(self._targets)
        self._own = np.zeros_like(self._targets)

    def answer(self, consensus: np.ndarray, penalty: float) -> np.ndarray:
        r"""Minimise the own loss near Θ: \((S + \rho I)^{-1}(S_X + \rho\Theta - \beta)\).

        Returns:
            \(\rho\Theta_k + \beta_k\).
        """
        V, right = self._vectors, self._targets + penalty * consensus - self._dual
        self._own = V @ ((V.T @ right) / (self._values + penalty)[:, None])
        return penalty * self._own + self._dual

    def learn(self, consensus: np.ndarray, penalty: float) -> float:
        r"""Add \(\rho(\Theta_k - \Theta)\) to the dual; return the largest |Θ_k − Θ|."""
        apart = self._own - consensus
        self._dual = self._dual + penalty * apart
        return float(np.abs(apart).max())


def server_objective(
    weights: np.ndarray, pulls: np.ndarray, problem: Problem, penalties: Penalties
) -> tuple[float, np.ndarray]:
    r"""The smooth part of the server's problem and its gradient.

    $$\alpha h + \tfrac{\rho_1}{2}h^2 + \tfrac{\rho_2}{2}\sum_{ji} K_{ji}\Theta_{ji}^2
      - \sum_{ji}\Theta_{ji} v_{ji},\quad v = \sum_k(\rho_2\Theta_k + \beta_k)$$
    """
    alpha, rho1, rho2 = penalties
    effects = weights.shape[1]
    h, slope = cyclicity(weights[:effects])
    quadratic = rho2 * problem.num_holders * weights
    value = alpha * h + 0.5 * rho1 * h * h + float(np.sum(weights * (0.5 * quadratic - pulls)))
    gradient = quadratic - pulls
    gradient[:effects] += (alpha + rho1 * h) * slope
    return value, gradient


def server_step(
    start: np.ndarray, pulls: np.ndarray, problem: Problem, penalties: Penalties
) -> np.ndarray:
    """Minimise it with λ|Θ|, in units of the consensus penalty once that is large."""
    return minimise_sparse(
        lambda weights: server_objective(weights, pulls, problem, penalties),
        start,
        problem.allowed,
        problem.sparsity,
        unit=1.0 / max(1.0, penalties.consensus),
    )


def agree(
    moments: list[np.ndarray],
    places: list[tuple[np.ndarray, np.ndarray]],
    problem: Problem,
    schedule: Schedule,
    post: Post,
) -> Agreement:
    """Run ADMM between clients and server.

    Args:
        moments: c·S_k per client, effects first.
        places: per client, rows and columns of Θ that it holds.
        problem: what the server knows.
        schedule: penalties and when to stop.
        post: counts the messages.
    """
    clients = [ClientSide(S, len(cols)) for S, (_, cols) in zip(moments, places, strict=True)]
    theta = np.zeros(problem.allowed.shape)
    alpha, rho1, rho2 = 0.0, schedule.first_cycle_penalty, schedule.first_consensus_penalty
    h = apart = np.inf
    for iteration in range(1, schedule.max_iterations + 1):
        pulls = np.zeros_like(theta)
        for client, where in zip(clients, places, strict=True):
            message = client.answer(theta[np.ix_(*where)], rho2)
            post.carry(message)
            pulls[np.ix_(*where)] += message
        theta = server_step(theta, pulls, problem, Penalties(alpha, rho1, rho2))
        apart = 0.0
        for client, where in zip(clients, places, strict=True):
            message = theta[np.ix_(*where)]
            post.carry(message)
            apart = max(apart, client.learn(message, rho2))
        h, _ = cyclicity(theta[: theta.shape[1]])
        if h <= schedule.cycle_tolerance and apart <= schedule.consensus_tolerance:
            return Agreement(theta, "converged", iteration, h, apart)
        alpha += rho1 * h
        rho1 = min(rho1 * schedule.cycle_growth, LARGEST_PENALTY)
        rho2 = min(rho2 * schedule.consensus_growth, LARGEST_PENALTY)
    return Agreement(theta, "stopped", schedule.max_iterations, h, apart)
