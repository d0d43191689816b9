"""Hand arrays over to JAX."""

from __future__ import annotations

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array


def jax_array(values: ArrayLike | list) -> Array:
    """A copy of some values for JAX: as `jnp.asarray`, which compiles a copy for every shape."""
    return jax.device_put(np.array(values))
