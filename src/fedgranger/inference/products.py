r"""Sums over pairs that the blocks' covariances are made of.

For every block the weighted sum over lags

$$S + S^\top, \qquad S = \sum_t \phi_t \Bigl(\tfrac12 \phi_t
  + \sum_{k \ge 1} w_k \phi_{t-k}\Bigr)^\top$$

and the first two moments of \(q_t = \phi_t^\top V_h^{-1} \phi_t\) for the kurtosis, with \(V_h\)
the homoskedastic covariance (a metric that does not depend on coordinates).

On complete data \(\phi_t = f_t (e_t z_t^\top + B)\) with residual e and \(z = G_0^{-1} x\): the
products of a block are sums of \(e_i e_{i'} z_j z_{j'}\), so at one lag all blocks together are one
matrix product over time and \(\phi\) is never formed. With samples missing, noise added
(`influence`) or several lags, it is: then one product serves all lags.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from fedgranger.inference.estimate import Estimate
from fedgranger.inference.influence import influence, jackknife_factor, weighted_pieces
from fedgranger.inference.states import PairChunk, StateSource

Matches = list[tuple[np.ndarray, np.ndarray]]
"""Per lag: positions of the later and of the earlier pairs."""


class LagProducts(NamedTuple):
    """Sums over pairs, padded to a common block size: S + Sᵀ, Σ q and Σ q²."""

    total: Float[np.ndarray, "effect cause entry entry"]
    first: Float[np.ndarray, "effect cause"]
    second: Float[np.ndarray, "effect cause"]


@lru_cache(maxsize=64)
def block_positions(
    dims: tuple[int, ...], lags: int
) -> tuple[Int[np.ndarray, "client effect_state"], Int[np.ndarray, "client lagged_state"]]:
    """Positions of every client's states in s⁺ and, all lags together, in x; padded with -1."""
    offsets = np.concatenate([[0], np.cumsum(dims)])
    P, p = offsets[-1], max(dims)
    rows = np.full((len(dims), p), -1)
    columns = np.full((len(dims), lags * p), -1)
    for m, dim in enumerate(dims):
        own = offsets[m] + np.arange(dim)
        rows[m, :dim] = own
        columns[m, : lags * dim] = np.concatenate([k * P + own for k in range(lags)])
    rows.flags.writeable = columns.flags.writeable = False  # shared by all callers
    return rows, columns


def lag_products(
    source: StateSource,
    fit: Estimate,
    lag_weights: Float[np.ndarray, " lag"],
) -> LagProducts:
    """Read the source once and accumulate."""
    num_lags = len(lag_weights)
    is_plain = fit.moments.is_complete and not source.is_noise_added
    way = _Complete if is_plain and num_lags <= 1 else _General
    sums = way(source, fit, lag_weights)
    step = segment = np.zeros(0, dtype=np.int64)
    for pairs, weight in weighted_pieces(source, fit):
        num_tail = len(step)
        step, segment = np.append(step, pairs.step), np.append(segment, pairs.segment)
        matches = [_matches(step, segment, num_tail, k) for k in range(num_lags + 1)]
        sums.add(pairs, weight, matches)
        keep = max(0, len(step) - num_lags)
        step, segment = step[keep:], segment[keep:]
        sums.cut_tail(keep)
    return LagProducts(sums.half + sums.half.transpose(0, 1, 3, 2), sums.first, sums.second)


