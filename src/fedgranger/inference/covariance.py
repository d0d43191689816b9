r"""Sampling covariance of every block of the debiased estimate.

The estimating function of a pair is, in the coordinates of \(\hat A\) (influence function),

$$\phi_t = \big[(s_{t+1} - \hat A x_t) x_t^\top + \hat A E\big] G_0^{-1}$$

Under the model it is uncorrelated beyond L lags (measurement errors reach that far), so
\(\mathrm{Var}(\hat A_{mn}) = \frac1n [\Gamma(0) + \sum_k w_k (\Gamma(k) + \Gamma(k)^\top)]\) of the
block's own \(\phi_t\), with all \(w_k = 1\) up to lag L. Only blocks are ever formed: a test of
"n drives m" needs the p_m·L·p_n numbers of its own block and nothing of the other blocks.

Finite samples: \(\phi_t\) is divided by one minus the leverage of its pair (the jackknife's
correction, HC3), and the variance estimate gets degrees of freedom of its own from the kurtosis
of \(\phi\): \(\nu = 2n/(3\kappa - 1)\) with \(\kappa = 1\) for Gaussian \(\phi\).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedgranger.errors import ConfigError
from fedgranger.inference.estimate import Estimate
from fedgranger.inference.moments import expand
from fedgranger.inference.states import PairChunk, StateSource, lagged_pairs
from fedgranger.inference.weights import time_weights

__all__ = ["HAC_RULES", "BlockCovariance", "block_covariance", "block_positions", "hac_weights"]

HAC_RULES = ("model", "newey-west", "andrews")
CHUNK_VALUES = 4_000_000
"""Largest number of values of φ held at once."""


class BlockCovariance(NamedTuple):
    """Covariances of the blocks, padded to a common size.

    Attributes:
        cov: (effect, cause, K, K), covariance of vec of block [effect, cause]; K = p·L·p.
        df: (effect, cause), degrees of freedom of that covariance.
        size: (effect, cause), how many of the K coordinates are real.
        hac_lag: largest lag used.
        fell_back: (effect, cause), the covariance at the model's lag was not positive definite and
            Bartlett weights were used instead.
    """

    cov: np.ndarray
    df: np.ndarray
    size: np.ndarray
    hac_lag: int
    fell_back: np.ndarray


def hac_weights(rule: str, lags: int, num_pairs: int, autocorrelation: float = 0.0) -> np.ndarray:
    """Weights of lags 1, 2, …: ones up to L under the model, Bartlett's up to a rule's lag.

    Args:
        rule: `model`, `newey-west` (lag 4 (n/100)^(2/9)) or `andrews` (AR(1) plug-in).
        lags: L.
        num_pairs: n.
        autocorrelation: of the influence function at lag one, for `andrews`.
    """
    if rule == "model":
        return np.ones(lags)
    if rule == "newey-west":
        lag = int(4 * (num_pairs / 100) ** (2 / 9))
    elif rule == "andrews":
        rho = min(abs(autocorrelation), 0.97)
        alpha = 4 * rho**2 / (1 - rho**2) ** 2
        lag = int(np.ceil(1.1447 * (alpha * num_pairs) ** (1 / 3)))
    else:
        raise ConfigError(f"hac is {rule!r}; choose one of {', '.join(HAC_RULES)}")
    lag = max(lag, lags)
    return 1 - np.arange(1, lag + 1) / (lag + 1)


def block_positions(dims: tuple[int, ...], lags: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column positions of every client's states, padded with -1.

    Returns:
        rows: (client, p), positions in s⁺.
        columns: (client, L p), positions in x, all lags of one client together.
    """
    offsets = np.concatenate([[0], np.cumsum(dims)])
    P, p = offsets[-1], max(dims)
    rows = np.full((len(dims), p), -1)
    columns = np.full((len(dims), lags * p), -1)
    for m, dim in enumerate(dims):
        own = offsets[m] + np.arange(dim)
        rows[m, :dim] = own
        columns[m, : lags * dim] = np.concatenate([k * P + own for k in range(lags)])
    return rows, columns


