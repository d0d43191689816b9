r"""Sums over pairs that the blocks' covariances are made of.

For every block the weighted sum over lags

$$S + S^\top, \qquad S = \sum_t \phi_t \Bigl(\tfrac12 \phi_t
  + \sum_{k \ge 1} w_k \phi_{t-k}\Bigr)^\top$$

and the first two moments of \(q_t = \phi_t^\top V_h^{-1} \phi_t\) for the kurtosis, with \(V_h\)
the homoskedastic covariance (a metric that does not depend on coordinates).

On complete data \(\phi_t = f_t (u_t z_t^\top + B)\) with residual u and \(z = G_0^{-1} x\): the
products of a block are sums of \(u_i u_{i'} z_j z_{j'}\), so at one lag all blocks together are one
matrix product over time and \(\phi\) is never formed. With samples missing, several lags, or noise
added (u then differs from cause to cause, `influence`) it is: one product serves all lags.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fedgranger.inference.estimate import Estimate
from fedgranger.inference.influence import (
    influence,
    jackknife_factor,
    smaller_blocks,
    weighted_pieces,
)
from fedgranger.inference.states import PairChunk, StateSource
from fedgranger.linalg.blocks import block_positions
from fedgranger.linalg.unbroken_steps import span

Matches = list[tuple[np.ndarray, np.ndarray]]
"""Per lag: positions of the later and of the earlier pairs."""


class LagProducts(NamedTuple):
    """Sums over pairs, padded to a common block size: S + Sᵀ, Σ q and Σ q².

    `matched` counts per lag the pairs that have one so much earlier.
    """

    total: Float[np.ndarray, "effect cause entry entry"]
    first: Float[np.ndarray, "effect cause"]
    second: Float[np.ndarray, "effect cause"]
    matched: Float[np.ndarray, " lag"]


def lag_products(
    source: StateSource,
    fit: Estimate,
    lag_weights: Float[np.ndarray, " lag"],
    wanted: Bool[np.ndarray, "effect cause"] | None = None,
) -> LagProducts:
    """Read the source once and accumulate; of the blocks that are not `wanted` nothing is known."""
    num_lags = len(lag_weights)
    is_factored = fit.moments.is_complete and num_lags <= 1 and not source.is_noise_added
    if wanted is None:
        wanted = np.ones((len(source.dims), len(source.dims)), dtype=np.bool_)
    sums = (_Factored if is_factored else _Formed)(source, fit, lag_weights, wanted)
    step = segment = np.zeros(0, dtype=np.int64)
    matched = np.zeros(num_lags)
    for pairs, weight in weighted_pieces(source, fit):
        num_tail = len(step)
        step, segment = np.append(step, pairs.step), np.append(segment, pairs.segment)
        matches = [_matches(step, segment, num_tail, k) for k in range(num_lags + 1)]
        sums.add(pairs, weight, matches)
        matched += [len(later) for later, _ in matches[1:]]
        keep = max(0, len(step) - num_lags)
        step, segment = step[keep:], segment[keep:]
        sums.cut_tail(keep)
    return sums.result(matched)


def _matches(
    step: Int[np.ndarray, " pair"], segment: Int[np.ndarray, " pair"], num_tail: int, k: int
) -> tuple[Int[np.ndarray, " _"], Int[np.ndarray, " _"]]:
    """Positions (later, earlier) of pairs k steps apart in one segment, later ones being new."""
    later = np.searchsorted(step, step + k)
    valid = later < len(step)
    later = np.minimum(later, len(step) - 1)
    valid &= (step[later] == step + k) & (segment[later] == segment) & (later >= num_tail)
    return later[valid], np.flatnonzero(valid)


class _Sums:
    """What both ways add up. Time is the last axis: few coordinates then make long sums.

    Only of effects and causes of which some block is wanted.
    """

    def __init__(
        self,
        source: StateSource,
        fit: Estimate,
        lag_weights: Float[np.ndarray, " lag"],
        wanted: Bool[np.ndarray, "effect cause"],
    ) -> None:
        self.source, self.fit, self.lag_weights = source, fit, lag_weights
        effects, causes = wanted.any(axis=1), wanted.any(axis=0)
        self.wanted, self.at = wanted, np.nonzero(wanted[effects][:, causes])
        rows, columns = block_positions(source.dims, fit.lags)
        self.rows, self.columns = rows[effects], columns[causes]
        K = rows.shape[1] * columns.shape[1]
        self.half: np.ndarray = np.zeros((int(wanted.sum()), K, K))
        self.first, self.second = np.zeros((2, len(self.rows), len(self.columns)))
        self.tail: tuple[np.ndarray, ...] = ()
        # inverse covariances of every client's residuals and of its part of z, zero on padding
        self.residual_metric = _inverse_blocks(fit.residual_cov, self.rows)
        self.state_metric = _inverse_blocks(fit.inverse_cov, self.columns)
        constant = fit.transition @ np.kron(np.eye(fit.lags), source.error_cov) @ fit.inverse_cov
        self.smaller: np.ndarray | None = None
        if source.is_noise_added:
            parts = np.zeros_like(constant)
            for own, part, total in smaller_blocks(source, fit):
                parts[:, own] = part
                constant[:, own] -= part @ total
            self.smaller = self._blocks(parts)
        self.B = self._blocks(constant)

    def _extend(self, *new: np.ndarray) -> None:
        """Put what is known of new pairs behind that of earlier ones."""
        both = zip(self.tail, new, strict=True) if self.tail else ((part,) for part in new)
        self.tail = tuple(np.concatenate(parts, axis=-1) for parts in both)

    def cut_tail(self, keep: int) -> None:
        """Forget pairs that no later one can be matched with."""
        self.tail = tuple(part[..., keep:] for part in self.tail)

    def result(self, matched: Float[np.ndarray, " lag"]) -> LagProducts:
        """The sums of all blocks, zero where they are not wanted."""
        wanted, half = self.wanted, self.half
        total = np.zeros((*wanted.shape, *half.shape[-2:]))
        total[wanted] = half + half.transpose(0, 2, 1)
        sizes = np.zeros((2, *wanted.shape))
        sizes[:, wanted] = self.first[self.at], self.second[self.at]
        return LagProducts(total, sizes[0], sizes[1], matched)

    def _blocks(self, matrix: np.ndarray) -> np.ndarray:
        """(effect, cause, p, width), zero on padding."""
        at = self.rows[:, None, :, None], self.columns[None, :, None, :]
        return matrix[..., at[0], at[1]] * ((at[0] >= 0) & (at[1] >= 0))

    def _factors(
        self, pairs: PairChunk, weight: Float[np.ndarray, " pair"]
    ) -> tuple[np.ndarray, np.ndarray, Float[np.ndarray, " pair"]]:
        """Residuals u of every effect and cause (one without added noise), z and f."""
        fit = self.fit
        residual = (pairs.after - pairs.before @ fit.transition.T).T
        z = (fit.inverse_cov @ pairs.before.T)[self.columns] * (self.columns >= 0)[..., None]
        u = (residual[self.rows] * (self.rows >= 0)[..., None])[:, None]
        if self.smaller is not None:
            u = u + self.smaller @ z
        return u, z, jackknife_factor(fit, pairs, weight)

    def _add_sizes(self, u: np.ndarray, z: np.ndarray, f: np.ndarray) -> None:
        """Add q = tr(R_m φ S_n φᵀ) and q² of every block."""
        R, S, B = self.residual_metric, self.state_metric, self.B
        q = ((R[:, None] @ u) * u).sum(axis=2) * ((S @ z) * z).sum(axis=1)
        if B.any():
            scaled_B = R[:, None] @ B @ S
            q = q + 2 * ((scaled_B @ z) * u).sum(axis=2)
            q = q + (scaled_B * B).sum(axis=(2, 3))[..., None]
        q = q * f**2
        self.first += q.sum(axis=-1)
        self.second += (q**2).sum(axis=-1)


class _Formed(_Sums):
    """Forms φ of every pair; its product with the weighted sum of its past serves all lags."""

    def add(self, pairs: PairChunk, weight: Float[np.ndarray, " pair"], matches: Matches) -> None:
        """Add new pairs and their products with earlier ones."""
        phi = self._influence(pairs, weight).reshape(*self.half.shape[:2], -1)
        self._extend(phi)
        (whole,) = self.tail
        num_tail = whole.shape[-1] - phi.shape[-1]
        past = np.zeros_like(phi)
        for w, (later, earlier) in zip((0.5, *self.lag_weights), matches, strict=True):
            past[..., span(later - num_tail)] += w * whole[..., span(earlier)]
        self.half += phi @ past.swapaxes(-1, -2)

    def _influence(
        self, pairs: PairChunk, weight: Float[np.ndarray, " pair"]
    ) -> Float[np.ndarray, "_ _ _ pair"]:
        """φ, (wanted block, p, width, pair); its sizes are added."""
        if self.fit.moments.is_complete:
            u, z, f = self._factors(pairs, weight)
            self._add_sizes(u, z, f)
            u = np.broadcast_to(u, (*self.first.shape, *u.shape[2:]))[self.at]
            return f * (u[:, :, None] * z[self.at[1], None] + self.B[self.at][..., None])
        blocks = self._blocks(influence(self.source, self.fit, pairs, weight))
        weighted = self.residual_metric[:, None] @ blocks @ self.state_metric
        q = np.einsum("tmnij,tmnij->tmn", weighted, blocks)
        self.first += q.sum(axis=0)
        self.second += (q**2).sum(axis=0)
        return np.moveaxis(blocks[:, *self.at], 0, -1)


class _Factored(_Sums):
    """Uses that φ_t = f_t (u_t z_tᵀ + B), u the same for all causes."""

    def add(self, pairs: PairChunk, weight: Float[np.ndarray, " pair"], matches: Matches) -> None:
        """Add new pairs and their products with earlier ones."""
        u, z, f = self._factors(pairs, weight)
        self._add_sizes(u, z, f)
        self._extend(u[:, 0], z, f)
        for w, (later, earlier) in zip((0.5, *self.lag_weights), matches, strict=True):
            if len(later):  # with periodic weights no used pair follows another
                self.half += w * self._product(later, earlier)[self.at]

    def _product(
        self, later: Int[np.ndarray, " pair"], earlier: Int[np.ndarray, " pair"]
    ) -> Float[np.ndarray, "effect cause entry entry"]:
        """Σ φ_later φ_earlierᵀ of every block, (effect, cause, K, K)."""
        B = self.B
        E, C, p, w = B.shape
        (u1, z1, f1), (u2, z2, f2) = (
            tuple(part[..., at] for part in self.tail) for at in (span(later), span(earlier))
        )
        ff = f1 * f2
        n = len(ff)
        uu = (ff * u1[:, :, None] * u2[:, None]).reshape(-1, n)
        zz = (z1[:, :, None] * z2[:, None]).reshape(-1, n)
        total = (uu @ zz.T).reshape(E, p, p, C, w, w)
        total = total.transpose(0, 3, 1, 4, 2, 5)  # effect, cause, i, j, i', j'
        C1, C2 = (
            ((ff * u).reshape(-1, n) @ z.reshape(-1, n).T).reshape(E, p, C, w).swapaxes(1, 2)
            for u, z in ((u1, z1), (u2, z2))
        )
        total = (
            total
            + C1[..., None, None] * B[:, :, None, None]
            + B[..., None, None] * C2[:, :, None, None]
            + ff.sum() * B[..., None, None] * B[:, :, None, None]
        )
        return total.reshape(E, C, p * w, p * w)


def _inverse_blocks(
    matrix: Float[np.ndarray, "_ _"], positions: Int[np.ndarray, "_ _"]
) -> Float[np.ndarray, "_ _ _"]:
    out = np.zeros((*positions.shape, positions.shape[1]))
    for m, row in enumerate(positions):
        own = row[row >= 0]
        out[m, : len(own), : len(own)] = np.linalg.inv(matrix[np.ix_(own, own)])
    return out
