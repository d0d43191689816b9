r"""The fixed point of the parameters, and their covariance around it in the long run.

At the fixed point \(x^* = \bar K^{-1}\bar b\) the update noise is \(n_t = b_t - K_t x^*\), and
\(x_{t+1} - x^* = (\bar F - \delta K_t)(x_t - x^*) + n_t\). The covariance over data sets
solves \(\Sigma = E[F\Sigma F^\top] + S\), with S the long-run covariance of \(n_t\) as the
recursion filters it. In the eigenbasis of \(\bar F\), eigenvalues λ and
\(c_{ij}(h) = E[n_{i,t} n_{j,t+h}]\),

$$S_{ij} = c_{ij}(0) + \sum_{h \ge 1} k_h\,[\lambda_i^h c_{ij}(h) + \lambda_j^h c_{ji}(h)],\qquad
  \Sigma_{ij} = \frac{S_{ij}}{1 - \lambda_i\lambda_j}$$

Plain Newey-West is \(\lambda^h = 1\); the powers matter for the fast directions. \(k_h\) are the
weights of a flat-top kernel (one up to half the lag, then falling to zero), with a lag chosen from
the data. The gain's own noise adds \(E[\delta K\Sigma\delta K]\), by iterating; that it is
autocorrelated is left out, an error that grows with the step sizes and the memory of the data.
Nothing here depends on the prior: the paper's claim, which its Theorems 7.4 and 7.5 cannot give
(docs/theory/errata.md).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedgranger.errors import UnstableRecursionError
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.linalg.long_run import andrews_bandwidth, long_run_cov, newey_west_lag
from fedgranger.uncertainty.inputs import RowParams, RowWindow
from fedgranger.uncertainty.message_noise import (
    MessageNoise,
    added_gain_noise,
    added_noise_cov,
    with_noisy_causes,
)
from fedgranger.uncertainty.stability import Stability, analyse, check
from fedgranger.uncertainty.update_moments import (
    CovMap,
    UpdateMoments,
    gain_noise,
    round_shares,
    split_parameters,
    update_moments,
)

MIN_ROUNDS = 20
MAX_ITERATIONS = 1000
TOLERANCE = 1e-5


class SteadyState(NamedTuple):
    r"""Fixed point and covariances of one row; rows and columns as in `update_moments`.

    Attributes:
        augmentation: θ*.
        granger: Â*.
        cov: Σ∞, covariance of an iterate long after the start, over data sets.
        trained_cov: covariance of the estimate after the rounds and passes that were made: with
            few time constants per pass it tends to that of the full-batch fixed point.
        noise_cov: S.
        hac_lag: lags in S.
        stability: spectral radii.
        moments: what it was computed from.
    """

    augmentation: Float[np.ndarray, "p d"]
    granger: Float[np.ndarray, "p q"]
    cov: Float[np.ndarray, "n n"]
    trained_cov: Float[np.ndarray, "n n"]
    noise_cov: Float[np.ndarray, "n n"]
    hac_lag: int
    stability: Stability
    moments: UpdateMoments

    def granger_cov(self, *, trained: bool = False) -> Float[np.ndarray, "pq pq"]:
        """Covariance of Â's entries, row by row."""
        split = self.augmentation.size
        return (self.trained_cov if trained else self.cov)[split:, split:]


