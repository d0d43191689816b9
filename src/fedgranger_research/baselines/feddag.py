r"""FedDAG AS-linear: clients train one linear acyclic graph and average it (Gao et al. 2023).

$$\min_W \tfrac{1}{2n}\|X_k - X_kW\|^2 + \lambda\|W\|_1 + \alpha h(W) + \tfrac{\rho}{2}h(W)^2$$

Each client takes Adam steps on its own loss from the server's W, sends its W after every 300, and
gets back the mean. After every 1500 the server updates \(\alpha \mathrel{+}= \rho h\), and
\(\rho\) tenfold while h is above a quarter of what it was. Clients run side by side (`vmap`), each
on its own second moments alone; shorter ones are padded with variables that stay zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from fedgranger.linalg.blocks import pad_stack
from fedgranger_research.baselines.adam import AdamState, adam_init, adam_step
from fedgranger_research.baselines.graphs import closed_walks, cyclicity
from fedgranger_research.baselines.lagged_design import Design
from fedgranger_research.baselines.method_protocol import Post
from fedgranger_research.baselines.weight_graphs import (
    WeightGraph,
    raised_penalty,
    weight_method,
)

DEFAULTS: dict[str, Any] = {
    "sparsity": 0.1,
    "threshold": 0.3,
    "time_order": True,
    "step_size": 1e-3,
    "steps_per_average": 300,
    "averages_per_iteration": 5,
    "max_iterations": 20,
    "penalty_growth": 10.0,
    "enough_progress": 0.25,
    "cycle_tolerance": 1e-8,
}


def client_loss(
    weights: Float[Array, "cause effect"],
    moments: Float[Array, "cause cause"],
    message: Mapping[str, Array],
) -> Float[Array, ""]:
    """The loss of one client, given α, ρ and λ by the server."""
    lack = jnp.eye(weights.shape[0], dtype=weights.dtype) - weights
    h = closed_walks(weights * weights)
    fit_loss = 0.5 * jnp.sum(lack * (moments @ lack))
    lasso = message["sparsity"] * jnp.sum(jnp.abs(weights))
    return fit_loss + lasso + message["dual"] * h + 0.5 * message["penalty"] * h * h


@partial(jax.jit, static_argnames=("num_steps",))
def train_clients(
    weights: Float[Array, "client cause effect"],
    states: AdamState,
    moments: Float[Array, "client cause cause"],
    allowed: Float[Array, "client cause effect"],
    message: Mapping[str, Array],
    num_steps: int,
) -> tuple[Array, AdamState]:
    """Adam steps of every client on its own loss; entries that are not allowed stay zero."""

    def one(W: Array, state: AdamState, S: Array, mask: Array) -> tuple[Array, AdamState]:
        def step(_: Array, carry: tuple[Array, AdamState]) -> tuple[Array, AdamState]:
            slope = jax.grad(client_loss)(carry[0], S, message) * mask
            return adam_step(carry[0], slope, carry[1], message["step_size"])

        return lax.fori_loop(0, num_steps, step, (W, state))

    return jax.vmap(one)(weights, states, moments, allowed)


def learn(design: Design, options: Mapping[str, Any], post: Post) -> WeightGraph:
    """Train and average until the graph is acyclic or the iterations are over."""
    with jax.enable_x64(True):
        return _learn(design, options, post)


def _learn(design: Design, options: Mapping[str, Any], post: Post) -> WeightGraph:
    places = [np.ix_(share.places, share.places) for share in design.shares]
    size = max(len(share.places) for share in design.shares)
    stack = partial(pad_stack, shape=(size, size))
    moments = jnp.asarray(stack([share.cov for share in design.shares]))
    allowed = jnp.asarray(stack([design.allowed[where].astype(float) for where in places]))
    mean, holders = np.zeros(design.allowed.shape), np.maximum(design.num_holders, 1)
    states = jax.vmap(adam_init)(jnp.zeros_like(moments))
    alpha, rho, h = 0.0, 1.0, np.inf
    for _ in range(options["max_iterations"]):
        message = {
            "dual": jnp.asarray(alpha),
            "penalty": jnp.asarray(rho),
            "sparsity": jnp.asarray(float(options["sparsity"])),
            "step_size": jnp.asarray(float(options["step_size"])),
        }
        for _ in range(options["averages_per_iteration"]):
            for where in places:
                post.carry(mean[where], np.array([alpha, rho]))
            sent = jnp.asarray(stack([mean[where] for where in places]))
            trained, states = train_clients(
                sent, states, moments, allowed, message, options["steps_per_average"]
            )
            total = np.zeros_like(mean)
            for own, where, share in zip(np.asarray(trained), places, design.shares, strict=True):
                answer = own[: len(share.places), : len(share.places)]
                post.carry(answer)
                total[where] += answer
            mean = total / holders
        before, (h, _) = h, cyclicity(mean)
        if h <= options["cycle_tolerance"]:
            return WeightGraph(mean, "converged", h)
        alpha += rho * h
        rho = raised_penalty(rho, h, before, options)
    return WeightGraph(mean, "stopped", h)


VERTICAL = weight_method("vertical", "FedDAG linear on a client's own columns", DEFAULTS, learn)
HORIZONTAL = weight_method("horizontal", "FedDAG linear on all columns", DEFAULTS, learn)
