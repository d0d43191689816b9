"""Choose a client's state model and number of states by an information criterion."""

from __future__ import annotations

import numpy as np

from fedgranger.client.loadings import (
    Loadings,
    factor_is_identified,
    fit_loadings,
    log_likelihood,
)
from fedgranger.client.sensor_moments import MeasurementMoments
from fedgranger.errors import ModelError
from fedgranger.text import counted


def choose_loadings(moments: MeasurementMoments, state_dim: int, method: str) -> Loadings:
    """Fit the method named, or the better of two when it is `auto`.

    The two explain the noise differently: a variance of its own for every sensor (`factor`, needs
    enough sensors), or the same share of every sensor's variance (`ppca` on standardised data).
    Neither depends on the sensors' units, which one variance in raw units would. Factor analysis
    is out when it did not converge or left a sensor without noise. The Bayesian information
    criterion decides.
    """
    if method != "auto":
        return fit_loadings(moments.cov, state_dim, method)
    ppca = fit_loadings(moments.cov, state_dim, "ppca")
    best = _criterion(moments, ppca)
    if (
        factor_is_identified(len(moments.cov), state_dim)
        and _factor_bound(moments, state_dim) < best
    ):
        factor = fit_loadings(moments.cov, state_dim, "factor")
        if not factor.notes and _criterion(moments, factor) < best:
            return factor
    return ppca


def select_state_dim(
    moments: MeasurementMoments, method: str, max_state_dim: int
) -> tuple[int, tuple[str, ...]]:
    """Choose the number of states with the smallest criterion; notes when the limit binds.

    `paper` always has two. `svd` spans the same directions as `ppca` and uses its likelihood.
    """
    if method == "paper":
        return 2, ()
    d = len(moments.cov)
    likelihood_method = "ppca" if method == "svd" else method
    candidates = [
        p
        for p in range(1, min(max_state_dim, max(d - 1, 1)) + 1)
        if method != "factor" or factor_is_identified(d, p)
    ]
    if not candidates:
        raise ModelError(
            f"factor analysis is not identified from {counted(d, 'sensor')}; use state_model='ppca'"
        )
    scores: list[float] = []
    for p in candidates:
        try:
            scores.append(_criterion(moments, choose_loadings(moments, p, likelihood_method)))
        except ModelError:  # more states than the sensors can show
            break
        if scores[-1] == -np.inf:
            break
    if not scores:
        raise ModelError("no number of states could be fitted; use fewer or other sensors")
    best = candidates[int(np.argmin(scores))]
    notes: tuple[str, ...] = ()
    if best == max_state_dim and best < d - 1:
        notes = (
            f"the information criterion chose the largest allowed number of states, {best}; "
            "raise max_state_dim to let it go on",
        )
    return best, notes


def _criterion(moments: MeasurementMoments, loadings: Loadings) -> float:
    """BIC; minus infinity for states that leave no remainder."""
    d, p = loadings.observation_matrix.shape
    free = _num_free(d, p, loadings.method)
    fit = 2 * moments.num_rows * log_likelihood(moments.cov, loadings)
    return float(free * np.log(moments.num_rows) - fit)


def _factor_bound(moments: MeasurementMoments, state_dim: int) -> float:
    """BIC that factor analysis could reach at best, fitting the covariance exactly."""
    d = len(moments.cov)
    sign, log_det = np.linalg.slogdet(moments.cov)
    if sign <= 0:
        return -np.inf
    fit = -moments.num_rows * (d * np.log(2 * np.pi) + log_det + d)
    return float(_num_free(d, state_dim, "factor") * np.log(moments.num_rows) - fit)


def _num_free(num_sensors: int, state_dim: int, method: str) -> float:
    """Free parameters: loadings up to rotation, and the noise variances."""
    loadings = num_sensors * state_dim - state_dim * (state_dim - 1) / 2
    return loadings + (num_sensors if method == "factor" else 1)