def block_covariance(
    source: StateSource,
    fit: Estimate,
    *,
    rule: str = "model",
    weighting: str = "none",
    span: int | float = 0,
) -> BlockCovariance:
    """Read the source once more and accumulate the blocks' long-run covariances."""
    n = fit.moments.num_pairs
    lags = fit.lags
    rows, columns = block_positions(source.dims, lags)
    size = (rows >= 0).sum(axis=1)[:, None] * (columns >= 0).sum(axis=1)[None, :]
    rho = _lag_one(source, fit, weighting, span, rows, columns) if rule == "andrews" else 0.0
    weights = hac_weights(rule, lags, n, rho)
    fallback = hac_weights("newey-west", lags, n) if rule == "model" else weights
    num_lags = max(len(weights), len(fallback))
    products, squares = _accumulate(source, fit, weighting, span, rows, columns, num_lags)
    cov = _combine(products, weights, n)
    fell_back = ~_positive(cov, size)
    if fell_back.any():
        cov = np.where(fell_back[..., None, None], _combine(products, fallback, n), cov)
    first, second = squares
    with np.errstate(divide="ignore", invalid="ignore"):
        kurtosis = n * second / first**2 * size / (size + 2)
        df = np.clip(2 * n / (3 * kurtosis - 1), 1.0, n - lags * source.total_dim)
    return BlockCovariance(cov, df, size, len(weights), fell_back)


def influence(
    source: StateSource, fit: Estimate, pairs: PairChunk, weight: np.ndarray
) -> np.ndarray:
    """φ of every pair, (pair, P, L P): n times the derivative of Â by the pair's log weight.

    Divided by one minus the leverage; `weight` has mean one over all pairs of positive weight.
    """
    A, inverse, moments, lags = fit.transition, fit.inverse_cov, fit.moments, fit.lags
    x, y = pairs.before, pairs.after
    leverage = np.einsum("ti,ti->t", x @ inverse, x) * weight / moments.num_pairs
    factor = weight / (1 - np.minimum(leverage, 0.5))
    if moments.is_complete:
        residual = (y - x @ A.T) * factor[:, None]
        constant = A @ np.kron(np.eye(lags), source.error_cov) @ inverse
        return residual[:, :, None] * (x @ inverse)[:, None, :] + factor[:, None, None] * constant
    # Blocks are averages over different pairs: each product is centred at its block's own moment
    # where it is observed, and weighted by the inverse of how often that is.
    dims, M = source.dims, len(source.dims)
    lag_share = moments.total_weight / expand(moments.lag_weight, dims, dims, 1, lags)
    before_share = moments.total_weight / expand(moments.before_weight, dims, dims, lags, lags)
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
    return factor[:, None, None] * (psi @ inverse)


