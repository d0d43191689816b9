"""Priors on θ⁰ and Â⁰: any location-scale family, each draw tied to its client's name."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from fedgranger.errors import ConfigError
from fedgranger.linalg.jax_arrays import jax_array

Sampler = Callable[[Key[Array, ""], tuple[int, ...], float], Float[Array, "..."]]
"""(key, shape, degrees of freedom) -> draws with mean 0 and variance 1."""


def _student_t(key: Key[Array, ""], shape: tuple[int, ...], df: float) -> Float[Array, ...]:
    if df <= 2:
        raise ConfigError(f"prior_df is {df}; a Student-t prior needs more than 2 for a variance")
    return jax.random.t(key, df, shape) / jnp.sqrt(df / (df - 2))


FAMILIES: dict[str, Sampler] = {
    "normal": lambda key, shape, _: jax.random.normal(key, shape),
    "uniform": lambda key, shape, _: jax.random.uniform(
        key, shape, minval=-(3.0**0.5), maxval=3.0**0.5
    ),
    "laplace": lambda key, shape, _: jax.random.laplace(key, shape) / 2.0**0.5,
    "student-t": _student_t,
}
"""Standardised samplers by name; the scale of a prior is therefore its standard deviation."""


def named_key(key: Key[Array, ""], *names: str) -> Key[Array, ""]:
    """Derive a key from names, so that a draw depends neither on order nor on other clients."""
    for name in names:
        key = jax.random.fold_in(key, zlib.crc32(name.encode()))
    return key


def draw(
    key: Key[Array, ""],
    shape: tuple[int, ...],
    *,
    family: str,
    location: float,
    scale: float,
    df: float,
) -> Float[Array, ...]:
    """Draw independent entries with that mean and standard deviation.

    More than are needed: draw k does not depend on how many there are, and the generator is
    compiled for every number of draws.
    """
    size = math.prod(shape)
    rounded = 4 ** max(4, ((max(size, 1) - 1).bit_length() + 1) // 2)
    draws = np.asarray(FAMILIES[family](key, (rounded,), df))[:size]
    return jax_array(location + scale * draws.reshape(shape))
