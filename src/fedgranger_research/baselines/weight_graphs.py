"""Methods that learn one weight per pair of lagged columns: what they share around their learning.

FedDAG, NOTEARS-ADMM, FDBNL and DYNOTEARS split the columns, learn weights, drop the small ones
(and the smallest of every cycle), and score an edge by the size of its weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

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

LARGEST_PENALTY = 1e16
"""On cycles; beyond it rounding decides."""


class Learned(Protocol):
    """What a method's `learn` gives."""

    @property
    def weights(self) -> np.ndarray:
        """`[cause, effect]`."""
        ...

    @property
    def status(self) -> str:
        """As in `EdgeScores`."""
        ...

    @property
    def residual(self) -> float:
        """What should be zero."""
        ...


class WeightGraph(NamedTuple):
    """Weights and how cyclic they still are.

    Attributes:
        weights: `[cause, effect]`; probabilities where networks are learned.
        status: "converged" or "stopped".
        cycle_residual: h at the end.
    """

    weights: np.ndarray
    status: str
    cycle_residual: float

    @property
    def residual(self) -> float:
        """What should be zero."""
        return self.cycle_residual


def raised_penalty(rho: float, h: float, before: float, options: Mapping[str, Any]) -> float:
    """The penalty on cycles after an iteration: larger where h is not much below what it was."""
    if h <= options["enough_progress"] * before:
        return rho
    return min(rho * options["penalty_growth"], LARGEST_PENALTY)


def fit_weights(
    columns: Columns,
    given: Mapping[str, Any],
    mode: str,
    *,
    defaults: Mapping[str, Any],
    learn: Callable[[Design, Mapping[str, Any], Post], Learned],
    edges_of: Callable[[np.ndarray, float], np.ndarray] = drop_until_acyclic,
) -> EdgeScores:
    """Score past → present entries by the size of their weights.

    Args:
        columns: what the clients hold.
        given: options, over the method's `defaults`.
        mode: vertical, horizontal or central.
        defaults: options of the method, its `threshold` among them.
        learn: of the design, the options and the post; it sends all messages.
        edges_of: which weights above the threshold are edges.
    """
    options = options_of(defaults, given)
    design, post = split_columns(columns, mode, time_order=options.get("time_order", True)), Post()
    found = learn(design, options, post)
    return edge_scores(
        np.abs(design.lagged(found.weights)),
        design.lagged(edges_of(found.weights, options["threshold"])),
        columns.dims,
        post,
        status=found.status,
        residual=found.residual,
    )


def weight_method(
    mode: str,
    words: str,
    defaults: Mapping[str, Any],
    learn: Callable[[Design, Mapping[str, Any], Post], Learned],
    edges_of: Callable[[np.ndarray, float], np.ndarray] = drop_until_acyclic,
) -> Method:
    """The method that fits by `fit_weights`."""
    fit = partial(fit_weights, mode=mode, defaults=defaults, learn=learn, edges_of=edges_of)
    return Method(fit, defaults, mode, words)
