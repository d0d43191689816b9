"""Strict numerics for every test: float64, no silent promotion of types or ranks."""

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="module")
def broadcasting():
    """Allow implicit broadcasting, which the covariance recursion uses throughout.

    Set globally and not as a context, because `propagate` runs rows in threads.
    """
    before = jax.config.jax_numpy_rank_promotion
    jax.config.update("jax_numpy_rank_promotion", "allow")
    yield
    jax.config.update("jax_numpy_rank_promotion", before)
