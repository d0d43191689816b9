r"""A Gaussian process as transition, around the linear fit.

Every state has a process of its own, \(f_i \sim \mathcal{GP}((Ah + b)_i, k_i)\), with a squared
exponential kernel that has a length for every direction. Given the residuals r of the linear fit

$$\mu_i(h) = k_i(h)^\top \alpha, \qquad \sigma_i^2(h) = k_i(h, h) - k_i(h)^\top B\, k_i(h)$$

(the paper's appendix, where \(\alpha = K^{-1}r\) and \(B = K^{-1}\) with the noise inside K).

Rule: up to `EXACT_PAIRS` pairs all of them are used as they are. Beyond, at most `MOST_INDUCING`
inducing points Z stand for all n pairs (Titsias 2009): with \(S = s^2 K_{ZZ} + K_{Zn}K_{nZ}\) and
noise variance s², \(\alpha = S^{-1}K_{Zn}r\), \(B = K_{ZZ}^{-1} - s^2 S^{-1}\). Z are the pivots of
a partial Cholesky decomposition of K: each time the state that the others explain least. Kernel and
noise maximise Titsias' bound of the likelihood of at most `BOUND_PAIRS` pairs, spread evenly over
the record; a state whose residuals are as likely as white noise (Akaike's criterion) stays linear.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from fedgranger.client.transition_models import (
    LinearTransition,
    TransitionPairs,
    fit_linear,
    linear_residuals,
    need_library,
    usual_sizes,
)
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.linalg.psd import symmetrise

EXACT_PAIRS = 500
MOST_INDUCING = 150
CANDIDATES = 5000
"""Pairs, spread evenly, among which inducing points are chosen."""
EXPLAINED = 1e-6
"""No further inducing point once this share of the prior variance is left at every candidate."""
SHORTEST, LONGEST = 0.3, 30.0
"""Bounds of the kernel's lengths, in standard deviations of the states."""
BOUND_PAIRS = 3000
"""Pairs, spread evenly, whose likelihood chooses kernel and noise."""
BOUND_POINTS = 60
"""Inducing points for that likelihood."""
BOUND_JITTER = 1e-6
JITTER = 1e-9
"""Added to the inducing points' covariance, as a share of the prior variance."""


class OutputProcess(eqx.Module):
    """Posterior of one state's correction in standardised coordinates: Z, α and B."""

    kernel: Any
    points: Float[Array, "point state_dim"]
    weights: Float[Array, " point"]
    explained: Float[Array, "point point"]

    def moments(self, place: Float[Array, " state_dim"]) -> Float[Array, " 2"]:
        """Mean and variance at a place."""
        k = self.kernel(place[None], self.points)[0]
        variance = self.kernel(place[None])[0] - k @ self.explained @ k
        return jnp.stack([k @ self.weights, jnp.maximum(variance, 0.0)])


class GaussianProcessTransition(eqx.Module):
    """Linear part and a process per state (None: linear is enough); a call gives the mean."""

    linear: LinearTransition
    outputs: tuple[OutputProcess | None, ...]
    centre: Float[Array, " state_dim"]
    scale: Float[Array, " state_dim"]
    residual_scale: Float[Array, " state_dim"]

    def __call__(self, state: Float[Array, " state_dim"]) -> Float[Array, " state_dim"]:
        """Posterior mean of the next state."""
        return self.linear(state) + self.residual_scale * self._moments(state)[:, 0]

    def variances(self, state: Float[Array, " state_dim"]) -> Float[Array, " state_dim"]:
        """Posterior variance of f at a state, coordinate by coordinate; without process noise."""
        return self.residual_scale**2 * self._moments(state)[:, 1]

    def _moments(self, state: Array) -> Float[Array, "state_dim 2"]:
        place, none = (state - self.centre) / self.scale, jnp.zeros(2, state.dtype)
        return jnp.stack([none if one is None else one.moments(place) for one in self.outputs])


class StateDependentCov(eqx.Module):
    r"""\(Q + \mathrm{diag}\,\sigma^2(h)\): process noise and the variance of the posterior."""

    process_cov: Float[Array, "state_dim state_dim"]
    process: GaussianProcessTransition

    def __call__(self, state: Float[Array, " state_dim"]) -> Float[Array, "state_dim state_dim"]:
        """Covariance of the next state given this one."""
        return self.process_cov + jnp.diag(self.process.variances(state))


def fit_gaussian_process(pairs: TransitionPairs) -> GaussianProcessTransition:
    """Fit the linear part, then a process per state to what it leaves.

    Raises:
        ConfigError: tinygp is not installed.
    """
    need_library("tinygp", "a Gaussian process as transition")
    linear = fit_linear(pairs)
    residuals = linear_residuals(pairs, linear)
    centre, scale = pairs.before.mean(axis=0), usual_sizes(pairs.before)
    residual_scale = usual_sizes(residuals)
    places, values = (pairs.before - centre) / scale, residuals / residual_scale
    outputs = tuple(_fit_output(places, column) for column in values.T)
    parts = (jax_array(centre), jax_array(scale), jax_array(residual_scale))
    return GaussianProcessTransition(linear, outputs, *parts)


class _Hyperparameters(NamedTuple):
    """Logarithms of the kernel's standard deviation and lengths, and of the noise's."""

    amplitude: Array
    lengths: Array
    noise: Array


def _kernel(log: _Hyperparameters) -> Any:
    from tinygp import kernels, transforms

    stretched = transforms.Linear(jnp.exp(-log.lengths), kernels.ExpSquared())
    return jnp.exp(2 * log.amplitude) * stretched


