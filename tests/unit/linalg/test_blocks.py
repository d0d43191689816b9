"""Padding and packing of ragged client blocks."""

import numpy as np
import pytest

from fedgranger.linalg.blocks import (
    block_diagonal,
    block_positions,
    client_slices,
    diagonal_blocks,
    pack_square,
    pad_stack,
    padded_blocks,
    unpack_square,
)

DIMS = (1, 3, 2)


def test_pad_stack_puts_blocks_first_and_zeros_behind():
    blocks = [np.full((1, 2), 3.0), np.full((2, 1), 4.0)]
    padded = pad_stack(blocks, (2, 3))
    expected = np.zeros((2, 2, 3))
    expected[0, :1, :2], expected[1, :, :1] = 3.0, 4.0
    np.testing.assert_array_equal(padded, expected)


def test_pack_inverts_unpack_for_ragged_dims():
    matrix = np.random.default_rng(1).standard_normal((6, 6))
    rows = unpack_square(matrix, DIMS, 3)
    assert rows.shape == (3, 3, 9)
    np.testing.assert_array_equal(pack_square(rows, DIMS), matrix)


def test_unpack_places_block_row_effect_column_cause():
    """Client 1's influence on client 2 is rows 4:6, columns 1:4 of the dense matrix."""
    matrix = np.random.default_rng(2).standard_normal((6, 6))
    rows = unpack_square(matrix, DIMS, 3)
    np.testing.assert_array_equal(rows[2, :2, 3:6], matrix[4:6, 1:4])
    padding = rows.copy()
    for m, p in enumerate(DIMS):
        for n, q in enumerate(DIMS):
            padding[m, :p, 3 * n : 3 * n + q] = 0.0
    assert not padding.any()


@pytest.mark.parametrize("dims", [(2, 2), (1, 1, 1), (3,)])
def test_equal_dims_need_no_padding(dims):
    total = sum(dims)
    matrix = np.arange(float(total**2)).reshape(total, total)
    rows = unpack_square(matrix, dims, dims[0])
    np.testing.assert_array_equal(rows.reshape(total, total), matrix)


def test_block_positions_of_ragged_clients():
    rows, columns = block_positions((1, 2), 2)
    np.testing.assert_array_equal(rows, [[0, -1], [1, 2]])
    np.testing.assert_array_equal(columns, [[0, 3, -1, -1], [1, 2, 4, 5]])


def test_padded_blocks_hold_every_lag():
    """Client 1's influence on client 2 at lags 1 and 2, side by side."""
    transition = np.arange(72.0).reshape(6, 12)
    blocks, inside = padded_blocks(transition, DIMS)
    np.testing.assert_array_equal(blocks[2, 1, :2], transition[4:][:, [1, 2, 3, 7, 8, 9]])
    assert inside.sum() == transition.size
    assert not blocks[~inside].any()


def test_diagonal_blocks_undo_block_diagonal():
    parts = [np.full((dim, dim), dim + 1.0) for dim in DIMS]
    whole = block_diagonal(parts)
    assert client_slices(DIMS) == [slice(0, 1), slice(1, 4), slice(4, 6)]
    assert whole.sum() == sum(part.sum() for part in parts)
    for found, part in zip(diagonal_blocks(whole, DIMS), parts, strict=True):
        np.testing.assert_array_equal(found, part)
