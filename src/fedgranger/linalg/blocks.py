"""Ragged client blocks as dense arrays.

Clients differ in state and sensor dimension. Inside a round all of them live in one dense array
with a leading client axis, padded with zeros up to the largest size: a zero row of a state, a
measurement or a parameter stays exactly zero under every update, so padding never changes a
number. Padding happens here and is removed here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


def pad_stack(blocks: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Stack arrays of unequal size along a new first axis, zero-padded at the end to `shape`.

    Example:
        >>> pad_stack([np.ones(1), np.ones(2)], (2,)).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    out = np.zeros((len(blocks), *shape))
    for target, block in zip(out, blocks, strict=True):
        target[tuple(slice(0, size) for size in block.shape)] = block
    return out


def pack_square(
    rows: Float[np.ndarray, "client max_dim total"], dims: Sequence[int]
) -> Float[np.ndarray, "dim dim"]:
    """Turn padded block rows (client, max_dim, client * max_dim) into one P x P matrix."""
    num_clients, max_dim = len(dims), rows.shape[1]
    full = rows.reshape(num_clients * max_dim, num_clients * max_dim)
    keep = _kept_positions(dims, max_dim)
    return full[np.ix_(keep, keep)]


def unpack_square(
    matrix: Float[np.ndarray, "dim dim"], dims: Sequence[int], max_dim: int
) -> Float[np.ndarray, "client max_dim total"]:
    """Undo `pack_square`."""
    num_clients = len(dims)
    full = np.zeros((num_clients * max_dim, num_clients * max_dim))
    keep = _kept_positions(dims, max_dim)
    full[np.ix_(keep, keep)] = matrix
    return full.reshape(num_clients, max_dim, num_clients * max_dim)


def _kept_positions(dims: Sequence[int], max_dim: int) -> np.ndarray:
    return np.concatenate([m * max_dim + np.arange(dim) for m, dim in enumerate(dims)])
