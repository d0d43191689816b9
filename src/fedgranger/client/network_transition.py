r"""The paper's network as a transition: an MLP with two hidden layers of 64 SiLU units.

$$f(h) = A h + b + D\,\mathrm{MLP}\big((h - \text{centre}) / \text{scale}\big)$$

(sizes and Adam with 1e-3 from the paper's table of nonlinear experiments). The MLP starts at zero
and learns what the linear fit leaves, in units D of its residuals. It is trained on the first part
of the record and judged on the last block of time: training stops when that block no longer gains,
and a network that does not beat the linear fit there by two standard errors is not used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from fedgranger.client.transition_models import (
    LinearTransition,
    TransitionPairs,
    fit_linear,
    linear_residuals,
    need_library,
    usual_sizes,
)
from fedgranger.linalg.jax_arrays import jax_array

HIDDEN_WIDTH = 64
HIDDEN_LAYERS = 2
STEP_SIZE = 1e-3
BATCH_SIZE = 64
HELD_OUT_SHARE = 0.15
"""Share of the pairs, the last in time, that decide when to stop."""
PATIENCE = 20
"""Passes without a gain on the held-out block after which training stops."""
MOST_PASSES = 300
NEEDED_ERRORS = 2.0
"""Standard errors by which a network must beat the linear fit to be used."""


class NetworkTransition(eqx.Module):
    """Linear part and the network's correction; `is_used` is false where it was not worth it."""

    linear: LinearTransition
    network: eqx.nn.MLP
    centre: Float[Array, " state_dim"]
    scale: Float[Array, " state_dim"]
    residual_scale: Float[Array, " state_dim"]
    is_used: bool = eqx.field(static=True)

    def __call__(self, state: Float[Array, " state_dim"]) -> Float[Array, " state_dim"]:
        """The next state."""
        if not self.is_used:
            return self.linear(state)
        correction = self.network((state - self.centre) / self.scale)
        return self.linear(state) + self.residual_scale * correction


class _Examples(NamedTuple):
    """Standardised states and what the linear fit leaves of the next ones."""

    inputs: Array
    remainders: Array


def fit_network(pairs: TransitionPairs, key: PRNGKeyArray) -> NetworkTransition:
    """Train on the first part of the pairs, stop by the last; then refit the linear part on all.

    Raises:
        ConfigError: optax is not installed.
    """
    need_library("optax", "a network as transition")
    split = round((1 - HELD_OUT_SHARE) * len(pairs.before))
    first_part = TransitionPairs(pairs.before[:split], pairs.after[:split])
    residuals = linear_residuals(pairs, fit_linear(first_part))
    centre, scale = first_part.before.mean(axis=0), usual_sizes(first_part.before)
    residual_scale = usual_sizes(residuals[:split])
    inputs = jax_array((pairs.before - centre) / scale)
    remainders = jax_array(residuals / residual_scale)
    learn, judge = (_Examples(inputs[k], remainders[k]) for k in (slice(split), slice(split, None)))
    with jax.numpy_dtype_promotion("standard"):  # optax counts in int32
        network, is_used = _train(learn, judge, key)
    after = pairs.after
    if is_used:
        after = after - residual_scale * np.asarray(jax.vmap(network)(inputs))
    linear = fit_linear(TransitionPairs(pairs.before, after))
    parts = (jax_array(centre), jax_array(scale), jax_array(residual_scale))
    return NetworkTransition(linear, network, *parts, is_used)


def _train(learn: _Examples, judge: _Examples, key: PRNGKeyArray) -> tuple[eqx.nn.MLP, bool]:
    """The network of the best pass, and whether it is worth using."""
    import optax

    p = learn.inputs.shape[1]
    first_key, order_key = jax.random.split(key)
    network = eqx.nn.MLP(p, p, HIDDEN_WIDTH, HIDDEN_LAYERS, jax.nn.silu, key=first_key)
    still = jax.tree.map(jnp.zeros_like, network.layers[-1])
    network = eqx.tree_at(lambda net: net.layers[-1], network, still)
    optimiser = optax.adam(STEP_SIZE)
    trained, fixed = eqx.partition(network, eqx.is_inexact_array)
    memory = optimiser.init(trained)
    num_batches = max(len(learn.inputs) // BATCH_SIZE, 1)
    size = min(BATCH_SIZE, len(learn.inputs))

    def loss(trained: Any, examples: _Examples) -> Array:
        return _squares(eqx.combine(trained, fixed), examples).mean()

    @jax.jit
    def one_pass(trained: Any, memory: Any, key: PRNGKeyArray) -> tuple[Any, Any, Array]:
        order = jax.random.permutation(key, len(learn.inputs))[: num_batches * size]

        def one_batch(now: tuple[Any, Any], rows: Array) -> tuple[tuple[Any, Any], None]:
            trained, memory = now
            batch = _Examples(learn.inputs[rows], learn.remainders[rows])
            updates, memory = optimiser.update(jax.grad(loss)(trained, batch), memory)
            return (optax.apply_updates(trained, updates), memory), None

        batches = order.reshape(num_batches, size)
        (trained, memory), _ = jax.lax.scan(one_batch, (trained, memory), batches)
        return trained, memory, loss(trained, judge)

    best, best_loss, since = trained, float(loss(trained, judge)), 0
    for number in range(MOST_PASSES):
        key = jax.random.fold_in(order_key, number)
        trained, memory, found = one_pass(trained, memory, key)
        best, best_loss, since = (
            (trained, float(found), 0) if found < best_loss else (best, best_loss, since + 1)
        )
        if since >= PATIENCE:
            break
    network = eqx.combine(best, fixed)
    gain = np.asarray((judge.remainders**2).sum(axis=1) - _squares(network, judge))
    return network, bool(gain.mean() > NEEDED_ERRORS * gain.std() / np.sqrt(len(gain)))


def _squares(network: eqx.nn.MLP, examples: _Examples) -> Array:
    return ((examples.remainders - jax.vmap(network)(examples.inputs)) ** 2).sum(axis=1)
