r"""FedDAG GS and AS: a graph that clients average, with networks for the influences.

Every client trains a mask of edges and its networks (`masked_networks`) on

$$\tfrac{1}{2n}\|X_k - \hat X_k\|^2 + \lambda\sum M + \alpha h(M) + \tfrac{\rho}{2}h(M)^2,\qquad
  h(M) = \mathrm{tr}\,e^{M} - d.$$

GS (graph shared) sends the mask's U, and the networks stay at the client: influences may differ
between clients. AS (all shared) sends the networks too. In vertical mode nobody else holds the same
variables, averages are over one, and GS and AS differ in the size of their messages only.
(Gao et al. 2023.) The original's steps use all samples; `batch_size` draws some per step.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedgranger.linalg.blocks import pad_stack
from fedgranger_research.baselines.adam import adam_init
from fedgranger_research.baselines.graphs import walks_of
from fedgranger_research.baselines.lagged_design import Design
from fedgranger_research.baselines.masked_networks import (
    Networks,
    draw_networks,
    draw_steps,
    train_clients,
)
from fedgranger_research.baselines.method_protocol import Method, Post
from fedgranger_research.baselines.weight_graphs import (
    WeightGraph,
    raised_penalty,
    weight_method,
)

DEFAULTS: dict[str, Any] = {
    "sparsity": 2e-3,
    "threshold": 0.5,
    "time_order": True,
    "temperature": 0.2,
    "step_size": 3e-2,
    "steps_per_average": 200,
    "averages_per_iteration": 5,
    "max_iterations": 25,
    "first_penalty": 6e-3,
    "penalty_growth": 5.0,
    "enough_progress": 0.25,
    "cycle_tolerance": 1e-8,
    "batch_size": 64,
    "seed": 0,
}


single = partial(jnp.asarray, dtype=jnp.float32)
"""Networks are trained in single precision, as the original's; the server averages in double."""


def learn(
    design: Design, options: Mapping[str, Any], post: Post, *, shares_all: bool
) -> WeightGraph:
    """Train and average until the mask is acyclic or the iterations are over."""
    with jax.enable_x64(True):
        return _learn(design, options, post, shares_all)


def _learn(design: Design, options: Mapping[str, Any], post: Post, shares_all: bool) -> WeightGraph:
    shares = design.shares
    places = [np.ix_(share.places, share.places) for share in shares]
    sizes = [len(share.places) for share in shares]
    size, longest = max(sizes), max(len(share.rows) for share in shares)
    rows = single(pad_stack([share.rows for share in shares], (longest, size)))
    ones = [np.full(len(share.rows), 1.0 / len(share.rows)) for share in shares]
    importance = single(pad_stack(ones, (longest,)))
    stack = partial(pad_stack, shape=(size, size))
    allowed = single(stack([design.allowed[where].astype(float) for where in places]))
    rngs = np.random.default_rng(options["seed"]).spawn(len(shares))
    drawn = draw_networks(np.random.default_rng(options["seed"]), size)
    networks = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(shares)), drawn)
    states = jax.vmap(adam_init)(networks)
    mean, holders = np.zeros(design.allowed.shape), np.maximum(design.num_holders, 1)
    same_variables = all(np.array_equal(share.places, shares[0].places) for share in shares)
    num_steps = options["steps_per_average"]
    alpha, rho, h, probabilities = 0.0, options["first_penalty"], np.inf, mean
    for _ in range(options["max_iterations"]):
        message = {
            "dual": single(alpha),
            "penalty": single(rho),
            "sparsity": single(options["sparsity"]),
            "temperature": single(options["temperature"]),
            "step_size": single(options["step_size"]),
        }
        for _ in range(options["averages_per_iteration"]):
            draws = [
                draw_steps(rng, num_steps, size, len(share.rows), options["batch_size"])
                for rng, share in zip(rngs, shares, strict=True)
            ]
            networks, states = train_clients(
                *(networks, states, rows, importance, allowed),
                jax.tree.map(lambda *parts: jnp.stack(parts), *draws),
                message,
            )
            _carry(networks, sizes, shares_all, post)
            mean = _average_logits(networks, places, sizes, holders)
            networks = _deliver(networks, mean, places, size, shares_all and same_variables)
            _carry(networks, sizes, shares_all, post, np.array([alpha, rho]))
        probabilities = design.allowed / (1.0 + np.exp(-mean / options["temperature"]))
        before, h = h, walks_of(probabilities)
        if h <= options["cycle_tolerance"]:
            return WeightGraph(probabilities, "converged", h)
        alpha += rho * h
        rho = raised_penalty(rho, h, before, options)
    return WeightGraph(probabilities, "stopped", h)


def _average_logits(
    networks: Networks, places: list[Any], sizes: list[int], holders: np.ndarray
) -> np.ndarray:
    """Mean of U over the clients that hold an entry."""
    total = np.zeros(holders.shape)
    for own, where, width in zip(np.asarray(networks.logits), places, sizes, strict=True):
        total[where] += own[:width, :width]
    return total / holders


def _deliver(
    networks: Networks, mean: np.ndarray, places: list[Any], size: int, average: bool
) -> Networks:
    """Every client gets the mean U, and the mean networks where these are shared."""
    logits = single(pad_stack([mean[where] for where in places], (size, size)))
    layers = (networks.matrices, networks.offsets)
    if average:
        layers = jax.tree.map(
            lambda leaf: jnp.broadcast_to(jnp.mean(leaf, axis=0)[None], leaf.shape), layers
        )
    return Networks(logits, *layers)


def _carry(
    networks: Networks, sizes: list[int], shares_all: bool, post: Post, *numbers: np.ndarray
) -> None:
    """One message per client: U without padding, with the networks where these are shared."""
    for k, width in enumerate(sizes):
        parts = [networks.logits[k, :width, :width]]
        if shares_all:
            parts += [networks.matrices[0][k, :width, :width]]
            parts += [leaf[k, :width] for leaf in networks.matrices[1:] + networks.offsets]
        post.carry(*(np.asarray(part) for part in parts), *numbers)


def _method(mode: str, shares_all: bool) -> Method:
    name, what = ("AS", "graph and networks") if shares_all else ("GS", "only the graph")
    held = "a client's own columns" if mode == "vertical" else "all columns"
    words = f"FedDAG {name} (networks; shares {what}) on {held}"
    return weight_method(mode, words, DEFAULTS, partial(learn, shares_all=shares_all))


GS_VERTICAL = _method("vertical", shares_all=False)
GS_HORIZONTAL = _method("horizontal", shares_all=False)
AS_VERTICAL = _method("vertical", shares_all=True)
AS_HORIZONTAL = _method("horizontal", shares_all=True)
