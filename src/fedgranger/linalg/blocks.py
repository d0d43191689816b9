"""Ragged client blocks as dense arrays.

Clients differ in state and sensor dimension. Inside a round all of them live in one dense array
with a leading client axis, padded with zeros up to the largest size: a zero row of a state, a
measurement or a parameter stays exactly zero under every update, so padding never changes a
number. Padding happens here and is removed here. Where clients lie side by side without padding,
their places are from here too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int


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


def client_slices(dims: Sequence[int]) -> list[slice]:
    """Where every client's coordinates lie among those of all, side by side."""
    return [slice(*ends) for ends in itertools.pairwise(np.cumsum([0, *dims]).tolist())]


def block_diagonal(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Square matrices along the diagonal; SciPy's is ten times as slow for a few small ones."""
    places = client_slices([len(part) for part in parts])
    out = np.zeros((places[-1].stop, places[-1].stop))
    for own, part in zip(places, parts, strict=True):
        out[own, own] = part
    return out


def diagonal_blocks(matrix: np.ndarray, dims: Sequence[int]) -> list[np.ndarray]:
    """Every client's own block of a matrix over all of them."""
    return [matrix[own, own].copy() for own in client_slices(dims)]


@lru_cache(maxsize=64)
def block_positions(
    dims: tuple[int, ...], lags: int
) -> tuple[Int[np.ndarray, "client effect_state"], Int[np.ndarray, "client lagged_state"]]:
    """Positions of every client's states in s⁺ and, all lags together, in x; padded with -1."""
    P, p = sum(dims), max(dims)
    rows = np.full((len(dims), p), -1)
    columns = np.full((len(dims), lags * p), -1)
    for m, own in enumerate(client_slices(dims)):
        states, dim = np.arange(own.start, own.stop), dims[m]
        rows[m, :dim] = states
        columns[m, : lags * dim] = (P * np.arange(lags)[:, None] + states).reshape(-1)
    rows.flags.writeable = columns.flags.writeable = False  # shared by all callers
    return rows, columns


def padded_blocks(
    transition: Float[np.ndarray, "state lagged"], dims: tuple[int, ...]
) -> tuple[
    Float[np.ndarray, "effect cause effect_state lagged_state"],
    Bool[np.ndarray, "effect cause effect_state lagged_state"],
]:
    """All blocks of [A¹ … Aᴸ], zero on padding, and which entries are real."""
    rows, columns = block_positions(dims, transition.shape[1] // sum(dims))
    inside = (rows >= 0)[:, None, :, None] & (columns >= 0)[None, :, None, :]
    blocks = transition[rows[:, None, :, None], columns[None, :, None, :]]
    return np.where(inside, blocks, 0.0), inside


def _kept_positions(dims: Sequence[int], max_dim: int) -> np.ndarray:
    return np.concatenate([m * max_dim + np.arange(dim) for m, dim in enumerate(dims)])
