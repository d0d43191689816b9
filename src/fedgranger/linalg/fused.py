"""`einsum` for arrays with a tiny contracted axis.

XLA calls a matrix product for every `einsum`; over an axis of two or three entries the call costs
more than the arithmetic. Written out as a sum of products, the same expression fuses with whatever
surrounds it.
"""

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
from jaxtyping import Array

LARGEST_UNROLLED = 8
"""Contractions with more terms than this are left to `jnp.einsum`."""


def fused_einsum(spec: str, *arrays: Array) -> Array:
    """Compute an einsum of distinct labels per operand, without ellipsis.

    Example:
        >>> x = jnp.arange(4.0).reshape(2, 2)
        >>> fused_einsum("ab,bc->ac", x, x).tolist()
        [[2.0, 3.0], [6.0, 11.0]]
    """
    inputs, output = spec.split("->")
    labels = inputs.split(",")
    sizes = {
        label: size
        for names, array in zip(labels, arrays, strict=True)
        for label, size in zip(names, array.shape, strict=True)
    }
    contracted = [label for label in sizes if label not in output]
    count = math.prod(sizes[label] for label in contracted)
    if count > LARGEST_UNROLLED:
        return jnp.einsum(spec, *arrays)
    terms: list[Array] = []
    for values in itertools.product(*(range(sizes[label]) for label in contracted)):
        at = dict(zip(contracted, values, strict=True))
        parts: list[Array] = []
        for names, array in zip(labels, arrays, strict=True):
            part = array[tuple(at.get(label, slice(None)) for label in names)]
            parts.append(_aligned(part, [label for label in names if label not in at], output))
        terms.append(math.prod(parts[1:], start=parts[0]))
    total = sum(terms[1:], start=terms[0])
    return jnp.broadcast_to(total, tuple(sizes[label] for label in output))


def summed(spec: str, left: Array, right: Array) -> Array:
    """Compute an einsum of two arrays as a product and one sum over leading axes.

    For small arrays in a loop this is several times faster than a matrix product.
    """
    inputs, output = spec.split("->")
    names = inputs.split(",")
    contracted = [label for label in dict.fromkeys("".join(names)) if label not in output]
    full = "".join(contracted) + output
    parts = (
        _aligned(array, list(labels), full)
        for labels, array in zip(names, (left, right), strict=True)
    )
    product = next(parts) * next(parts)
    return product.sum(axis=tuple(range(len(contracted))))


def times(matrix: Array, values: Array) -> Array:
    """`matrix @ values` for a tiny square matrix and a vector or matrix."""
    if values.ndim == 1:
        return fused_einsum("ia,a->i", matrix, values)
    return fused_einsum("ia,aj->ij", matrix, values)


def inner(left: Array, right: Array) -> Array:
    """`left @ right.T` for matrices with few rows."""
    return summed("ij,kj->ik", left, right)


def _aligned(array: Array, names: list[str], output: str) -> Array:
    """Bring the axes into the order of the output, with new axes where they are missing."""
    order = sorted(range(len(names)), key=lambda axis: output.index(names[axis]))
    present = [label in names for label in output]
    index = tuple(slice(None) if there else None for there in present)
    return array.transpose(order)[index]
