r"""R² gained: how much better the effect is predicted one step ahead with the cause's past.

With \(\Sigma_m\) the covariance of what all pasts together leave unpredicted of client m's states,
\(B\) the coefficients of client n's L past states in m's equation and \(G\) the covariance of all
clients' past states, leaving n's past out adds

$$D = B\, \big([G^{-1}]_{nn}\big)^{-1} B^\top, \qquad
  R^2_{\text{gained}} = 1 - \frac{\operatorname{tr} W \Sigma_m}{\operatorname{tr} W (\Sigma_m + D)}
  = \frac{\operatorname{tr} W D}{\operatorname{tr} W (\Sigma_m + D)}$$

the share that n's past takes off the error variance of a prediction from all other pasts (m's own
included); of a regression it is the partial R². W is the inverse covariance of m's states, so that
no unit counts more than another. For the latent test all of it is of true states: measurement
noise is taken out of G and \(\Sigma_m\).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from fedgranger.inference.state_moments import StateMoments, accumulate
from fedgranger.inference.states import StateSource, complete_rows
from fedgranger.linalg.psd import is_positive_definite, symmetrise


def past_cov(
    source: StateSource, lags: int, known: StateMoments | None = None, *, with_errors: bool
) -> Float[np.ndarray, "lagged lagged"] | None:
    """G over all pairs, or over complete time steps where those do not fit together; None: neither.

    `known` are the moments over all pairs, where they have been made; `with_errors` takes
    measurement noise out.
    """
    E = source.error_cov if with_errors else np.zeros_like(source.error_cov)
    for moments in _moments(source, lags, known):
        G = symmetrise(moments.before_cov - np.kron(np.eye(lags), E))
        if np.isfinite(G).all() and is_positive_definite(G):
            return G
    return None


def _moments(source: StateSource, lags: int, known: StateMoments | None) -> Iterator[StateMoments]:
    """Over all pairs, then over complete time steps, each when it is asked for."""
    yield accumulate(source, lags) if known is None else known
    yield accumulate(complete_rows(source), lags)


def prediction_gains(
    transition: Float[np.ndarray, "state lagged"],
    lagged_cov: Float[np.ndarray, "lagged lagged"],
    error_covs: Sequence[np.ndarray],
    state_covs: Sequence[np.ndarray],
) -> Float[np.ndarray, "effect cause"]:
    """R² gained of all pairs of clients; `error_covs` are Σ_m."""
    P, dims = len(transition), [len(cov) for cov in error_covs]
    owner = np.repeat(np.arange(len(dims)), dims)
    lagged_owner, inverse = np.tile(owner, transition.shape[1] // P), np.linalg.inv(lagged_cov)
    out = np.zeros((len(dims), len(dims)))
    for n in range(len(dims)):
        past = np.flatnonzero(lagged_owner == n)
        alone = np.linalg.inv(inverse[np.ix_(past, past)])
        for m, (left, size) in enumerate(zip(error_covs, state_covs, strict=True)):
            B, W = transition[np.ix_(owner == m, lagged_owner == n)], np.linalg.pinv(size)
            added = float(np.trace(W @ B @ alone @ B.T))
            out[m, n] = added / (float(np.trace(W @ left)) + added)
    return out