def _matches(
    step: np.ndarray, segment: np.ndarray, num_tail: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Positions (later, earlier) of pairs k steps apart in one segment, later ones being new."""
    later = np.searchsorted(step, step + k)
    valid = later < len(step)
    later = np.minimum(later, len(step) - 1)
    valid &= (step[later] == step + k) & (segment[later] == segment) & (later >= num_tail)
    return later[valid], np.flatnonzero(valid)


class _Sums:
    """What both ways add up."""

    def __init__(self, source: StateSource, fit: Estimate, lag_weights: np.ndarray) -> None:
        self.source, self.fit, self.lag_weights = source, fit, lag_weights
        self.rows, self.columns = block_positions(source.dims, fit.lags)
        M, p = self.rows.shape
        K = p * self.columns.shape[1]
        self.half: np.ndarray = np.zeros((M, M, K, K))
        self.first, self.second = np.zeros((M, M)), np.zeros((M, M))
        # inverse covariances of every client's residuals and of its part of z, zero on padding
        self.residual_metric = _inverse_blocks(fit.residual_cov, self.rows)
        self.state_metric = _inverse_blocks(fit.inverse_cov, self.columns)

    def _add_sizes(self, q: np.ndarray) -> None:
        self.first += q.sum(axis=0)
        self.second += (q**2).sum(axis=0)


class _General(_Sums):
    """Forms φ of every pair."""

    def __init__(self, source: StateSource, fit: Estimate, lag_weights: np.ndarray) -> None:
        super().__init__(source, fit, lag_weights)
        self.tail = np.zeros((0, *self.half.shape[:3]))

    def add(self, pairs: PairChunk, weight: np.ndarray, matches: Matches) -> None:
        """Add new pairs and their products with earlier ones."""
        rows, columns = self.rows, self.columns
        M = len(rows)
        real = (rows >= 0)[:, None, :, None] & (columns >= 0)[None, :, None, :]
        phi = influence(self.source, self.fit, pairs, weight)
        blocks = phi[:, rows[:, None, :, None], columns[None, :, None, :]] * real
        self._add_sizes(self._sizes(blocks))
        new = blocks.reshape(len(weight), M, M, -1)
        num_tail = len(self.tail)
        self.tail = np.concatenate([self.tail, new])
        later, earlier = (np.concatenate(side) for side in zip(*matches, strict=True))
        w = np.repeat((0.5, *self.lag_weights), [len(both[0]) for both in matches])
        sums = sparse.csr_array((w, (later - num_tail, earlier)), (len(new), len(self.tail)))
        past = (sums @ self.tail.reshape(len(self.tail), -1)).reshape(new.shape)
        self.half += new.transpose(1, 2, 3, 0) @ past.transpose(1, 2, 0, 3)

    def _sizes(self, blocks: np.ndarray) -> np.ndarray:
        """tr(R_m φ S_n φᵀ) of every block, (pair, effect, cause)."""
        weighted = np.empty_like(blocks)
        for n, S in enumerate(self.state_metric):  # few large products
            part = blocks[:, :, n]
            weighted[:, :, n] = (part.reshape(-1, len(S)) @ S).reshape(part.shape)
        products = blocks @ weighted.swapaxes(-1, -2)
        return np.einsum("tmnij,mij->tmn", products, self.residual_metric)

    def cut_tail(self, keep: int) -> None:
        """Forget pairs that no later one can be matched with."""
        self.tail = self.tail[keep:]


class _Complete(_Sums):
    """Uses that φ_t = f_t (e_t z_tᵀ + B) when nothing is missing."""

    def __init__(self, source: StateSource, fit: Estimate, lag_weights: np.ndarray) -> None:
        super().__init__(source, fit, lag_weights)
        constant = fit.transition @ np.kron(np.eye(fit.lags), source.error_cov) @ fit.inverse_cov
        inside = (self.rows >= 0)[:, :, None, None] & (self.columns >= 0)[None, None, :, :]
        self.B = constant[self.rows[:, :, None, None], self.columns[None, None, :, :]] * inside
        sizes = (self.rows.shape, self.columns.shape, ())
        self.tail = tuple(np.zeros((0, *size)) for size in sizes)

    def add(self, pairs: PairChunk, weight: np.ndarray, matches: Matches) -> None:
        """Add new pairs and their products with earlier ones."""
        fit = self.fit
        residual = pairs.after - pairs.before @ fit.transition.T
        e = residual[:, self.rows] * (self.rows >= 0)
        z = (pairs.before @ fit.inverse_cov)[:, self.columns] * (self.columns >= 0)
        f = jackknife_factor(fit, pairs, weight)
        self._add_sizes(self._sizes(e, z, f))
        self.tail = tuple(map(np.concatenate, zip(self.tail, (e, z, f), strict=True)))
        for w, (later, earlier) in zip((0.5, *self.lag_weights), matches, strict=True):
            self.half += w * self._product(later, earlier)

    def cut_tail(self, keep: int) -> None:
        """Forget pairs that no later one can be matched with."""
        self.tail = tuple(part[keep:] for part in self.tail)

    def _product(self, later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        """Σ φ_later φ_earlierᵀ of every block, (effect, cause, K, K)."""
        e, z, f = self.tail
        B = self.B
        M, p, _, w = B.shape
        ff = f[later] * f[earlier]
        ee = (ff[:, None, None] * e[later])[:, :, :, None] * e[earlier][:, :, None, :]
        zz = z[later][:, :, :, None] * z[earlier][:, :, None, :]
        n = len(ff)
        total = (ee.reshape(n, -1).T @ zz.reshape(n, -1)).reshape(M, p, p, M, w, w)
        total = total.transpose(0, 3, 1, 4, 2, 5)  # effect, cause, i, j, i', j'
        first, second = (
            (ff[:, None] * e[at].reshape(n, -1)).T @ z[at].reshape(n, -1) for at in (later, earlier)
        )
        C1, C2 = (x.reshape(M, p, M, w).transpose(0, 2, 1, 3) for x in (first, second))
        const = B.transpose(0, 2, 1, 3)
        total = (
            total
            + C1[..., None, None] * const[:, :, None, None]
            + const[..., None, None] * C2[:, :, None, None]
            + ff.sum() * const[..., None, None] * const[:, :, None, None]
        )
        return total.reshape(M, M, p * w, p * w)

    def _sizes(self, e: np.ndarray, z: np.ndarray, f: np.ndarray) -> np.ndarray:
        """tr(R_m φ S_n φᵀ) of every block, (pair, effect, cause)."""
        residual_metric, state_metric, B = self.residual_metric, self.state_metric, self.B
        alpha = np.einsum("tmi,mij,tmj->tm", e, residual_metric, e, optimize=True)
        gamma = np.einsum("tni,nij,tnj->tn", z, state_metric, z, optimize=True)
        q = alpha[:, :, None] * gamma[:, None, :]
        if B.any():
            scaled_B = np.einsum("mik,mknl,nlj->minj", residual_metric, B, state_metric)
            across = np.einsum("tmi,minj->tmnj", e, scaled_B, optimize=True)
            q = (
                q
                + 2 * np.einsum("tmnj,tnj->tmn", across, z)
                + np.einsum("minj,minj->mn", scaled_B, B)
            )
        return q * f[:, None, None] ** 2


def _inverse_blocks(matrix: np.ndarray, positions: np.ndarray) -> np.ndarray:
    out = np.zeros((*positions.shape, positions.shape[1]))
    for m, row in enumerate(positions):
        own = row[row >= 0]
        out[m, : len(own), : len(own)] = np.linalg.inv(matrix[np.ix_(own, own)])
    return out
