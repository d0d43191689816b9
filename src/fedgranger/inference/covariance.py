r"""Sampling covariance of every block of the debiased estimate.

The estimating function of a pair is, in the coordinates of \(\hat A\) (influence function),

$$\phi_t = \big[(s_{t+1} - \hat A x_t) x_t^\top + \hat A E\big] G_0^{-1}$$

Under the model it is uncorrelated beyond L lags (measurement errors reach that far), so
\(\mathrm{Var}(\hat A_{mn}) = \frac1n [\Gamma(0) + \sum_k w_k (\Gamma(k) + \Gamma(k)^\top)]\) of the
block's own \(\phi_t\), with all \(w_k = 1\) up to lag L. Only blocks are ever formed: a test of
"n drives m" needs the p_m·L·p_n numbers of its own block and nothing of the other blocks.

Finite samples: \(\phi_t\) is divided by one minus the leverage of its pair (the jackknife's
correction, HC3), and the variance estimate gets degrees of freedom of its own from the kurtosis
of \(\phi\) and from the lags: \(\nu = 2n/(3\kappa - 1 + 4\sum_k w_k^2)\), \(\kappa = 1\) for
Gaussian \(\phi\) (a variance has relative variance (3κ − 1)/n, every lag product adds 4 w²/n).
With weights of time steps, which are part of \(\phi\), n is \((\sum w^2)^2/\sum w^4\) there:
uneven weights make the variance, too, an average over fewer pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from fedgranger.edge_test_kinds import HAC_RULES
from fedgranger.errors import ConfigError
from fedgranger.inference.estimate import Estimate
from fedgranger.inference.products import lag_products
from fedgranger.inference.states import StateSource
from fedgranger.linalg.blocks import block_positions
from fedgranger.linalg.long_run import andrews_bandwidth, newey_west_lag


class BlockCovariance(NamedTuple):
    """Covariances of the blocks, padded to a common size.

    Attributes:
        cov: covariance of vec of block [effect, cause], which has K = p·L·p entries at most.
        df: degrees of freedom of that covariance.
        dims: states per client.
        lags: L.
        hac_lag: largest lag used.
        fell_back: the covariance at the model's lag was not positive definite and Bartlett weights
            were used instead.
        is_estimated: all of the covariance is estimated, so a test of k entries uses up k - 1 of
            its degrees of freedom (Hotelling).
    """

    cov: Float[np.ndarray, "effect cause entry entry"]
    df: Float[np.ndarray, "effect cause"]
    dims: tuple[int, ...]
    lags: int
    hac_lag: int
    fell_back: Bool[np.ndarray, "effect cause"]
    is_estimated: bool = True

    @property
    def size(self) -> Int[np.ndarray, "effect cause"]:
        """How many of the K coordinates are real."""
        return self.lags * np.outer(self.dims, self.dims)

    @property
    def test_df(self) -> Float[np.ndarray, "effect cause"]:
        """Degrees of freedom left for a test of all entries of a block."""
        return self.df - (self.size - 1 if self.is_estimated else 0)

    def block(self, effect: int, cause: int) -> Float[np.ndarray, "entry entry"]:
        """Covariance of a block's entries in row-major order, without padding."""
        rows, columns = block_positions(self.dims, self.lags)
        inside = (rows[effect] >= 0)[:, None] & (columns[cause] >= 0)[None, :]
        where = np.flatnonzero(inside.reshape(-1))
        return self.cov[effect, cause][np.ix_(where, where)]

    def critical_values(
        self, confidence: float | Float[np.ndarray, "effect cause"]
    ) -> Float[np.ndarray, "effect cause"]:
        """Largest Wald statistic that a test of level 1 − confidence accepts."""
        k, rest = self.size, self.test_df
        enough = rest >= 1
        quantile = stats.f.ppf(confidence, k, np.where(enough, rest, 1.0))
        factor = self.df * k / np.where(enough, rest, 1.0) if self.is_estimated else k
        return np.where(enough, factor * quantile, np.nan)


def hac_weights(
    rule: str, lags: int, num_pairs: int, autocorrelation: float = 0.0
) -> Float[np.ndarray, " lag"]:
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
        lag = newey_west_lag(num_pairs)
    elif rule == "andrews":
        lag = int(np.ceil(andrews_bandwidth(autocorrelation, num_pairs)))
    else:
        raise ConfigError(f"hac is {rule!r}; choose one of {', '.join(HAC_RULES)}")
    lag = max(lag, lags)
    return 1 - np.arange(1, lag + 1) / (lag + 1)


