r"""Edges over time: the latent test in stretches of the record, with bands that hold all along it.

K stretches of equal length, each overlapping half of the next, are estimated by themselves
(`estimate`), with the lags and the measurement noise of the whole record. Where an influence stays,
the blocks of two stretches are correlated by the share of time steps that they have in common,
\(r_{kl}\), whatever the data are. So the pointwise level \(\alpha^*\) at which all stretches of an
edge together are wrong with probability α is a number that a simulation gives (sup-t bands;
Montiel Olea and Plagborg-Møller, Journal of Applied Econometrics 34, 2019):

$$P\Big(\min_k \bar F_{\chi^2_q}\big(\lVert Z_k\rVert^2\big) \le \alpha^*\Big) = \alpha,
  \qquad Z_k \sim N(0, I_q),\quad \mathrm{Cov}(Z_k, Z_l) = r_{kl} I_q.$$

The band of a stretch is the interval of its strength at level \(\alpha^*\) (with the degrees of
freedom of its own covariance), and its p-value is \(P(\min_k \ldots \le p)\): the chance of so
small a p-value anywhere along the record without an influence.

Over edges: an edge is chosen by its smallest p-value and the run's correction, then its stretches
are tested at the level that is left, \(\alpha R/m\) with R of m edges chosen under `bh`
(Benjamini and Bogomolov, Journal of the Royal Statistical Society B 76, 2014), α/m under `holm`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy import stats

from fedgranger.config import RunConfig
from fedgranger.errors import InferenceError
from fedgranger.inference.covariance import BlockCovariance
from fedgranger.inference.decision import adjust, is_wanted
from fedgranger.inference.drift import time_text
from fedgranger.inference.estimate import Estimate
from fedgranger.inference.latent import LatentFit, refit_blocks
from fedgranger.inference.shifts import StateTable
from fedgranger.inference.states import StateSource
from fedgranger.inference.strength import strength_intervals
from fedgranger.inference.wald import wald_tests
from fedgranger.linalg.blocks import padded_blocks

COLUMNS = (
    "cause",
    "effect",
    "start",
    "end",
    "strength",
    "ci_low",
    "ci_high",
    "p_value",
    "q_value",
    "is_edge",
)
DRAWS = 20_000
STEPS_PER_STATE = 20
"""A stretch has at least so many time steps per state and lag."""
FEWEST_TAIL = 50
"""Draws below a p-value that make their share of all draws a probability."""


class Simultaneous(NamedTuple):
    """The law of the smallest of K pointwise p-values, by simulation."""

    smallest: Float[np.ndarray, " _"]
    num_windows: int

    def level(self, alpha: float) -> float:
        """Pointwise level at which all stretches together have level α."""
        return float(np.quantile(self.smallest, alpha))

    def p_values(self, pointwise: np.ndarray) -> np.ndarray:
        """Chance of a p-value so small in any stretch; far out Bonferroni's bound K p."""
        count = np.searchsorted(self.smallest, pointwise, side="right")
        share = count / len(self.smallest)
        bound = np.minimum(self.num_windows * pointwise, 1.0)
        out = np.where(count >= FEWEST_TAIL, np.minimum(share, bound), bound)
        return np.where(np.isnan(pointwise), np.nan, out)


def time_stretches(num_steps: int, count: int) -> Int[np.ndarray, "_ 2"]:
    """First step and step after the last of `count` equal stretches, each half in the next."""
    bounds = np.rint(np.linspace(0, num_steps, count + 2)).astype(np.int64)
    return np.stack([bounds[:-2], bounds[2:]], axis=1) if count > 1 else np.array([[0, num_steps]])


def simultaneous(
    stretches: Int[np.ndarray, "_ 2"], size: int, rng: np.random.Generator
) -> Simultaneous:
    """Simulate the smallest p-value of a block of `size` entries over overlapping stretches."""
    first, end = stretches[:, 0], stretches[:, 1]
    common = np.minimum(end[:, None], end) - np.maximum(first[:, None], first)
    length = end - first
    overlap = np.maximum(common, 0) / np.sqrt(np.outer(length, length))
    values, vectors = np.linalg.eigh(overlap)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    statistic = np.zeros((DRAWS, len(stretches)))
    for _ in range(size):
        statistic += (rng.standard_normal((DRAWS, len(stretches))) @ root.T) ** 2
    smallest = stats.chi2.sf(statistic.max(axis=1), size)
    return Simultaneous(np.sort(smallest), len(stretches))


