r"""Positive control: the smallest added influence that this test, on these data, would find.

An influence of size g: one innovation s.d. of the cause moves the effect by g of its own innovation
s.d. one step later. With \(L_m L_m^\top\) the covariance of what is new in the effect and
\(L_n L_n^\top\) that of what is new in the cause, the lag-one block A has in these coordinates

$$A' = L_m^{-1} A_1 L_n, \qquad g = \lVert A' \rVert_F$$

Let V be the covariance of all tested coefficients, \(a = T\,\mathrm{vec}(A')\) those that change
with A' (row-major; lags beyond the first do not) and δ the non-centrality at which the test has
80 % power at its critical value. In the least favourable direction

$$g^2 = \delta / \lambda_{\min}(T^\top V^{-1} T)$$

so an influence of that size is found with at least 80 % probability, wherever it points. It does
not depend on the coordinates of the states. The level is that of one test, before any correction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from fedgranger.inference.covariance import BlockCovariance
from fedgranger.inference.edge_tables import tested_pairs
from fedgranger.inference.strength import detectable_strength
from fedgranger.linalg.psd import is_positive_definite

SMALLEST_SHARE = 1e-12
"""Directions with less precision than this, relative to the best one, count as not tested."""


class Influence(NamedTuple):
    """The smallest influence that is found with the wanted probability.

    Attributes:
        size: g; infinite where no influence of some direction would ever be found.
        block: its lag-one block A in the least favourable direction.
    """

    size: float
    block: Float[np.ndarray, "effect_state cause_state"]


def smallest_influence(
    cov: Float[np.ndarray, "entry entry"],
    columns: tuple[Int[np.ndarray, " column"], Int[np.ndarray, " column"]],
    effect_cov: Float[np.ndarray, "effect_state effect_state"],
    cause_cov: Float[np.ndarray, "cause_state cause_state"],
    df_denominator: float,
    alpha: float,
) -> Influence:
    """Size and direction of the least favourable influence that is found in 80 % of all cases.

    Args:
        cov: V, of the tested coefficients in row-major order (effect's states, columns), widened
            where the critical value is larger than the F law's.
        columns: lag (from 1) and cause's state of every column.
        effect_cov: covariance of the effect's innovations.
        cause_cov: covariance of the cause's.
        df_denominator: ν of the test's F law.
        alpha: level of the single test.
    """
    lag, state = columns
    p, q = len(effect_cov), len(cause_cov)
    nothing = Influence(np.inf, np.full((p, q), np.nan))
    L_m, L_n = _root(effect_cov), _root(cause_cov)
    if L_m is None or L_n is None:
        return nothing
    loading = np.where(lag == 1, np.linalg.inv(L_n)[:, state], 0.0)  # (q, column)
    T = np.kron(L_m, loading.T)
    precision = T.T @ np.linalg.solve(cov, T)
    values, vectors = np.linalg.eigh((precision + precision.T) / 2)
    if values[0] <= SMALLEST_SHARE * values[-1]:
        return nothing
    size = detectable_strength(np.diag(1 / values[::-1]), df_denominator, alpha, size=len(cov))
    direction = vectors[:, 0].reshape(p, q)
    return Influence(size, size * L_m @ direction @ np.linalg.inv(L_n))


def latent_controls(
    edges: pd.DataFrame,
    innovation_covs: Mapping[str, np.ndarray],
    covariance: BlockCovariance,
    alpha: float,
) -> dict[str, float]:
    """Positive control of every tested pair of the latent test, by "cause -> effect".

    What is new in a client is the process noise: measurement error moves nobody.
    """
    covs, dims, rest, out = list(innovation_covs.values()), covariance.dims, covariance.test_df, {}
    for edge, m, n in tested_pairs(edges, list(innovation_covs)):
        lag, state = np.divmod(np.arange(covariance.lags * dims[n]), dims[n])
        V = covariance.block(m, n)
        found = smallest_influence(V, (lag + 1, state), covs[m], covs[n], rest[m, n], alpha)
        if np.isfinite(found.size):
            out[edge] = found.size
    return out


def _root(cov: np.ndarray) -> np.ndarray | None:
    """L with L Lᵀ = cov; None where it has none, whatever the units of the states."""
    scale = np.sqrt(np.maximum(np.diag(cov), 0.0))
    if not (scale > 0).all():
        return None
    correlation = cov / np.outer(scale, scale)
    if not is_positive_definite(correlation):
        return None
    return scale[:, None] * np.linalg.cholesky(correlation)