def _fit_output(places: np.ndarray, values: np.ndarray) -> OutputProcess | None:
    """Kernel by likelihood on some pairs, posterior from all; None when noise is as likely."""
    log = _most_likely(places, values)
    if log is None:
        return None
    kernel, noise_var = _kernel(log), float(jnp.exp(2 * log.noise))
    if len(places) <= EXACT_PAIRS:
        K = _covariances(kernel, places, places) + noise_var * np.eye(len(places))
        B = symmetrise(np.linalg.inv(K))
        return OutputProcess(kernel, jax_array(places), jax_array(B @ values), jax_array(B))
    candidates = places[_spread_evenly(len(places), CANDIDATES)]
    prior_var = float(jnp.exp(2 * log.amplitude))
    points = candidates[_pivots(kernel, candidates, prior_var, MOST_INDUCING)]
    K_ZZ = _covariances(kernel, points, points) + JITTER * prior_var * np.eye(len(points))
    K_Zn = _covariances(kernel, points, places)
    S_inverse = np.linalg.inv(symmetrise(noise_var * K_ZZ + K_Zn @ K_Zn.T))
    B = symmetrise(np.linalg.inv(K_ZZ) - noise_var * S_inverse)
    weights = S_inverse @ (K_Zn @ values)
    return OutputProcess(kernel, jax_array(points), jax_array(weights), jax_array(B))


def _spread_evenly(total: int, wanted: int) -> np.ndarray:
    """Indices of at most `wanted` of `total` things in order."""
    return np.unique(np.linspace(0, total - 1, min(total, wanted)).round().astype(int))


def _most_likely(places: np.ndarray, values: np.ndarray) -> _Hyperparameters | None:
    """Maximise Titsias' bound of the likelihood; from a curved and from a nearly linear start.

    None when white noise is as likely, the kernel's p + 1 numbers taken into account (AIC).
    """
    p = places.shape[1]
    some = _spread_evenly(len(places), BOUND_PAIRS)
    places, values = places[some], values[some]
    start_kernel = _kernel(_Hyperparameters(jnp.zeros(()), jnp.zeros(p), jnp.zeros(())))
    points = jax_array(places[_pivots(start_kernel, places, 1.0, BOUND_POINTS)])

    def objective(vector: np.ndarray) -> tuple[float, np.ndarray]:
        log = _Hyperparameters(*map(jax_array, (vector[0], vector[1 : 1 + p], vector[1 + p])))
        value, slope = _with_slope(log, points, jax_array(places), jax_array(values))
        return float(value), np.hstack([*slope])

    lengths = (float(np.log(SHORTEST)), float(np.log(LONGEST)))
    bounds = [(-5.0, 3.0), *[lengths] * p, (-4.0, 0.5)]
    starts = [np.array([-0.7, *[np.log(length)] * p, -0.2]) for length in (1.0, 5.0)]
    found = [
        scipy.optimize.minimize(
            objective, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-6}
        )
        for start in starts
    ]
    best = min(found, key=lambda one: one.fun)
    if _noise_only(values) - best.fun <= p + 1:
        return None
    x = jax_array(best.x)
    return _Hyperparameters(x[0], x[1 : 1 + p], x[1 + p])


def _lack_of_likelihood(
    log: _Hyperparameters, points: Array, places: Array, values: Array
) -> Array:
    r"""Minus Titsias' lower bound of the log-likelihood.

    $$\log N(r; 0, C + s^2 I) - \mathrm{tr}(K_{nn} - C) / 2s^2, \quad C = K_{nZ}K_{ZZ}^{-1}K_{Zn}$$
    """
    kernel, n = _kernel(log), len(places)
    prior_var, noise_var = jnp.exp(2 * log.amplitude), jnp.exp(2 * log.noise)
    K_Zn = kernel(points, places)
    K_ZZ = kernel(points, points) + BOUND_JITTER * prior_var * jnp.eye(len(points))
    gram, b = K_Zn @ K_Zn.T / noise_var, K_Zn @ values / noise_var
    L, L_S = jnp.linalg.cholesky(K_ZZ), jnp.linalg.cholesky(K_ZZ + gram)
    log_det = 2 * (jnp.log(jnp.diag(L_S)) - jnp.log(jnp.diag(L))).sum()
    lost = n * prior_var / noise_var - jnp.trace(cho_solve((L, True), gram))
    misfit = values @ values / noise_var - b @ cho_solve((L_S, True), b)
    return 0.5 * (log_det + n * jnp.log(2 * jnp.pi * noise_var) + misfit + lost)


_with_slope = jax.jit(jax.value_and_grad(_lack_of_likelihood))


def _noise_only(values: np.ndarray) -> float:
    """Minus the largest log-likelihood of the values as white noise."""
    return 0.5 * len(values) * float(np.log(2 * np.pi * (values**2).mean()) + 1)


@eqx.filter_jit
def _compiled(kernel: Any, one: Array, other: Array) -> Array:
    return kernel(one, other)


def _covariances(kernel: Any, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The kernel between two lists of places."""
    return np.asarray(_compiled(kernel, jax_array(one), jax_array(other)))


def _pivots(kernel: Any, candidates: np.ndarray, prior_var: float, most: int) -> np.ndarray:
    """Partial Cholesky decomposition: indices of the states that the ones before explain least."""
    left, chosen = np.full(len(candidates), prior_var), []
    rows = np.zeros((0, len(candidates)))
    for _ in range(min(most, len(candidates))):
        pivot = int(left.argmax())
        if left[pivot] <= EXPLAINED * prior_var:
            break
        row = _covariances(kernel, candidates[pivot : pivot + 1], candidates)[0]
        row = (row - rows[:, pivot] @ rows) / np.sqrt(left[pivot])
        rows, left = np.vstack([rows, row]), left - row**2
        chosen.append(pivot)
    return np.array(chosen)
