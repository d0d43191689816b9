"""Checks a statistician asks for before trusting the tests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from fedgranger.inference.estimate import Estimate
from fedgranger.inference.states import PairChunk, StateSource, lagged_pairs
from fedgranger.linalg.dickey_fuller import dickey_fuller_p_value
from fedgranger.linalg.unbroken_steps import rows_at

PORTMANTEAU_LAGS = 10
STATIONARITY_STEPS = 20_000
UNIT_ROOT_LAGS = 8
NEAR_UNIT_ROOT_STEPS = 50
ILL_CONDITIONED = 1e4
HARDLY_COUNTS = 0.1
"""Residuals need not be white at time steps of a smaller weight."""
DOUBTFUL = 0.01


class Diagnostics(NamedTuple):
    """Facts on the fit, and sentences on those that give reason to doubt.

    Attributes:
        portmanteau: p-value per client that its residuals are uncorrelated beyond the lags that
            measurement noise explains (Bonferroni over its states).
        unit_root: p-value per client of the augmented Dickey-Fuller test on its least stationary
            state, over the last 20 000 steps; small means stationary.
        effective_pairs: (Σw)²/Σw² of the weights.
        effective_samples: per client, the equivalent number of independent samples of its slowest
            state, n (1 − ρ)/(1 + ρ) with ρ the state's autocorrelation at lag one, noise taken out.
        warnings: sentences on what is doubtful.
    """

    portmanteau: dict[str, float]
    unit_root: dict[str, float]
    effective_pairs: float
    effective_samples: dict[str, float]
    warnings: tuple[str, ...]


def diagnose(source: StateSource, fit: Estimate) -> Diagnostics:
    """Run all checks; reads the source twice."""
    portmanteau = _portmanteau(source, fit)
    unit_root = unit_roots(source)
    effective = fit.moments.effective_pairs
    notes = []
    if fit.spectral_radius > 0.5 and effective * (1 - fit.spectral_radius) < NEAR_UNIT_ROOT_STEPS:
        notes.append(
            f"the largest root is {fit.spectral_radius:.3f}, so {effective:.0f} steps hold only "
            f"{effective * (1 - fit.spectral_radius):.0f} time constants: true nulls may be "
            "rejected somewhat more often than stated"
        )
    if fit.condition > ILL_CONDITIONED:
        notes.append(
            f"the clients' states are nearly collinear (condition number {fit.condition:.2g}): "
            "single edges are hard to separate"
        )
    doubtful = [name for name, p in portmanteau.items() if p < DOUBTFUL / len(portmanteau)]
    if doubtful:
        notes.append(
            f"the residuals of {', '.join(doubtful)} are autocorrelated beyond what the model "
            "allows: try more lags (lags='auto') or hac='newey-west'"
        )
    rooted = [name for name, p in unit_root.items() if p > 0.05]
    if rooted:
        notes.append(
            f"a unit root cannot be excluded for {', '.join(rooted)}: consider differencing"
        )
    P = source.total_dim
    rho = np.diag(fit.moments.lag_cov[:, :P]) / np.diag(fit.state_cov)[:P]
    equivalent = effective * (1 - np.clip(rho, 0.0, 1.0)) / (1 + np.clip(rho, 0.0, 1.0))
    samples = {
        name: float(equivalent[source.owner == m].min()) for m, name in enumerate(source.names)
    }
    return Diagnostics(portmanteau, unit_root, float(effective), samples, tuple(notes))


def _portmanteau(source: StateSource, fit: Estimate) -> dict[str, float]:
    """Autocorrelation of residuals at the lags after L, where the model has none.

    Residuals are a moving average of order L (measurement noise), so Bartlett's variance
    1 + 2 Σ ρ² stands in for the usual 1.
    """
    lags, P = fit.lags, source.total_dim
    horizon = lags + PORTMANTEAU_LAGS
    products, counts = np.zeros((horizon + 1, P)), np.zeros((horizon + 1, P))
    # time is the last axis: few coordinates then make long sums
    residual, ok = np.zeros((P, 0)), np.zeros((P, 0), dtype=np.bool_)
    step = segment = np.zeros(0, dtype=np.int64)
    for whole in lagged_pairs(source, lags, fit.moments.mean):
        num_tail = len(step)
        used = np.flatnonzero(source.weights(whole.step) > HARDLY_COUNTS)
        pairs = PairChunk(*(rows_at(part, used) for part in whole))
        new, new_ok = residuals(source, pairs, fit.transition)
        residual, ok = np.hstack([residual, new.T]), np.hstack([ok, new_ok.T])
        step, segment = np.append(step, pairs.step), np.append(segment, pairs.segment)
        for k in range(horizon + 1):
            now = slice(max(k, num_tail), None)
            then = slice(now.start - k, max(0, len(step) - k))
            follows = (step[now] - step[then] == k) & (segment[now] == segment[then])
            earlier = residual[:, then] if follows.all() else residual[:, then] * follows
            products[k] += np.einsum("it,it->i", residual[:, now], earlier)
            counts[k] += (ok[:, now] & ok[:, then] & follows).sum(axis=1)
        keep = slice(max(0, len(step) - horizon), None)
        residual, ok, step, segment = residual[:, keep], ok[:, keep], step[keep], segment[keep]
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = (products[1:] / counts[1:]) / (products[0] / counts[0])
    rho = np.where(counts[1:] > 0, rho, 0.0)  # too short for this lag
    inflation = 1 + 2 * (rho[:lags] ** 2).sum(axis=0)
    Q = (counts[1 + lags :] * rho[lags:] ** 2).sum(axis=0) / inflation
    p = stats.chi2.sf(Q, PORTMANTEAU_LAGS)
    return {
        name: float(min(1.0, dim * np.nanmin(p[source.owner == m])))
        for m, (name, dim) in enumerate(zip(source.names, source.dims, strict=True))
    }


def residuals(
    source: StateSource, pairs: PairChunk, transition: Float[np.ndarray, "state lagged"]
) -> tuple[Float[np.ndarray, "pair state"], Bool[np.ndarray, "pair state"]]:
    """s⁺ − Â x, and where it is known: the effect is observed and x is complete; else 0."""
    complete = np.all(pairs.before_observed, axis=1)
    ok = pairs.after_observed[:, source.owner] & complete[:, None]
    return np.where(ok, pairs.after - pairs.before @ transition.T, 0.0), ok


def unit_roots(source: StateSource) -> dict[str, float]:
    """P-value per client of the augmented Dickey-Fuller test on its least stationary state."""
    recent = np.zeros((0, source.total_dim))
    for chunk in source.chunks():
        states = np.where(chunk.observed[:, source.owner], chunk.states, np.nan)
        recent = np.concatenate([recent, states])[-STATIONARITY_STEPS:]
    p = np.array([unit_root_p_value(column[~np.isnan(column)]) for column in recent.T])
    return {name: float(p[source.owner == m].max()) for m, name in enumerate(source.names)}


def unit_root_p_value(series: Float[np.ndarray, " time"]) -> float:
    """Augmented Dickey-Fuller test with a constant and a fixed number of lags.

    The regression is solved through its normal equations, which is many times faster than
    statsmodels' `adfuller` on long series. Where it has no solution (hardly any row, or one value
    throughout) nothing speaks against a unit root: 1.
    """
    lag = min(UNIT_ROOT_LAGS, len(series) // 4)
    rest = len(series) - 2 * lag - 3
    if rest <= 0:
        return 1.0
    change = np.diff(series)
    target = change[lag:]
    columns = [series[lag:-1], *(change[lag - k : len(change) - k] for k in range(1, lag + 1))]
    x = np.stack(columns)
    x, target = x - x.mean(axis=1, keepdims=True), target - target.mean()
    gram = x @ x.T
    scale = np.sqrt(np.diag(gram))
    if scale.min() == 0 or np.linalg.cond(gram / np.outer(scale, scale)) > 1 / np.finfo(float).eps:
        return 1.0
    coefficients = np.linalg.solve(gram, x @ target)
    residual = target - coefficients @ x
    variance = residual @ residual / rest
    statistic = coefficients[0] / np.sqrt(variance * np.linalg.inv(gram)[0, 0])
    return dickey_fuller_p_value(float(statistic))
