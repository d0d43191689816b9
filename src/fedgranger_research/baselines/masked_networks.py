r"""One small network per effect, its inputs switched on and off by a graph that is learned too.

$$\hat x_i = f_i(M_{\cdot i}\circ x),\qquad M = \sigma((U + \text{logistic noise})/\tau)$$

The noise (Gumbel-sigmoid) makes every entry of M close to 0 or 1 while U has a gradient. Four
hidden layers of 16 units with leaky ReLU, as in MCSL (Ng et al. 2022) and FedDAG (Gao et al. 2023).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Key

from fedgranger_research.baselines.adam import AdamState, adam_step
from fedgranger_research.baselines.graphs import closed_walks

NUM_LAYERS, NUM_UNITS, LEAK = 4, 16, 0.05


class Networks(NamedTuple):
    """U and the layers, each with one slice per effect.

    Attributes:
        logits: U, `[cause, effect]`.
        matrices: of the layers, (effect, inputs, units).
        offsets: of the layers, (effect, units).
    """

    logits: Float[Array, "cause effect"]
    matrices: tuple[Float[Array, "effect inputs units"], ...]
    offsets: tuple[Float[Array, "effect units"], ...]


def draw_networks(key: Key[Array, ""], num_variables: int) -> Networks:
    """Glorot-uniform matrices, no offsets, every edge as likely as not."""
    widths = [num_variables] + [NUM_UNITS] * NUM_LAYERS + [1]
    keys = jax.random.split(key, len(widths) - 1)
    matrices, offsets = [], []
    for own, before, after in zip(keys, widths[:-1], widths[1:], strict=True):
        bound = (6.0 / (before + after)) ** 0.5
        shape = (num_variables, before, after)
        matrices.append(jax.random.uniform(own, shape, jnp.float32, -bound, bound))
        offsets.append(jnp.zeros((num_variables, after), dtype=jnp.float32))
    logits = jnp.zeros((num_variables, num_variables), dtype=jnp.float32)
    return Networks(logits, tuple(matrices), tuple(offsets))


def predict(
    networks: Networks, mask: Float[Array, "cause effect"], rows: Float[Array, "sample cause"]
) -> Float[Array, "effect sample"]:
    """Every effect from its masked causes."""
    first = networks.matrices[0] * mask.T[:, :, None]
    now = jnp.einsum("nj,iju->inu", rows, first) + networks.offsets[0][:, None, :]
    for matrix, offset in zip(networks.matrices[1:], networks.offsets[1:], strict=True):
        now = jnp.where(now > 0.0, now, LEAK * now)
        now = now @ matrix + offset[:, None, :]
    return now[:, :, 0]


def client_loss(
    networks: Networks,
    rows: Float[Array, "sample variable"],
    importance: Float[Array, " sample"],
    allowed: Float[Array, "cause effect"],
    noise: Float[Array, "cause effect"],
    message: Mapping[str, Array],
) -> Float[Array, ""]:
    """Squared errors, λ times the edges, and the terms of the cycles, for one drawn mask."""
    mask = jax.nn.sigmoid((networks.logits + noise) / message["temperature"]) * allowed
    errors = rows.T - predict(networks, mask, rows)
    h = closed_walks(mask)
    fit_loss = 0.5 * jnp.sum(errors * errors * importance[None, :])
    lasso = message["sparsity"] * jnp.sum(mask)
    return fit_loss + lasso + message["dual"] * h + 0.5 * message["penalty"] * h * h


@partial(jax.jit, static_argnames=("num_steps", "batch_size"))
def train_clients(
    networks: Networks,
    states: AdamState,
    keys: Key[Array, " client"],
    rows: Float[Array, "client sample variable"],
    num_samples: Float[Array, " client"],
    allowed: Float[Array, "client cause effect"],
    message: Mapping[str, Array],
    num_steps: int,
    batch_size: int,
) -> tuple[Networks, AdamState]:
    """Adam steps of every client on its own samples, `batch_size` of them drawn per step.

    A batch of 0 is all samples.
    """

    def one(
        net: Networks, state: AdamState, key: Array, X: Array, count: Array, mask: Array
    ) -> tuple[Networks, AdamState]:
        everything = jnp.where(jnp.arange(X.shape[0]) < count, 1.0 / count, 0.0)

        def step(k: Array, carry: tuple[Networks, AdamState]) -> tuple[Networks, AdamState]:
            noise_key, batch_key = jax.random.split(jax.random.fold_in(key, k))
            noise = jax.random.logistic(noise_key, mask.shape, dtype=X.dtype)
            batch, importance = X, everything
            if batch_size:
                shares = jax.random.uniform(batch_key, (batch_size,), dtype=X.dtype)
                batch = X[jnp.floor(shares * count).astype(jnp.int32)]
                importance = jnp.full((batch_size,), 1.0 / batch_size, dtype=X.dtype)
            slope = jax.grad(client_loss)(carry[0], batch, importance, mask, noise, message)
            return adam_step(carry[0], slope, carry[1], message["step_size"])

        return lax.fori_loop(0, num_steps, step, (net, state))

    return jax.vmap(one)(networks, states, keys, rows, num_samples, allowed)