def solve_steady_state(
    params: RowParams,
    windows: RowWindow,
    *,
    client: str,
    passes: int = 1,
    message_noise: MessageNoise | None = None,
    weights: Float[np.ndarray, " round"] | None = None,
) -> SteadyState:
    """Compute the steady state of one row from its rounds, over which training went `passes` times.

    `windows` (leading axis: rounds) are without noise: the data as they were measured.
    `message_noise` is known noise on what goes up and comes down, new in every round; with several
    passes `trained_cov` would take it as coming back, so it is for one pass. `weights` of the
    rounds make all moments those of one time, on data that drift; without them all count alike.

    Raises:
        UnstableRecursionError: the step sizes do not contract.
    """
    moments = update_moments(params, windows, weights)
    if moments.num_rounds < MIN_ROUNDS:
        raise UnstableRecursionError(
            f"client '{client}': {moments.num_rounds} rounds are too few for the variance "
            f"of the estimate, {MIN_ROUNDS} are needed; use a smaller window or more data"
        )
    gain = gain_noise(params, windows, moments, weights)
    if message_noise is not None:
        gain = _sum(gain, added_gain_noise(params, windows, message_noise, moments))
        moments = with_noisy_causes(moments, params, message_noise)
    stability = analyse(moments, gain)
    check(stability, params, client)
    rates, basis = np.linalg.eigh(moments.gain)
    if rates[0] <= 0:
        raise UnstableRecursionError(
            f"client '{client}': some direction of the parameters is not determined by the data; "
            "use a ridge above 0 or fewer sensors"
        )
    scaled = basis @ ((basis.T @ moments.drift) / rates)
    theta, granger = split_parameters(scaled / moments.scale, moments.shape)
    noise = (scores(params, windows, theta, granger) * moments.scale) @ basis
    if weights is not None:  # √w each, so that products of neighbours have weight w
        active = np.asarray(windows.is_active) > 0
        noise = np.sqrt(round_shares(windows, weights)[active])[:, None] * noise
    lag = _choose_lag(noise, np.asarray(windows.causes[:, 0]))
    eigenvalues = 1 - rates
    S = long_run_cov(noise, lag, rates=eigenvalues, flat_top=True)
    pairs = np.outer(eigenvalues, eigenvalues)
    if np.linalg.eigvalsh(S / (1 - pairs))[0] < 0:  # a flat top need not give a covariance
        S = long_run_cov(noise, lag, rates=eigenvalues)
    if message_noise is not None:
        added = added_noise_cov(params, windows, message_noise, theta, granger)
        S = S + basis.T @ (added * np.outer(moments.scale, moments.scale)) @ basis
    sigma, total = _with_gain_noise(S, eigenvalues, basis, gain, client)
    factor = _passes_factor(eigenvalues, moments.num_rounds, passes)
    unscale = np.outer(moments.scale, moments.scale)

    def back(matrix: np.ndarray) -> np.ndarray:
        return basis @ matrix @ basis.T / unscale

    covs = back(sigma), back(total * factor), back(S)
    return SteadyState(theta, granger, *covs, lag, stability, moments)


def cov_given_data(
    params: RowParams,
    windows: RowWindow,
    state: SteadyState,
    message_noise: MessageNoise,
    *,
    client: str,
) -> Float[np.ndarray, "n n"]:
    r"""Covariance of an iterate over draws of the messages' noise, the data being given.

    It solves \(C = E[FCF^\top] + S_{added} + G_{added}(\Sigma)\) with `state`'s Σ. It is more than
    what the noise adds to Σ, because noise on the causes also makes the data's own part smaller.
    """
    plain = update_moments(params, windows)
    outer = np.outer(plain.scale, plain.scale)
    added = added_noise_cov(params, windows, message_noise, state.augmentation, state.granger)
    source = added_gain_noise(params, windows, message_noise, plain)(state.cov * outer)
    rates, basis = np.linalg.eigh(state.moments.gain)
    S = basis.T @ (source + added * outer) @ basis
    cov, _ = _with_gain_noise(S, 1 - rates, basis, gain_noise(params, windows, plain), client)
    return basis @ cov @ basis.T / outer


def scores(
    params: RowParams,
    windows: RowWindow,
    theta: Float[np.ndarray, "p d"],
    granger: Float[np.ndarray, "p q"],
) -> Float[np.ndarray, "round n"]:
    r"""Update noise \(n = b - Kx\) of every active round at given parameters, (rounds, n).

    θ's part is \(\sum_t w_t e_t y_t^\top\), Â's is \(2\gamma \sum_t w_t r_t g_t^\top\), less ridge.
    """
    found = np.asarray(_scores(params, windows, jax_array(theta), jax_array(granger)))
    return found[np.asarray(windows.is_active) > 0]


