r"""Where the parameters settle and how far they spread there.

At the fixed point \(x^* = \bar K^{-1}\bar b\) the update noise is \(n_t = b_t - K_t x^*\), and
\(x_{t+1} - x^* = (\bar F - \delta K_t)(x_t - x^*) + n_t\). The covariance over data sets
solves \(\Sigma = E[F\Sigma F^\top] + S\), with S the long-run covariance of \(n_t\) as the
recursion filters it. In the eigenbasis of \(\bar F\), eigenvalues λ and
\(c_{ij}(h) = E[n_{i,t} n_{j,t+h}]\),

$$S_{ij} = c_{ij}(0) + \sum_{h \ge 1} k_h\,[\lambda_i^h c_{ij}(h) + \lambda_j^h c_{ji}(h)],\qquad
  \Sigma_{ij} = \frac{S_{ij}}{1 - \lambda_i\lambda_j}$$

Plain Newey-West is \(\lambda^h = 1\); the powers matter for the fast directions. \(k_h\) are the
weights of a flat-top kernel (one up to half the lag, then falling to zero), with a lag chosen from
the data. The gain's own noise adds \(E[\delta K\Sigma\delta K]\), by iterating; that it remembers
is left out, an error that grows with the step sizes and the memory of the data. Nothing here
depends on the prior: the paper's claim, which its Theorems 7.4 and 7.5 cannot give (`printed`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.errors import UnstableRecursionError
from fedgranger.linalg.long_run import andrews_bandwidth, long_run_cov, newey_west_lag
from fedgranger.uncertainty.inputs import RowParams, RowWindow
from fedgranger.uncertainty.mean_square import Map, gain_noise
from fedgranger.uncertainty.stability import Stability, analyse, check
from fedgranger.uncertainty.statistics import RowStatistics, collect, scores, unflatten

__all__ = ["SteadyState", "settle"]

MIN_ROUNDS = 20
MAX_ITERATIONS = 1000
TOLERANCE = 1e-5


class SteadyState(NamedTuple):
    r"""Fixed point and covariances of one row; rows and columns as in `statistics`.

    Attributes:
        augmentation: θ*.
        granger: Â*.
        cov: Σ∞, covariance of an iterate long after the start, over data sets.
        trained_cov: covariance of the estimate after the rounds and passes that were made: with
            few time constants per pass it tends to that of the full-batch fixed point.
        noise_cov: S.
        hac_lag: lags in S.
        stability: spectral radii.
        averages: what it was computed from.
    """

    augmentation: np.ndarray
    granger: np.ndarray
    cov: np.ndarray
    trained_cov: np.ndarray
    noise_cov: np.ndarray
    hac_lag: int
    stability: Stability
    averages: RowStatistics

    def granger_cov(self, *, trained: bool = False) -> np.ndarray:
        """Covariance of Â's entries, row by row."""
        split = self.augmentation.size
        return (self.trained_cov if trained else self.cov)[split:, split:]

    def granger_augmentation_cov(self) -> np.ndarray:
        """Ψ∞ = Cov(Â, θ)."""
        split = self.augmentation.size
        return self.cov[split:, :split]

    def state_cov(self) -> np.ndarray:
        """Σ_h∞ = Var(θ y) for a new measurement, given it: E[(yᵀ ⊗ I) Σ_θ (y ⊗ I)]."""
        p, d, _ = self.averages.shape
        theta_cov = self.cov[: p * d, : p * d].reshape(p, d, p, d)
        return np.einsum("ijkl,jl->ik", theta_cov, self.averages.measurement_moment)

    def granger_state_cov(self) -> np.ndarray:
        """Γ∞ = Cov(Â, θ y) at the mean measurement; zero for centred data."""
        p, d, q = self.averages.shape
        between = self.granger_augmentation_cov().reshape(p, q, p, d)
        return np.einsum("klij,j->kli", between, self.averages.measurement_mean)


def settle(
    params: RowParams,
    windows: RowWindow,
    *,
    client: str,
    passes: int = 1,
    at: tuple[np.ndarray, np.ndarray] | None = None,
) -> SteadyState:
    """Compute the steady state of one row from its rounds.

    Args:
        params: constants of the row.
        windows: its rounds (leading axis), without noise: the data as they were measured.
        client: its name, for messages.
        passes: how often training went over these rounds.
        at: parameters at which the update noise is taken; default the fixed point.

    Raises:
        UnstableRecursionError: the step sizes do not contract.
    """
    averages = collect(params, windows)
    if averages.num_rounds < MIN_ROUNDS:
        raise UnstableRecursionError(
            f"client '{client}': {averages.num_rounds} rounds are too few to tell how far the "
            f"estimate spreads, {MIN_ROUNDS} are needed; use a smaller window or more data"
        )
    gain = gain_noise(params, windows, averages)
    stability = analyse(averages, gain)
    check(stability, params, client)
    rates, basis = np.linalg.eigh(averages.gain)
    if rates[0] <= 0:
        raise UnstableRecursionError(
            f"client '{client}': some direction of the parameters is not determined by the data; "
            "use a ridge above 0 or fewer sensors"
        )
    scaled = basis @ ((basis.T @ averages.drift) / rates)
    theta, granger = unflatten(scaled / averages.scale, averages.shape)
    noise = scores(params, windows, *((theta, granger) if at is None else at))
    turned = (noise * averages.scale) @ basis
    lag = _choose_lag(turned, np.asarray(windows.causes[:, 0]))
    eigenvalues = 1 - rates
    S = long_run_cov(turned, lag, rates=eigenvalues, flat_top=True)
    pairs = np.outer(eigenvalues, eigenvalues)
    if np.linalg.eigvalsh(S / (1 - pairs))[0] < 0:  # a flat top need not give a covariance
        S = long_run_cov(turned, lag, rates=eigenvalues)
    sigma, total = _with_gain_noise(S, eigenvalues, basis, gain, client)
    factor = _passes_factor(eigenvalues, averages.num_rounds, passes)
    unscale = np.outer(averages.scale, averages.scale)

    def back(matrix: np.ndarray) -> np.ndarray:
        return basis @ matrix @ basis.T / unscale

    return SteadyState(
        theta,
        granger,
        back(sigma),
        back(total * factor),
        back(S),
        lag,
        stability,
        averages,
    )


def _choose_lag(turned: np.ndarray, causes: np.ndarray) -> int:
    """Twice the Bartlett lag of Andrews' AR(1) plug-in, for the longest memory the noise can have.

    The noise is a product of two series; measurement noise hides how long it remembers, the
    causes (filtered states) show it: two of them multiplied have the product of their memories.
    """
    n = len(turned)
    rho = max(_lag_one(turned), _lag_one(causes) ** 2)
    lag = int(np.ceil(2 * andrews_bandwidth(rho, n)))
    return int(np.clip(lag, newey_west_lag(n), max(n // 4, 1)))


def _lag_one(series: np.ndarray) -> float:
    """Largest autocorrelation at lag one."""
    centred = series - series.mean(axis=0)
    variance = (centred**2).mean(axis=0)
    product = (centred[1:] * centred[:-1]).mean(axis=0)
    return float(np.max(np.abs(product) / np.where(variance > 0, variance, np.inf)))


def _with_gain_noise(
    S: np.ndarray, eigenvalues: np.ndarray, basis: np.ndarray, gain: Map, client: str
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
