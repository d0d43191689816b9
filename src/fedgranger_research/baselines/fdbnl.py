r"""FDBNL: a federated dynamic Bayesian network (Chen, Ma & Yue 2024).

$$X = XW + YA + E,\qquad \min \sum_k\tfrac{1}{2n}\|X_k - X_kW - Y_kA\|^2
  + \lambda_W\|W\|_1 + \lambda_A\|A\|_1 \quad\text{s.t.}\quad h(W) = 0$$

with X the columns at t and Y those at t − 1, so only W can have cycles. With Z = [X, Y] and
Θ = [W; A] this is the problem of `consensus`. There is no public code; penalties and their growth
are those of NOTEARS-ADMM, and the threshold 0.05 gives the paper's row.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from fedgranger_research.baselines.consensus import Agreement, Problem, Schedule, agree
from fedgranger_research.baselines.graphs import drop_until_acyclic
from fedgranger_research.baselines.lagged_design import Design, split_columns
from fedgranger_research.baselines.method_protocol import (
    Columns,
    EdgeScores,
    Method,
    Post,
    edge_scores,
    options_of,
)

DEFAULTS: dict[str, Any] = {
    "present_sparsity": 0.01,
    "past_sparsity": 0.01,
    "threshold": 0.05,
    "first_cycle_penalty": 1e-3,
    "first_consensus_penalty": 1e-3,
    "cycle_growth": 1.75,
    "consensus_growth": 1.25,
    "max_iterations": 200,
    "cycle_tolerance": 1e-8,
    "consensus_tolerance": 1e-5,
}


def sparsity_of(design: Design, options: Mapping[str, Any]) -> np.ndarray:
    """λ_W for present causes, λ_A for past causes, `[cause, effect]` with present effects."""
    column = np.where(design.is_past, options["past_sparsity"], options["present_sparsity"])
    return np.repeat(column[:, None], design.num_present, axis=1)


def learn(design: Design, options: Mapping[str, Any], post: Post) -> Agreement:
    """Agree on Θ = [W; A], `[cause, effect]` with present effects only."""
    P = design.num_present
    problem = Problem(
        design.allowed[:, :P], sparsity_of(design, options), design.num_holders[:, :P]
    )
    schedule = Schedule(**{name: options[name] for name in Schedule._fields})
    moments = [share.cov for share in design.shares]
    places = [(share.places, share.places[share.places < P]) for share in design.shares]
    return agree(moments, places, problem, schedule, post)


def network_edges(weights: np.ndarray, threshold: float) -> np.ndarray:
    """Edges above the threshold, those of the present acyclic."""
    P = weights.shape[1]
    return np.vstack([drop_until_acyclic(weights[:P], threshold), np.abs(weights[P:]) > threshold])


def fit(columns: Columns, options: Mapping[str, Any], mode: str) -> EdgeScores:
    """Score by |A|."""
    options = options_of(DEFAULTS, options)
    design, post = split_columns(columns, mode), Post()
    found = learn(design, options, post)
    return edge_scores(
        np.abs(design.lagged(found.weights)),
        design.lagged(network_edges(found.weights, options["threshold"])),
        columns.dims,
        post,
        status=found.status,
        residual=max(found.cycle_residual, found.consensus_residual),
    )


VERTICAL = Method(
    partial(fit, mode="vertical"), DEFAULTS, "vertical", "FDBNL on a client's own columns"
)
HORIZONTAL = Method(partial(fit, mode="horizontal"), DEFAULTS, "horizontal", "FDBNL on all columns")
