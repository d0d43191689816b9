r"""Influence of every pair on the debiased estimate, in pieces of bounded size.

**Where noise was added.** The error δ of a block \(\hat A_{mn}\) widens the residuals that its own
variance is made of, \(s^+ - \hat A x = e - \delta x\). In least squares the effect is small and
opposite; with noise as large as the signal it made 2.7 % of 5 %. So the residuals are taken at a
block that is smaller by the share of added noise in its columns
\(z = G_0^{-1} x\), which is the null where noise is all there is and nothing where it is not:

$$\phi_{mn} \mathrel{+}= \hat A_{mn} R_n H_n (z_n z_n^\top - \overline{z_n z_n^\top}), \quad
  R_n^{-1} = (G_0^{-1})_{nn}, \quad
  H_n = (G_0^{-1} N G_0^{-1})_{nn}\, (\overline{z_n z_n^\top})^{-1}$$

(\(\hat A - \hat A_{mn} R_n (G_0^{-1})_{n\cdot}\) solves the equation with a block of zero.)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from fedgranger.inference.estimate import Estimate
from fedgranger.inference.state_moments import expand
from fedgranger.inference.states import PairChunk, StateSource, lagged_pairs

CHUNK_VALUES = 400_000
"""Largest number of values of φ held at once: ten times as many do not fit a processor's cache and
take half as long again."""


def weighted_pieces(
    source: StateSource, fit: Estimate
) -> Iterator[tuple[PairChunk, Float[np.ndarray, " pair"]]]:
    """Yield pairs of positive weight and their weights, which have mean one over all of them."""
    mean_weight = fit.moments.total_weight / fit.moments.num_pairs
    piece = max(64, CHUNK_VALUES // (source.total_dim**2 * fit.lags))
    for whole in lagged_pairs(source, fit.lags, fit.moments.mean):
        for start in range(0, len(whole.step), piece):
            pairs = PairChunk(*(part[start : start + piece] for part in whole))
            weight = source.weights(pairs.step) / mean_weight
            used = weight > 0
            if used.all():
                yield pairs, weight
            elif used.any():
                yield PairChunk(*(part[used] for part in pairs)), weight[used]


def jackknife_factor(
    fit: Estimate, pairs: PairChunk, weight: Float[np.ndarray, " pair"]
) -> Float[np.ndarray, " pair"]:
    """Weight of each pair divided by one minus its leverage in the regression on x.

    The leverage is taken with E[xxᵀ], noise included: with G0 it would count the noise twice and
    make noisy clients' tests too cautious.
    """
    x = pairs.before
    scaled = np.linalg.solve(fit.moments.before_cov, x.T).T
    leverage = np.einsum("ti,ti->t", scaled, x) * weight / fit.moments.num_pairs
    return weight / (1 - np.minimum(leverage, 0.5))


def influence(
    source: StateSource, fit: Estimate, pairs: PairChunk, weight: Float[np.ndarray, " pair"]
) -> Float[np.ndarray, "pair state lagged"]:
    """φ of every pair, (pair, P, L P): n times the derivative of Â by the pair's log weight.

    Divided by one minus the leverage; `weight` has mean one over all pairs of positive weight.
    """
    A, inverse, moments, lags = fit.transition, fit.inverse_cov, fit.moments, fit.lags
    x, y = pairs.before, pairs.after
    factor = jackknife_factor(fit, pairs, weight)
    smaller = _at_smaller_blocks(source, fit, x, factor) if source.is_noise_added else 0.0
    if moments.is_complete:
        residual = (y - x @ A.T) * factor[:, None]
        constant = A @ np.kron(np.eye(lags), source.error_cov) @ inverse
        scores = residual[:, :, None] * (x @ inverse)[:, None, :]
        return scores + factor[:, None, None] * constant + smaller
    # Blocks are averages over different pairs: each product is centred at its block's own moment
    # where it is observed, and weighted by the inverse of how often that is.
    dims, M = source.dims, len(source.dims)
    lag_share = moments.total_weight / expand(moments.lag_weight, dims, 1, lags)
    before_share = moments.total_weight / expand(moments.before_weight, dims, lags, lags)
    column_owner = np.repeat(np.arange(lags * M), dims * lags)
    before_ok = pairs.before_observed[:, column_owner].astype(np.float64)
    after_ok = pairs.after_observed[:, source.owner].astype(np.float64)
    psi = np.empty((len(x), len(A), len(inverse)))
    for block in range(lags * M):
        own = column_owner == block
        first = int(np.flatnonzero(own)[0])
        left = y * lag_share[:, first] - (x * before_share[:, first]) @ A.T
        psi[:, :, own] = left[:, :, None] * x[:, None, own]
        for j in np.flatnonzero(own):
            mean = after_ok * (lag_share[:, j] * moments.lag_cov[:, j])
            mean -= (before_ok * (before_share[:, j] * moments.before_cov[:, j])) @ A.T
            psi[:, :, j] -= before_ok[:, j, None] * mean
    return factor[:, None, None] * (psi @ inverse) + smaller


def smaller_blocks(
    source: StateSource, fit: Estimate
) -> Iterator[
    tuple[Int[np.ndarray, " lagged_state"], Float[np.ndarray, "state lagged_state"], np.ndarray]
]:
    """Per cause n: its columns in x, A_·n R_n H_n and the mean of z_n z_nᵀ; see the module."""
    inverse = fit.inverse_cov
    noise = inverse @ np.kron(np.eye(fit.lags), source.added_cov) @ inverse
    total = inverse @ fit.moments.before_cov @ inverse
    owner = np.tile(source.owner, fit.lags)
    for n in range(len(source.dims)):
        own = np.flatnonzero(owner == n)
        here = np.ix_(own, own)
        share = np.linalg.solve(total[here], noise[here]).T  # H
        yield own, fit.transition[:, own] @ np.linalg.solve(inverse[here], share), total[here]


def _at_smaller_blocks(
    source: StateSource,
    fit: Estimate,
    x: Float[np.ndarray, "pair lagged"],
    factor: Float[np.ndarray, " pair"],
) -> Float[np.ndarray, "pair state lagged"]:
    """What φ gains when each block is smaller by the share of added noise; see the module."""
    z, out = x @ fit.inverse_cov, np.empty((len(x), *fit.transition.shape))
    for own, part, total in smaller_blocks(source, fit):
        squares = z[:, own, None] * z[:, None, own] - total
        out[:, :, own] = part @ (factor[:, None, None] * squares)
    return out