def _blocks(
    source: StateSource,
    fit: Estimate,
    weighting: str,
    span: int | float,
    rows: np.ndarray,
    columns: np.ndarray,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield φ by block as (effect, cause, pair, K), segments and indices, in bounded pieces."""
    weight_of = time_weights(weighting, span, source.num_steps)
    mean_weight = fit.moments.total_weight / fit.moments.num_pairs
    piece = max(64, CHUNK_VALUES // (source.total_dim**2 * fit.lags))
    real = (rows >= 0)[:, None, :, None] & (columns >= 0)[None, :, None, :]
    M = len(rows)
    for whole in lagged_pairs(source, fit.lags, fit.moments.mean):
        for start in range(0, len(whole.index), piece):
            pairs = PairChunk(*(part[start : start + piece] for part in whole))
            weight = weight_of(pairs.index) / mean_weight
            used = weight > 0
            if not used.all():
                pairs = PairChunk(*(part[used] for part in pairs))
                weight = weight[used]
            if not len(weight):
                continue
            phi = influence(source, fit, pairs, weight)
            by_block = phi[:, rows[:, None, :, None], columns[None, :, None, :]] * real
            yield (
                by_block.transpose(1, 2, 0, 3, 4).reshape(M, M, len(weight), -1),
                pairs.segment,
                pairs.index,
            )


def _accumulate(
    source: StateSource,
    fit: Estimate,
    weighting: str,
    span: int | float,
    rows: np.ndarray,
    columns: np.ndarray,
    num_lags: int,
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Lag products Σ φ_t φ_{t-k}ᵀ for k = 0 … and the sums for the kurtosis."""
    M, K = len(source.dims), rows.shape[1] * columns.shape[1]
    products = np.zeros((num_lags + 1, M, M, K, K))
    first, second = np.zeros((M, M)), np.zeros((M, M))
    whiten = _whitening(fit, rows, columns)
    tail = np.zeros((M, M, 0, K))
    tail_index, tail_segment = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    for phi, segment, index in _blocks(source, fit, weighting, span, rows, columns):
        joined = np.concatenate([tail, phi], axis=2)
        all_index = np.concatenate([tail_index, index])
        all_segment = np.concatenate([tail_segment, segment])
        products[0] += phi.transpose(0, 1, 3, 2) @ phi
        for k in range(1, num_lags + 1):
            later = np.searchsorted(all_index, all_index + k)
            valid = later < len(all_index)
            later = np.minimum(later, len(all_index) - 1)
            valid &= (all_index[later] == all_index + k) & (all_segment[later] == all_segment)
            valid &= later >= len(tail_index)  # products among the tail were counted before
            products[k] += joined[:, :, later[valid]].transpose(0, 1, 3, 2) @ joined[:, :, valid]
        size = np.einsum("mntk,mnkl,mntl->mnt", phi, whiten, phi, optimize=True)
        first += size.sum(axis=2)
        second += (size**2).sum(axis=2)
        keep = slice(max(0, len(all_index) - num_lags), None)
        tail, tail_index, tail_segment = joined[:, :, keep], all_index[keep], all_segment[keep]
    return products, (first, second)


def _whitening(fit: Estimate, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Inverse of the homoskedastic covariance of every block, zero on padding.

    It only sets the metric in which the kurtosis is measured, so that the result does not depend
    on the coordinates of the states.
    """
    M, p = rows.shape
    K = p * columns.shape[1]
    out = np.zeros((M, M, K, K))
    for m in range(M):
        own = rows[m][rows[m] >= 0]
        residual = np.linalg.inv(fit.residual_cov[np.ix_(own, own)])
        for n in range(M):
            cause = columns[n][columns[n] >= 0]
            state = np.linalg.inv(fit.inverse_cov[np.ix_(cause, cause)])
            inverse = np.einsum("ij,kl->ikjl", residual, state)
            inside = (rows[m] >= 0)[:, None] & (columns[n] >= 0)[None, :]
            where = np.flatnonzero(inside.reshape(-1))
            out[m, n][np.ix_(where, where)] = inverse.reshape(len(where), len(where))
    return out


def _combine(products: np.ndarray, weights: np.ndarray, n: int) -> np.ndarray:
    total = products[0].copy()
    for k, weight in enumerate(weights, start=1):
        total += weight * (products[k] + products[k].transpose(0, 1, 3, 2))
    return total / n**2


def _positive(cov: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Whether each block's covariance is positive definite on its real coordinates.

    Judged on correlations, so that the units of the states do not matter.
    """
    variance = np.einsum("mnkk->mnk", cov)
    scale = np.sqrt(np.where(variance > 0, variance, 1.0))
    correlation = cov / (scale[..., :, None] * scale[..., None, :])
    padded = (variance == 0)[..., None] * np.eye(cov.shape[-1])
    values = np.linalg.eigvalsh(correlation + padded)
    return (values[..., 0] > 1e-14 * values[..., -1]) & ((variance > 0).sum(axis=-1) == size)


def _lag_one(
    source: StateSource,
    fit: Estimate,
    weighting: str,
    span: int | float,
    rows: np.ndarray,
    columns: np.ndarray,
) -> float:
    """Median over coordinates of the influence function's autocorrelation at lag one."""
    products, _ = _accumulate(source, fit, weighting, span, rows, columns, 1)
    variance = np.einsum("mnkk->mnk", products[0])
    covariance = np.einsum("mnkk->mnk", products[1])
    real = variance > 0
    return float(np.median(np.abs(covariance[real] / variance[real])))
