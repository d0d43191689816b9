"""Written-out contractions against `jnp.einsum`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger.linalg import fused
from fedgranger.linalg.fused import fused_einsum, inner, summed, times

SIZES = {"a": 2, "b": 3, "c": 4, "i": 2, "j": 5, "k": 2, "l": 3, "t": 3}


def arrays_for(spec, seed=0):
    rng = np.random.default_rng(seed)
    inputs = spec.split("->")[0].split(",")
    return [jnp.asarray(rng.normal(size=[SIZES[label] for label in names])) for names in inputs]


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


FEW = [
    "ab,bc->ac",
    "ab,bc->ca",
    "ia,ab,kb->ik",
    "iaj,ak->ijk",
    "abj,bjl->ajl",
    "kb,ia,bjal->ijkl",
    "tab,tb->ta",
    "tl,tj,t->jl",
    "i,j->ij",
    "i,j->ji",
    "ij->ji",
    "a,a->",
    "ij,ij->ij",
]
MANY = ["ij,jk,kl,lb->ib", "bcj,bcj->", "ijc,cj->i"]


@pytest.mark.parametrize("spec", FEW + MANY)
def test_fused_vs_einsum(spec):
    arrays = arrays_for(spec)
    got = fused_einsum(spec, *arrays)
    expected = jnp.einsum(spec, *arrays)
    assert got.shape == expected.shape
    close(got, expected)


@pytest.mark.parametrize("spec", FEW + MANY)
def test_fused_under_jit_and_vmap_vs_einsum(spec):
    batches = [jnp.stack(pair) for pair in zip(arrays_for(spec), arrays_for(spec, 1), strict=True)]
    got = jax.jit(jax.vmap(lambda *arrays: fused_einsum(spec, *arrays)))(*batches)
    close(got, jax.vmap(lambda *arrays: jnp.einsum(spec, *arrays))(*batches))


@pytest.mark.parametrize(("size", "falls_back"), [(8, False), (9, True)])
def test_contractions_above_the_limit_are_left_to_einsum(monkeypatch, size, falls_back):
    calls = []
    einsum = jnp.einsum
    monkeypatch.setattr(fused.jnp, "einsum", lambda *args: calls.append(args) or einsum(*args))
    values = jnp.arange(float(size))
    close(fused_einsum("j,j->", values, values), values @ values)
    assert bool(calls) == falls_back


@pytest.mark.parametrize(
    "spec", ["ij,kj->ik", "alij,tl->tija", "ajkl,tj->tkla", "tj,ijkl->tikl", "ij,ij->ij", "ij,ij->"]
)
def test_summed_vs_einsum(spec):
    arrays = arrays_for(spec)
    expected = jnp.einsum(spec, *arrays)
    close(summed(spec, *arrays), expected)
    batches = [jnp.stack([array, 2 * array]) for array in arrays]
    got = jax.jit(jax.vmap(lambda *pair: summed(spec, *pair)))(*batches)
    close(got, jnp.stack([expected, 4 * expected]))


def test_times_and_inner_vs_matrix_products():
    rng = np.random.default_rng(0)
    matrix, vector, values, other = (
        jnp.asarray(rng.normal(size=shape)) for shape in ((3, 3), (3,), (3, 7), (4, 7))
    )
    close(times(matrix, vector), matrix @ vector)
    close(times(matrix, values), matrix @ values)
    close(inner(values, other), values @ other.T)
    close(jax.vmap(times, in_axes=(None, 1), out_axes=1)(matrix, values), matrix @ values)


def test_number_of_arrays_and_axes_must_match_the_labels():
    x = jnp.ones((2, 2))
    with pytest.raises(ValueError, match="zip"):
        fused_einsum("ab,bc->ac", x)
    with pytest.raises(ValueError, match="zip"):
        fused_einsum("abc->a", x)
