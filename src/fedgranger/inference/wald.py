r"""Tests of edges and of single entries.

Edge n → m: \(W = a^\top V^{-1} a\) with a the block's entries at all lags and V their covariance;
V has \(\nu\) degrees of freedom, so \(W (\nu - k + 1) / (\nu k)\) is compared with
\(F(k, \nu - k + 1)\) (Hotelling). W does not depend on the coordinates in which the clients express
their states. Entry: Student-t with the block's \(\nu\).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from fedgranger.inference.covariance import BlockCovariance
from fedgranger.linalg.blocks import padded_blocks

SMALLEST = float(np.finfo(np.float64).tiny)
"""A p-value below what a float can hold is given as this, never as 0."""

FELL_BACK = "Bartlett weights: the lag of the model gave no valid covariance"
NOT_POSITIVE = (
    "the covariance of this block is not positive definite; give more data or fewer states"
)


class BlockTests(NamedTuple):
    """One test per ordered pair of clients; NaN on the diagonal.

    Attributes:
        statistic: W.
        df: k, the number of entries tested.
        p_value: NaN where it could not be computed.
        reason: why, where it is NaN or was computed another way.
    """

    statistic: Float[np.ndarray, "effect cause"]
    df: Float[np.ndarray, "effect cause"]
    p_value: Float[np.ndarray, "effect cause"]
    reason: dict[tuple[int, int], str]


class EntryTests(NamedTuple):
    """Standard error, interval and p-value of every entry of a block (rows, columns)."""

    std_error: Float[np.ndarray, "effect cause effect_state lagged_state"]
    low: Float[np.ndarray, "effect cause effect_state lagged_state"]
    high: Float[np.ndarray, "effect cause effect_state lagged_state"]
    p_value: Float[np.ndarray, "effect cause effect_state lagged_state"]


def wald_tests(
    transition: Float[np.ndarray, "state lagged"], covariance: BlockCovariance
) -> BlockTests:
    """Test every ordered pair of different clients."""
    M = len(covariance.dims)
    blocks, inside = padded_blocks(transition, covariance.dims)
    a, inside = blocks.reshape(M, M, -1), inside.reshape(M, M, -1)
    identity = np.eye(a.shape[-1])
    variance = np.einsum("mnkk->mnk", covariance.cov)
    scale = np.sqrt(np.where(inside & (variance > 0), variance, 1.0))  # units must not matter
    a = a / scale
    V = covariance.cov / (scale[..., :, None] * scale[..., None, :])
    V = V + identity * ~inside[..., None]  # padding: zero entries of variance one
    valid = np.linalg.eigvalsh(V)[..., 0] > 0
    V = np.where(valid[..., None, None], V, identity)
    statistic = np.einsum("mnk,mnk->mn", a, np.linalg.solve(V, a[..., None])[..., 0])
    k, nu = covariance.size, covariance.df
    rest = covariance.test_df
    enough = rest >= 1
    ratio = statistic * rest / (nu * k) if covariance.is_estimated else statistic / k
    p_value = np.maximum(stats.f.sf(ratio, k, np.where(enough, rest, 1.0)), SMALLEST)
    own = np.eye(M, dtype=np.bool_)
    reason: dict[tuple[int, int], str] = {}
    for m, n in zip(*np.nonzero(~own & (~valid | ~enough | covariance.fell_back)), strict=True):
        reason[int(m), int(n)] = (
            NOT_POSITIVE
            if not valid[m, n]
            else FELL_BACK
            if enough[m, n]
            else f"{k[m, n]} entries cannot be tested with {nu[m, n]:.0f} degrees of freedom; give "
            "more data, fewer states or fewer lags"
        )
    unknown = own | ~valid | ~enough
    return BlockTests(
        np.where(unknown, np.nan, statistic),
        np.where(own, np.nan, k),
        np.where(unknown, np.nan, p_value),
        reason,
    )


def all_entry_tests(
    transition: Float[np.ndarray, "state lagged"],
    covariance: BlockCovariance,
    confidence: float,
) -> EntryTests:
    """Test the entries of all blocks; NaN on padding."""
    blocks, inside = padded_blocks(transition, covariance.dims)
    variance = np.einsum("mnkk->mnk", covariance.cov).reshape(blocks.shape)
    se = np.sqrt(np.where(inside & (variance > 0), variance, np.nan))
    nu = covariance.df[:, :, None, None]
    half = stats.t.ppf(0.5 + confidence / 2, nu) * se
    p_value = np.maximum(2 * stats.t.sf(np.abs(blocks) / se, nu), SMALLEST)
    return EntryTests(se, blocks - half, blocks + half, p_value)
