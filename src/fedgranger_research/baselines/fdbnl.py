r"""FDBNL: a federated dynamic Bayesian network (Chen, Ma & Yue 2024).

$$X = XW + YA + E,\qquad \min \sum_k\tfrac{1}{2n}\|X_k - X_kW - Y_kA\|^2
  + \lambda_W\|W\|_1 + \lambda_A\|A\|_1 \quad\text{s.t.}\quad h(W) = 0$$

with X the columns at t and Y those at t − 1, so only W can have cycles. With Z = [X, Y] and
Θ = [W; A] this is the problem of `consensus`. There is no public code; penalties and their growth
are those of NOTEARS-ADMM, and the threshold 0.05 gives the paper's row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedgranger_research.baselines.consensus import Agreement, Problem, Schedule, agree
from fedgranger_research.baselines.graphs import drop_until_acyclic
from fedgranger_research.baselines.lagged_design import Design
from fedgranger_research.baselines.method_protocol import Post
from fedgranger_research.baselines.weight_graphs import weight_method

DEFAULTS: dict[str, Any] = {
    "present_sparsity": 0.01,
    "past_sparsity": 0.01,
    "threshold": 0.05,
    **Schedule()._asdict(),
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


VERTICAL = weight_method(
    "vertical", "FDBNL on a client's own columns", DEFAULTS, learn, network_edges
)
HORIZONTAL = weight_method("horizontal", "FDBNL on all columns", DEFAULTS, learn, network_edges)
