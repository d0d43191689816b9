r"""DYNOTEARS: a dynamic Bayesian network of all data in one place (Pamfil et al. 2020).

$$\min \tfrac{1}{2n}\|X - XW - YA\|^2 + \lambda_W\|W\|_1 + \lambda_A\|A\|_1
  \quad\text{s.t.}\quad h(W) = 0$$

by an augmented Lagrangian, \(+\,\alpha h + \tfrac{\rho}{2}h^2\): α grows by ρh, and ρ tenfold until
h is a quarter of what it was. Without past variables this is NOTEARS (Zheng et al. 2018).
FDBNL is the same problem with the data spread over clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from fedgranger_research.baselines.fdbnl import network_edges, sparsity_of
from fedgranger_research.baselines.graphs import cyclicity
from fedgranger_research.baselines.lagged_design import Design
from fedgranger_research.baselines.method_protocol import Post
from fedgranger_research.baselines.sparse_minimum import minimise_sparse
from fedgranger_research.baselines.weight_graphs import (
    LARGEST_PENALTY,
    WeightGraph,
    weight_method,
)

PENALTY_GROWTH = 10.0
ENOUGH_PROGRESS = 0.25
DEFAULTS: dict[str, Any] = {
    "present_sparsity": 0.1,
    "past_sparsity": 0.1,
    "threshold": 0.05,
    "max_iterations": 100,
    "cycle_tolerance": 1e-8,
}


def objective(
    weights: np.ndarray, moments: np.ndarray, cycle_dual: float, cycle_penalty: float
) -> tuple[float, np.ndarray]:
    """The smooth part of the augmented Lagrangian and its gradient; effects come first."""
    P = weights.shape[1]
    lack = -weights
    lack[:P] += np.eye(P)  # J − Θ
    product = moments @ lack
    h, slope = cyclicity(weights[:P])
    value = 0.5 * float(np.sum(lack * product)) + cycle_dual * h + 0.5 * cycle_penalty * h * h
    gradient = -product
    gradient[:P] += (cycle_dual + cycle_penalty * h) * slope
    return value, gradient


def learn(design: Design, options: Mapping[str, Any], _post: Post | None = None) -> WeightGraph:
    """Find Θ = [W; A] of the only share of a central design; nothing crosses."""
    (share,) = design.shares
    P, moments = design.num_present, share.cov
    allowed, sparsity = design.allowed[:, :P], sparsity_of(design, options)
    theta, alpha, rho, h = np.zeros(allowed.shape), 0.0, 1.0, np.inf
    for _ in range(options["max_iterations"]):
        while True:
            smooth = partial(objective, moments=moments, cycle_dual=alpha, cycle_penalty=rho)
            found = minimise_sparse(smooth, theta, allowed, sparsity)
            now, _ = cyclicity(found[:P])
            if now <= ENOUGH_PROGRESS * h or rho >= LARGEST_PENALTY:
                break
            rho *= PENALTY_GROWTH
        theta, h = found, now
        alpha += rho * h
        if h <= options["cycle_tolerance"]:
            return WeightGraph(theta, "converged", h)
        if rho >= LARGEST_PENALTY:
            break
    return WeightGraph(theta, "stopped", h)


CENTRAL = weight_method(
    "central", "DYNOTEARS on all data in one place", DEFAULTS, learn, network_edges
)
