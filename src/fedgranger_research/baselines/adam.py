"""Adam (Kingma & Ba 2015) for any tree of arrays; optax is not needed for one optimiser."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

FIRST_DECAY, SECOND_DECAY, SMALL = 0.9, 0.999, 1e-8


class AdamState(NamedTuple):
    """Running moments of the gradient and how many steps they hold."""

    first: Any
    second: Any
    num_steps: Float[Array, ""]


def adam_init(params: Any) -> AdamState:
    """No steps yet."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return AdamState(zeros, zeros, jnp.zeros((), dtype=jax.tree.leaves(params)[0].dtype))


def adam_step(
    params: Any, gradient: Any, state: AdamState, step_size: Float[Array, ""]
) -> tuple[Any, AdamState]:
    """One step down the gradient."""
    count = state.num_steps + 1.0
    first = jax.tree.map(
        lambda m, g: FIRST_DECAY * m + (1.0 - FIRST_DECAY) * g, state.first, gradient
    )
    second = jax.tree.map(
        lambda v, g: SECOND_DECAY * v + (1.0 - SECOND_DECAY) * g * g, state.second, gradient
    )
    up, down = 1.0 - FIRST_DECAY**count, 1.0 - SECOND_DECAY**count
    moved = jax.tree.map(
        lambda x, m, v: x - step_size * (m / up) / (jnp.sqrt(v / down) + SMALL),
        params,
        first,
        second,
    )
    return moved, AdamState(first, second, count)
