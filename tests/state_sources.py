"""Vector autoregressions and state sources for the tests of `inference`."""

import numpy as np
import scipy.linalg

from fedgranger.inference.states import StateChunk, StateSource


def random_transition(rng, dim, lags=1, radius=0.8):
    """[A¹ … Aᴸ] whose largest root has exactly that size."""
    A = rng.normal(size=(dim, lags * dim))
    companion = np.vstack([A, np.eye((lags - 1) * dim, lags * dim)])
    shrink = radius / np.abs(np.linalg.eigvals(companion)).max()
    return A * np.repeat(shrink ** np.arange(1, lags + 1), dim)  # scales every root


def simulate_states(rng, transition, num_steps, noise=None, burn_in=200):
    """Run the autoregression from zero and drop the start; standard Gaussian noise by default."""
    P, width = transition.shape
    lags, total = width // P, num_steps + burn_in
    noise = rng.normal(size=(total, P)) if noise is None else noise(rng, (total, P))
    h = np.zeros((total, P))
    for t in range(lags, total):
        h[t] = transition @ h[t - lags : t][::-1].reshape(-1) + noise[t]
    return h[burn_in:]


def random_covs(rng, dims, scale=1.0):
    """One positive definite matrix per client."""
    roots = [rng.normal(size=(dim, dim)) for dim in dims]
    return tuple(scale * (F @ F.T / len(F) + 0.5 * np.eye(len(F))) for F in roots)


def add_errors(rng, states, covs):
    """Add white measurement error of these covariances."""
    chol = np.linalg.cholesky(scipy.linalg.block_diag(*covs))
    return states + rng.normal(size=states.shape) @ chol.T


def source_of(
    states,
    dims,
    covs=None,
    *,
    observed=None,
    starts=(0,),
    chunk=10**9,
    names=None,
    own_lags=None,
    weighting="none",
    span=0,
):
    """A source that holds these states; `starts` lists the first step of every segment."""
    T, dims = len(states), tuple(dims)
    observed = np.ones((T, len(dims)), dtype=bool) if observed is None else observed
    states = np.where(np.repeat(observed, dims, axis=1), states, 0.0)
    is_start = np.isin(np.arange(T), starts)
    covs = tuple(np.zeros((dim, dim)) for dim in dims) if covs is None else tuple(covs)

    def chunks():
        for first in range(0, T, chunk):
            rows = slice(first, first + chunk)
            yield StateChunk(states[rows], observed[rows], is_start[rows])

    names = tuple(f"c{m}" for m in range(len(dims))) if names is None else tuple(names)
    weights = {"weighting": weighting, "weighting_span": span}
    own_lags = (1,) * len(dims) if own_lags is None else tuple(own_lags)
    return StateSource(names, dims, covs, chunks, T, own_lags, **weights)