def edges_over_time(
    table: StateTable, found: LatentFit, config: RunConfig, rng: np.random.Generator
) -> pd.DataFrame:
    """Strength of every edge in every stretch, with its band, p-value and decision.

    Rows are empty where a stretch does not allow the estimate. `found` is of the whole record.

    Raises:
        InferenceError: no stretch does, or all are too short, with the reason and a remedy.
    """
    source = table.source
    stretches = time_stretches(source.num_steps, config.time_windows)
    needed = STEPS_PER_STATE * found.fit.transition.shape[1]
    length = int((stretches[:, 1] - stretches[:, 0]).min())
    if length < needed:
        raise InferenceError(
            f"stretches of {length} steps are too short for {source.total_dim} states and "
            f"{found.fit.lags} lags, {needed} are needed; "
            + _remedy(2 * source.num_steps // needed - 1, source.num_steps, needed)
        )
    fits, refusal = [], None
    for first, end in stretches.tolist():
        try:
            fits.append(refit_blocks(found, table.stretch(first, end), config))
        except InferenceError as error:
            fits.append(None)
            refusal = error
    if refusal is not None and not any(fits):
        raise InferenceError(f"no stretch of {length} steps can be tested: {refusal}")
    size = found.fit.lags * np.outer(source.dims, source.dims)
    laws = {int(k): simultaneous(stretches, int(k), rng) for k in np.unique(size)}
    level = np.vectorize(lambda k: laws[int(k)].level(1 - config.confidence))(size)
    parts = [
        _rows(source, first, end, fit, 1 - level)
        for (first, end), fit in zip(stretches.tolist(), fits, strict=True)
    ]
    whole = pd.concat(parts, ignore_index=True)
    across = ~np.eye(len(size), dtype=np.bool_)
    pointwise = whole["p_value"].to_numpy().reshape(len(stretches), -1)
    p = np.stack(
        [laws[int(k)].p_values(own) for k, own in zip(size[across], pointwise.T, strict=True)],
        axis=1,
    )
    return _decided(whole.assign(p_value=p.reshape(-1)), len(stretches), config)


def _remedy(most: int, num_steps: int, needed: int) -> str:
    """What to do where stretches are too short and at most so many are possible."""
    if most > 1:
        return f"use time_windows = {most} or fewer"
    return (
        f"two stretches take {-(-3 * needed // 2)} steps and the record has {num_steps}: leave "
        "time_windows out, or use fewer states (state_dim) or lags"
    )


def _rows(
    source: StateSource,
    first: int,
    end: int,
    fit: tuple[Estimate, BlockCovariance] | None,
    confidence: Float[np.ndarray, "effect cause"],
) -> pd.DataFrame:
    """All pairs in one stretch, with pointwise p-values; numbers are NaN where it has no fit."""
    names, across = np.array(source.names, dtype=object), ~np.eye(len(source.dims), dtype=np.bool_)
    strength, low, high, p_value = np.full((4, len(names), len(names)), np.nan)
    if fit is not None:
        estimated, covariance = fit
        blocks = padded_blocks(estimated.transition, source.dims)[0].reshape(*across.shape, -1)
        critical = covariance.critical_values(confidence)
        low, high = strength_intervals(blocks, covariance.cov, critical)
        strength = np.linalg.norm(blocks, axis=-1)
        p_value = wald_tests(estimated.transition, covariance).p_value
    effect, cause = np.nonzero(across)
    return pd.DataFrame(
        {
            "cause": names[cause],
            "effect": names[effect],
            "start": time_text(source, first),
            "end": time_text(source, end - 1),
            "strength": strength[across],
            "ci_low": low[across],
            "ci_high": high[across],
            "p_value": p_value[across],
        }
    )


def _decided(table: pd.DataFrame, count: int, config: RunConfig) -> pd.DataFrame:
    """Fill in adjusted p-values and decisions; see the module."""
    wanted = is_wanted(table, config.couplings)
    table.loc[~wanted, ["ci_low", "ci_high", "p_value"]] = np.nan
    p = table["p_value"].to_numpy(dtype=np.float64).reshape(count, -1)
    smallest = np.where(np.isnan(p), np.inf, p).min(axis=0)
    smallest[~np.isfinite(smallest)] = np.nan
    counted = wanted.reshape(count, -1)[0]
    m = max(int(counted.sum()), 1)
    chosen = int((adjust(smallest[counted], config.correction) <= config.alpha).sum())
    factor = {"none": 1.0, "holm": m, "bh": m / max(chosen, 1)}.get(config.correction)
    if factor is None:  # by
        factor = m * (1 / np.arange(1, m + 1)).sum() / max(chosen, 1)
    q = np.minimum(factor * p.reshape(-1), 1.0)
    is_edge = pd.array(q <= config.alpha, dtype="boolean")
    is_edge[np.isnan(q)] = pd.NA
    return table.assign(q_value=q, is_edge=is_edge).reindex(columns=list(COLUMNS))