@jax.jit
def _scores(
    params: RowParams,
    windows: RowWindow,
    theta: Float[Array, "p d"],
    granger: Float[Array, "p q"],
) -> Float[Array, "round n"]:
    A, CA = params.self_transition, params.predicted_observation
    y, g = windows.measurements, windows.causes
    wp, wo = windows.paired_weights[..., None], windows.observed_weights[..., None]
    phi, rho = y @ theta.T, g @ granger.T
    own = windows.local_targets - phi @ (CA.T @ CA)
    residual = phi @ A.T - rho
    e = 2 * params.local_step_size * wp * own - 2 * params.feedback_step_size * wo * (residual @ A)
    on_theta = jnp.einsum("rti,rtj->rij", e, y)
    on_theta = on_theta - 2 * params.local_step_size * params.augmentation_ridge * theta[None]
    on_granger = 2 * params.server_step_size * jnp.einsum("rti,rtj->rij", wo * residual, g)
    on_granger = on_granger - 2 * params.server_step_size * params.granger_ridge * granger[None]
    rounds = y.shape[0]
    parts = [on_theta.reshape(rounds, -1), on_granger.reshape(rounds, -1)]
    return jnp.concatenate(parts, axis=1)


def _sum(first: CovMap, second: CovMap) -> CovMap:
    return lambda sigma: first(sigma) + second(sigma)


def _choose_lag(noise: Float[np.ndarray, "n k"], causes: Float[np.ndarray, "rounds q"]) -> int:
    """Twice the Bartlett lag of Andrews' AR(1) plug-in, for the longest memory the noise can have.

    The noise is a product of two series; measurement noise hides how long it remembers, the
    causes (filtered states) show it: two of them multiplied have the product of their memories.
    """
    n = len(noise)
    rho = max(_lag_one(noise), _lag_one(causes) ** 2)
    lag = int(np.ceil(2 * andrews_bandwidth(rho, n)))
    return int(np.clip(lag, newey_west_lag(n), max(n // 4, 1)))


def _lag_one(series: np.ndarray) -> float:
    """Largest autocorrelation at lag one."""
    centred = series - series.mean(axis=0)
    variance = (centred**2).mean(axis=0)
    product = (centred[1:] * centred[:-1]).mean(axis=0)
    return float(np.max(np.abs(product) / np.where(variance > 0, variance, np.inf)))


def _with_gain_noise(
    S: np.ndarray, eigenvalues: np.ndarray, basis: np.ndarray, gain: CovMap, client: str
) -> tuple[np.ndarray, np.ndarray]:
    """Iterate Σ = (S + E[δK Σ δK]) / (1 − λ_i λ_j); returns Σ and the sum in the numerator."""
    divisor = 1 - np.outer(eigenvalues, eigenvalues)
    total, sigma = S, S / divisor
    for _ in range(MAX_ITERATIONS):
        total = S + basis.T @ gain(basis @ sigma @ basis.T) @ basis
        new = total / divisor
        change = np.linalg.norm(new - sigma) / max(np.linalg.norm(new), 1e-300)
        sigma = new
        if change < TOLERANCE:
            return 0.5 * (sigma + sigma.T), 0.5 * (total + total.T)
    raise UnstableRecursionError(
        f"client '{client}': the step sizes are too close to diverging for a steady state to be "
        "found; halve all three"
    )


def _passes_factor(eigenvalues: np.ndarray, num_rounds: int, passes: int) -> np.ndarray:
    r"""What multiplies S_ij after whole passes over the same rounds.

    \(\frac{1 - (\lambda_i\lambda_j)^T}{1 - \lambda_i\lambda_j} D_i D_j\) with
    \(D_i = (1 - \lambda_i^{PT}) / (1 - \lambda_i^T)\): the noise of a pass comes back in the next.
    """
    once = eigenvalues**num_rounds
    repeated = (1 - eigenvalues ** (num_rounds * passes)) / (1 - once)
    pair = np.outer(eigenvalues, eigenvalues)
    return (1 - np.outer(once, once)) / (1 - pair) * np.outer(repeated, repeated)