def block_covariance(
    source: StateSource,
    fit: Estimate,
    rule: str = "model",
    wanted: Bool[np.ndarray, "effect cause"] | None = None,
) -> BlockCovariance:
    """Read the source once more and accumulate the blocks' long-run covariances.

    Blocks that are not `wanted` have a covariance of zero, which no test accepts.
    """
    n = fit.moments.num_pairs
    lags = fit.lags
    size = lags * np.outer(source.dims, source.dims)
    rho = _lag_one(source, fit) if rule == "andrews" else 0.0
    weights = hac_weights(rule, lags, n, rho)
    total, first, second, matched = lag_products(source, fit, weights, wanted)
    cov = total / n**2
    fell_back = ~_positive(cov, size) & (rule == "model")
    if wanted is not None:
        fell_back &= wanted
    if fell_back.any():  # rare: read the source again, with more lags
        fallback = hac_weights("newey-west", lags, n)
        total = lag_products(source, fit, fallback, wanted).total
        cov = np.where(fell_back[..., None, None], total / n**2, cov)
    if source.is_noise_added:
        cov = cov / (1 + _widening(source, fit))
    n_var = n / fit.moments.unevenness
    # periodic weights leave pairs that do not follow each other, so no products over lags
    followed = matched / n if source.weighting == "periodic" else np.ones(len(weights))
    with np.errstate(divide="ignore", invalid="ignore"):
        kurtosis = n_var * second / first**2 * size / (size + 2)
        relative_var = 3 * kurtosis - 1 + 4 * float((weights**2 * followed).sum())
        most = fit.moments.effective_pairs - lags * source.total_dim
        df = np.clip(2 * n_var / relative_var, 1.0, max(most, 1.0))
    return BlockCovariance(cov, df, source.dims, lags, len(weights), fell_back)


def homoskedastic(fit: Estimate, dims: tuple[int, ...]) -> BlockCovariance:
    """Textbook covariance of least squares, valid without measurement error only.

    Cov(vec block) = residual covariance ⊗ G0⁻¹ / n with n − L P degrees of freedom, n the
    effective number of pairs.
    """
    rows, columns = block_positions(dims, fit.lags)
    M, p = rows.shape
    width = columns.shape[1]
    n = fit.moments.effective_pairs
    df = n - fit.transition.shape[1]
    real_rows, real_columns = rows >= 0, columns >= 0
    sigma = fit.residual_cov[rows[:, :, None], rows[:, None, :]] * n / df
    sigma = sigma * (real_rows[:, :, None] & real_rows[:, None, :])
    state = fit.inverse_cov[columns[:, :, None], columns[:, None, :]] / n
    state = state * (real_columns[:, :, None] & real_columns[:, None, :])
    cov = np.einsum("mij,nkl->mnikjl", sigma, state).reshape(M, M, p * width, p * width)
    no_block, dfs = np.zeros((M, M), dtype=np.bool_), np.full((M, M), float(df))
    return BlockCovariance(cov, dfs, dims, fit.lags, 0, no_block, is_estimated=False)


def _widening(source: StateSource, fit: Estimate) -> float:
    r"""How much the errors of all coefficients widen the residuals where noise was added.

    \(E[\delta x x^\top \delta^\top] - 2 E[\delta x e^\top]\) is \(\Sigma_e (\mathrm{tr}\,M^2 -
    2\,\mathrm{tr}\,M)/n\) with \(M = E[xx^\top] G_0^{-1}\), against \(-\Sigma_e L P/n\) of least
    squares: together \(\sum_i \nu_i^2 / n\), ν the eigenvalues of \(N G_0^{-1}\). None is taken
    larger than \(\sqrt{n / L P}\): so small a signal could be a sampling error.
    """
    N, n = np.kron(np.eye(fit.lags), source.added_cov), fit.moments.effective_pairs
    half = np.linalg.cholesky(fit.inverse_cov)
    values = np.linalg.eigvalsh(half.T @ N @ half)
    return float(np.minimum(values**2, n / len(N)).sum() / n)


def _positive(
    cov: Float[np.ndarray, "effect cause entry entry"], size: Int[np.ndarray, "effect cause"]
) -> Bool[np.ndarray, "effect cause"]:
    """Whether each block's covariance is positive definite on its real coordinates.

    Judged on correlations, so that the units of the states do not matter.
    """
    variance = np.einsum("mnkk->mnk", cov)
    scale = np.sqrt(np.where(variance > 0, variance, 1.0))
    correlation = cov / (scale[..., :, None] * scale[..., None, :])
    padded = (variance == 0)[..., None] * np.eye(cov.shape[-1])
    values = np.linalg.eigvalsh(correlation + padded)
    return (values[..., 0] > 1e-14 * values[..., -1]) & ((variance > 0).sum(axis=-1) == size)


def _lag_one(source: StateSource, fit: Estimate) -> float:
    """Median over coordinates of the influence function's autocorrelation at lag one."""
    with_lag_one, without = (
        np.einsum("mnkk->mnk", lag_products(source, fit, np.array(w)).total) for w in ([0.5], [])
    )
    variance, covariance = without, with_lag_one - without
    real = variance > 0
    return float(np.median(np.abs(covariance[real] / variance[real])))
