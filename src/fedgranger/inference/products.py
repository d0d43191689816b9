r"""Sums over pairs that the blocks' covariances are made of.

For every block the weighted sum over lags

$$S + S^\top, \qquad S = \sum_t \phi_t \Bigl(\tfrac12 \phi_t
  + \sum_{k \ge 1} w_k \phi_{t-k}\Bigr)^\top$$

and the first two moments of \(q_t = \phi_t^\top V_h^{-1} \phi_t\) for the kurtosis, with \(V_h\)
the homoskedastic covariance (a metric that does not depend on coordinates).

On complete data \(\phi_t = f_t (u_t z_t^\top + B)\) with residual u and \(z = G_0^{-1} x\): the
products of a block are sums of \(u_i u_{i'} z_j z_{j'}\), so at one lag all blocks together are one
matrix product over time and \(\phi\) is never formed; where noise was added (`influence`) the
blocks of one cause are. With samples missing or several lags it is: then one product serves all
lags.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from fedgranger.inference.estimate import Estimate
from fedgranger.inference.influence import (
    influence,
    jackknife_factor,
    smaller_blocks,
    weighted_pieces,
)
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
    way = _Complete if fit.moments.is_complete and num_lags <= 1 else _General
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
        """Sizes by cause, effect and pair."""
        self.first += q.sum(axis=-1).T
        self.second += (q**2).sum(axis=-1).T


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
        """tr(R_m φ S_n φᵀ) of every block, (cause, effect, pair)."""
        weighted = np.empty_like(blocks)
        for n, S in enumerate(self.state_metric):  # few large products
            part = blocks[:, :, n]
            weighted[:, :, n] = (part.reshape(-1, len(S)) @ S).reshape(part.shape)
        products = blocks @ weighted.swapaxes(-1, -2)
        return np.einsum("tmnij,mij->nmt", products, self.residual_metric)

    def cut_tail(self, keep: int) -> None:
        """Forget pairs that no later one can be matched with."""
        self.tail = self.tail[keep:]


class _Complete(_Sums):
    """Uses that φ_t = f_t (u_t z_tᵀ + B) when nothing is missing.

    u_t are the residuals; where noise was added they differ from cause to cause, by
    Â_mn R_n H_n z_n (`influence`). Time is the last axis: products of few coordinates are then
    long sums.
    """

    def __init__(self, source: StateSource, fit: Estimate, lag_weights: np.ndarray) -> None:
        super().__init__(source, fit, lag_weights)
        constant = fit.transition @ np.kron(np.eye(fit.lags), source.error_cov) @ fit.inverse_cov
        self.smaller: np.ndarray | None = None
        M = len(self.rows)
        self.groups = 1, M  # causes that share their residuals are a group: groups, size of each
        if source.is_noise_added:
            parts = np.zeros_like(constant)
            for own, part, total in smaller_blocks(source, fit):
                parts[:, own] = part
                constant[:, own] -= part @ total
            self.smaller = self._blocks(parts).swapaxes(0, 1)  # cause, effect, p, width
            self.groups = M, 1
        self.B = self._blocks(constant)
        p, width = self.rows.shape[1], self.columns.shape[1]
        sizes = ((self.groups[0], M, p), (M, width), ())
        self.tail = tuple(np.zeros((*size, 0)) for size in sizes)

    def _blocks(self, matrix: np.ndarray) -> np.ndarray:
        """(effect, cause, p, width), zero on padding."""
        at = self.rows[:, None, :, None], self.columns[None, :, None, :]
        return matrix[at] * ((at[0] >= 0) & (at[1] >= 0))

    def add(self, pairs: PairChunk, weight: np.ndarray, matches: Matches) -> None:
        """Add new pairs and their products with earlier ones."""
        fit = self.fit
        residual = (pairs.after - pairs.before @ fit.transition.T).T
        z = (fit.inverse_cov @ pairs.before.T)[self.columns] * (self.columns >= 0)[..., None]
        u = (residual[self.rows] * (self.rows >= 0)[..., None])[None]
        if self.smaller is not None:
            u = u + self.smaller @ z[:, None]
        f = jackknife_factor(fit, pairs, weight)
        self._add_sizes(self._sizes(u, z, f))
        new = zip(self.tail, (u, z, f), strict=True)
        self.tail = tuple(np.concatenate(both, axis=-1) for both in new)
        for w, (later, earlier) in zip((0.5, *self.lag_weights), matches, strict=True):
            self.half += w * self._product(later, earlier)

    def cut_tail(self, keep: int) -> None:
        """Forget pairs that no later one can be matched with."""
        self.tail = tuple(part[..., keep:] for part in self.tail)

    def _product(self, later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        """Σ φ_later φ_earlierᵀ of every block, (effect, cause, K, K)."""
        M, _, p, w = self.B.shape
        groups, size = self.groups
        (u1, z1, f1), (u2, z2, f2) = (
            tuple(part[..., at] for part in self.tail) for at in (_span(later), _span(earlier))
        )
        ff = f1 * f2
        u1 = ff * u1
        uu = (u1[:, :, :, None] * u2[:, :, None]).reshape(groups, -1, len(ff))
        zz = (z1[:, :, None] * z2[:, None]).reshape(groups, -1, len(ff))
        total = (uu @ zz.swapaxes(1, 2)).reshape(groups, M, p, p, size, w, w)
        total = total.transpose(1, 0, 4, 2, 5, 3, 6).reshape(M, M, p, w, p, w)
        C1, C2 = (
            (u.reshape(groups, M * p, -1) @ z.reshape(groups, size * w, -1).swapaxes(1, 2))
            .reshape(groups, M, p, size, w)
            .transpose(1, 0, 3, 2, 4)
            .reshape(M, M, p, w)
            for u, z in ((u1, z1), (ff * u2, z2))
        )
        B = self.B
        total = (
            total
            + C1[..., None, None] * B[:, :, None, None]
            + B[..., None, None] * C2[:, :, None, None]
            + ff.sum() * B[..., None, None] * B[:, :, None, None]
        )
        return total.reshape(M, M, p * w, p * w)

    def _sizes(self, u: np.ndarray, z: np.ndarray, f: np.ndarray) -> np.ndarray:
        """tr(R_m φ S_n φᵀ) of every block, (cause, effect, pair)."""
        R, S, B = self.residual_metric, self.state_metric, self.B
        q = ((R @ u) * u).sum(axis=2) * ((S @ z) * z).sum(axis=1)[:, None]
        if B.any():
            scaled_B = R[:, None] @ B @ S
            across = scaled_B.swapaxes(0, 1) @ z[:, None]
            constant = (scaled_B * B).sum(axis=(2, 3)).T
            q = q + 2 * (across * u).sum(axis=2) + constant[..., None]
        return q * f**2


def _span(positions: np.ndarray) -> slice | np.ndarray:
    """The positions, as a slice where they are consecutive: arrays are then not copied."""
    if len(positions) and positions[-1] - positions[0] == len(positions) - 1:
        return slice(positions[0], positions[-1] + 1)
    return positions


def _inverse_blocks(matrix: np.ndarray, positions: np.ndarray) -> np.ndarray:
    out = np.zeros((*positions.shape, positions.shape[1]))
    for m, row in enumerate(positions):
        own = row[row >= 0]
        out[m, : len(own), : len(own)] = np.linalg.inv(matrix[np.ix_(own, own)])
    return out
