r"""One small network per effect, its inputs switched on and off by a graph that is learned too.

$$\hat x_i = f_i(M_{\cdot i}\circ x),\qquad M = \sigma((U + \text{logistic noise})/\tau)$$

The noise (Gumbel-sigmoid) makes every entry of M close to 0 or 1 while U has a gradient. Four
hidden layers of 16 units with leaky ReLU, as in MCSL (Ng et al. 2022) and FedDAG (Gao et al. 2023).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

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


def draw_networks(rng: np.random.Generator, num_variables: int) -> Networks:
    """Glorot-uniform matrices, no offsets, every edge as likely as not."""
    widths = [num_variables] + [NUM_UNITS] * NUM_LAYERS + [1]
    matrices, offsets = [], []
    for before, after in pairwise(widths):
        bound = (6.0 / (before + after)) ** 0.5
        drawn = rng.uniform(-bound, bound, (num_variables, before, after))
        matrices.append(jnp.asarray(drawn, dtype=jnp.float32))
        offsets.append(jnp.asarray(np.zeros((num_variables, after)), dtype=jnp.float32))
    logits = jnp.asarray(np.zeros((num_variables, num_variables)), dtype=jnp.float32)
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


class Draws(NamedTuple):
    """What is random in some steps of one client.

    Attributes:
        noise: logistic, for the mask.
        picks: which samples a step uses; none means all.
    """

    noise: Float[Array, "step cause effect"]
    picks: Int[Array, "step batch"]


def draw_steps(
    rng: np.random.Generator, num_steps: int, num_variables: int, num_samples: int, batch_size: int
) -> Draws:
    """Draw the noise and the samples of some steps; a batch of 0 is all samples."""
    noise = rng.logistic(size=(num_steps, num_variables, num_variables))
    picks = rng.integers(num_samples, size=(num_steps, batch_size))
    return Draws(jnp.asarray(noise, dtype=jnp.float32), jnp.asarray(picks, dtype=jnp.int32))


@jax.jit
def train_clients(
    networks: Networks,
    states: AdamState,
    rows: Float[Array, "client sample variable"],
    importance: Float[Array, "client sample"],
    allowed: Float[Array, "client cause effect"],
    draws: Draws,
    message: Mapping[str, Array],
) -> tuple[Networks, AdamState]:
    """Adam steps of every client on its own samples; all arrays have a leading client axis.

    Args:
        networks: as the clients have them.
        states: of Adam.
        rows: samples, padded at the end.
        importance: one divided by the number of samples, 0 in the padding.
        allowed: edges that may be there.
        draws: as many as there are steps.
        message: α, ρ, λ, τ and the step size, from the server.
    """

    def one(
        net: Networks, state: AdamState, X: Array, share: Array, mask: Array, own: Draws
    ) -> tuple[Networks, AdamState]:
        batch_size = own.picks.shape[1]

        def step(
            carry: tuple[Networks, AdamState], drawn: Draws
        ) -> tuple[tuple[Networks, AdamState], None]:
            batch, weights = X, share
            if batch_size:
                batch = X[drawn.picks]
                weights = jnp.full((batch_size,), 1.0 / batch_size, dtype=X.dtype)
            slope = jax.grad(client_loss)(carry[0], batch, weights, mask, drawn.noise, message)
            return adam_step(carry[0], slope, carry[1], message["step_size"]), None

        return lax.scan(step, (net, state), own)[0]

    return jax.vmap(one)(networks, states, rows, importance, allowed, draws)
