r"""Debiased transition estimate from the clients' least-squares states.

Each client's state has measurement error of known covariance E, white in time and independent
of the other clients' (noise that a client added to its states is part of it here). With x the
lagged states,

$$G_0 = E[xx^\top] - I_L \otimes E, \qquad \hat A = E[s^+ x^\top] G_0^{-1}$$

is consistent for the transition matrix: for every client, whatever coordinates it chose for its
state, and with process noise correlated across clients. It solves a linear equation, so it is
also what one Newton step from FedGC's estimate (or from anything else) gives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedgranger.errors import InferenceError
from fedgranger.inference.state_moments import StateMoments, accumulate
from fedgranger.inference.states import StateSource
from fedgranger.linalg.psd import symmetrise
from fedgranger.linalg.spectral import spectral_radius

COLLINEAR = 1e-8
"""Smallest eigenvalue of the correlation form of G0 that still counts as regular."""


class Estimate(NamedTuple):
    """Estimate of one lag order.

    Attributes:
        transition: Â = [Â¹ … Âᴸ].
        state_cov: G0.
        inverse_cov: G0⁻¹.
        residual_cov: covariance of s⁺ − Â x, measurement error included.
        process_cov: the same without it: the covariance of what drives the states.
        moments: what it was computed from.
        spectral_radius: largest root; below 1 for stationary data.
        condition: condition number of the correlation form of G0.
    """

    transition: Float[np.ndarray, "state lagged"]
    state_cov: Float[np.ndarray, "lagged lagged"]
    inverse_cov: Float[np.ndarray, "lagged lagged"]
    residual_cov: Float[np.ndarray, "state state"]
    process_cov: Float[np.ndarray, "state state"]
    moments: StateMoments
    lags: int
    spectral_radius: float
    condition: float


def estimate(source: StateSource, lags: int = 1) -> Estimate:
    """Estimate Â, or refuse with the reason and a remedy.

    Raises:
        InferenceError: too little data, noise above signal, collinear clients, or a root at or
            outside the unit circle.
    """
    return estimate_from(source, accumulate(source, lags), lags)


def estimate_from(source: StateSource, moments: StateMoments, lags: int) -> Estimate:
    """The same from moments that are known; of the source, only its errors are used.

    Raises:
        InferenceError: as `estimate`.
    """
    _check_counts(source, moments, lags)
    E = np.kron(np.eye(lags), source.error_cov)
    G0 = symmetrise(moments.before_cov - E)
    condition = _check_regular(source, G0, moments.before_cov, lags)
    inverse = symmetrise(np.linalg.inv(G0))
    A = moments.lag_cov @ inverse
    residual = symmetrise(
        moments.after_cov
        - A @ moments.lag_cov.T
        - moments.lag_cov @ A.T
        + A @ moments.before_cov @ A.T
    )
    process = symmetrise(moments.after_cov - source.error_cov - A @ moments.lag_cov.T)
    radius = spectral_radius(companion(A))
    if radius >= 1:
        raise InferenceError(
            f"the estimated dynamics have a root of size {radius:.4f}, so the data are not "
            "stationary; difference them or remove the trend, then fit again"
            + (" (or the noise that was added is too much)" if source.is_noise_added else "")
        )
    return Estimate(A, G0, inverse, residual, process, moments, lags, radius, condition)


def select_lags(source: StateSource, max_lags: int) -> tuple[int, dict[str, float]]:
    """Choose the lag order with the smallest Bayesian information criterion; return all criteria.

    log det of the process noise of each order plus log(n)/n per coefficient; an order whose moments
    are not regular ends the search. Where noise was added, a coefficient that is not needed lowers
    log det by more than its usual 1/n, and counts as much more (`_num_coefficients`).
    """
    scores: list[float] = []
    for lags in range(1, max_lags + 1):
        try:
            fit = estimate(source, lags)
        except InferenceError:
            if lags == 1:
                raise
            break
        sign, log_det = np.linalg.slogdet(fit.process_cov)
        if sign <= 0:
            break
        n = fit.moments.effective_pairs
        size = _num_coefficients(fit) if source.is_noise_added else fit.transition.size
        scores.append(log_det + np.log(n) / n * size)
    lags = int(np.argmin(scores)) + 1 if scores else 1
    return lags, {str(order): float(score) for order, score in enumerate(scores, start=1)}


def _num_coefficients(fit: Estimate) -> float:
    r"""Coefficients that least squares would need to lower log det as much by chance.

    \(\mathrm{tr}(\Sigma_w^{-1}\Sigma_e)\,\mathrm{tr}(G_0^{-1} E[xx^\top])\), with process noise w
    and residuals e; without noise P · L P.
    """
    by_row = np.trace(np.linalg.solve(fit.process_cov, fit.residual_cov))
    return float(by_row * np.trace(fit.inverse_cov @ fit.moments.before_cov))


def companion(transition: Float[np.ndarray, "state lagged"]) -> Float[np.ndarray, "lagged lagged"]:
    """Companion matrix of [A¹ … Aᴸ]."""
    P, width = transition.shape
    if width == P:
        return transition
    return np.vstack([transition, np.eye(width - P, width)])


def _check_counts(source: StateSource, moments: StateMoments, lags: int) -> None:
    regressors = lags * source.total_dim
    if moments.effective_pairs <= 2 * regressors:
        raise InferenceError(
            f"{moments.effective_pairs:.0f} usable steps for {regressors} states and lags; more "
            f"than {2 * regressors} are needed, so give more data, fewer states or fewer lags"
        )
    weight = np.concatenate([moments.lag_weight, moments.before_weight])
    smallest = np.unravel_index(int(np.argmin(weight)), weight.shape)
    num_common = weight[smallest] / moments.total_weight * moments.effective_pairs
    if num_common <= 2 * regressors:
        effect, cause = (source.names[k % len(source.names)] for k in smallest)
        if cause == effect:
            raise InferenceError(
                f"client '{cause}' has too few samples that follow each other "
                f"({num_common:.0f} weighted pairs); give data with fewer gaps",
                client=cause,
            )
        raise InferenceError(
            f"clients '{cause}' and '{effect}' have too few common samples "
            f"({num_common:.0f} weighted pairs); give data with more overlap"
        )


def _check_regular(
    source: StateSource,
    G0: Float[np.ndarray, "lagged lagged"],
    before_cov: Float[np.ndarray, "lagged lagged"],
    lags: int,
) -> float:
    """Condition number of G0 in correlation form; refuse when it is not positive definite."""
    owner = source.owner
    P = source.total_dim
    for m, name in enumerate(source.names):
        own = np.flatnonzero(owner == m)
        at_lags = own + P * np.arange(lags)[:, None]
        total = before_cov[at_lags, at_lags]
        scale = np.sqrt(np.where(total > 0, total, 1.0))  # units of the states do not matter
        blocks = G0[at_lags[:, :, None], at_lags[:, None, :]]
        values = np.linalg.eigvalsh(blocks / (scale[:, :, None] * scale[:, None, :]))
        if values.min() <= COLLINEAR:
            weak = int((values <= COLLINEAR).sum(axis=1).max())
            is_added = bool(source.added_covs) and source.added_covs[m].any()
            kind, remedy = "measurement noise is", "or better sensors"
            if is_added:
                kind, remedy = "measurement and added noise are", "or less added noise"
            raise InferenceError(
                f"client '{name}': {kind} as large as the signal in {weak} of "
                f"{len(own)} states; use fewer states for it {remedy}",
                client=name,
            )
    scale = np.sqrt(np.diag(G0))
    correlation = G0 / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(correlation)
    if values[0] <= COLLINEAR * values[-1]:
        share = np.abs(vectors[:, 0]) ** 2
        by_client = [share[np.tile(owner, lags) == m].sum() for m in range(len(source.names))]
        order = np.argsort(by_client)[::-1][:2]
        if lags > 1 and by_client[order[0]] > 0.95:
            raise InferenceError(
                f"client '{source.names[order[0]]}': its states at {lags} lags are linearly "
                "dependent once measurement noise is taken out; use fewer lags"
            )
        first, second = (source.names[k] for k in order)
        raise InferenceError(
            f"the states of clients '{first}' and '{second}' are linearly dependent (or noise "
            "exceeds their difference); merge the two, use fewer states, or test the "
            "states as they are (noise_correction = false)"
        )
    return float(values[-1] / values[0]) if P else 1.0
