r"""How much white measurement error the spectrum of a series allows.

White error of covariance E adds E to the spectrum \(S(\omega)\) of a series at every frequency, so
E cannot exceed it. The largest share of E that fits is

$$\hat c = \min_\omega \lambda_{\min}(S(\omega), E)
  = 1 / \max_\omega \lambda_{\max}(E^{1/2\top} S(\omega)^{-1} E^{1/2}), \qquad
  S(\omega)^{-1} = B(\omega)^* V^{-1} B(\omega)$$

with \(B(\omega) = I - \sum_k B_k e^{-i\omega k}\) and V from an autoregression. Since \(\hat c\)
is a minimum over directions and frequencies, it falls below 1 by sampling error alone. It counts
only when it lies below what series of the same length show whose spectrum holds all of E:
\(S_0 = E + (S - E)_+\), periodograms drawn from it with a fixed seed (averages of many ordinates
by Bartlett's decomposition of the Wishart law).

Where white noise of known covariance N was added to the series, S holds E + N. Whether sampling
error explains what is missing is then asked of E + N together; if it does not, what gives way is E
alone: the largest c with \(S(\omega) - N - c E \succeq 0\).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.linalg.psd import is_positive_definite, symmetrise

NUM_FREQUENCIES = 128
MAX_ORDER = 10
SAMPLES_PER_REGRESSOR = 20
FREQUENCIES = (np.arange(NUM_FREQUENCIES) + 0.5) * np.pi / NUM_FREQUENCIES
"""Midpoints of equal cells of (0, π)."""
NUM_DRAWS = 40
FIRST_DRAWS = 10
BOUND_SD = 3.0
"""Standard deviations of log c below its mean at which a share counts."""
CLEAR_SD = 1.0
"""A share less far below the mean of the first draws needs no more of them: the bound they give
has a standard error of 0.8 deviations, so this is 2.6 of them away."""
MOST_PER_CELL = 64
"""Periodogram ordinates per frequency; longer series are judged as if they had no more."""
SMALLEST_SHARE = 1e-6
RIDGE = 1e-12
ROUNDING = 1e-6
"""Shares this close to 1 may come from rounding."""


class LagMoments(NamedTuple):
    """Moments of a series over windows of L + 1 consecutive steps.

    Attributes:
        before: E[x xᵀ], (L P, L P), x = (s_{t-1}, …, s_{t-L}).
        lag: E[s_t xᵀ], (P, L P).
        after: E[s_t s_tᵀ].
        num_windows: how many there are.
    """

    before: np.ndarray
    lag: np.ndarray
    after: np.ndarray
    num_windows: int | float


class NoiseFloor(NamedTuple):
    """What the spectrum allows of E.

    Attributes:
        share: c, the share of E to use: 1 unless the data contradict it.
        largest: ĉ as estimated, 1 at most.
        bound: ĉ (of E + N) above this is within sampling error of 1.
    """

    share: float
    largest: float
    bound: float


def order_for(num_steps: int | float, dim: int) -> int:
    """Lags of the autoregression; 0 when the series is too short for one."""
    affordable = int(num_steps // (SAMPLES_PER_REGRESSOR * dim))
    if affordable < 1:
        return 1 if num_steps > 4 * dim else 0
    return min(MAX_ORDER, affordable)


def noise_floor(
    moments: LagMoments, error_cov: np.ndarray, added_cov: np.ndarray | None = None
) -> NoiseFloor:
    """Estimate the share and decide whether sampling error explains it.

    Free of the coordinates of the series. Moments that are not regular (a series without
    innovation) allow no E. `added_cov` is N, None: nothing was added.

    Example:
        >>> white = LagMoments(np.eye(1), np.zeros((1, 1)), np.eye(1), 500)
        >>> round(noise_floor(white, 4 * np.eye(1)).share, 6)
        0.25
    """
    if not error_cov.any() or not is_positive_definite(moments.after):
        return NoiseFloor(1.0, 1.0, 1.0)
    scaled, whiten = _unit_variance(moments)
    E = total = symmetrise(whiten @ error_cov @ whiten.T)
    N = None if added_cov is None else symmetrise(whiten @ added_cov @ whiten.T)
    if N is not None:
        total = E + N
    of_total = plain_share(scaled, total)
    if of_total >= 1:
        return NoiseFloor(1.0, 1.0, 1.0)
    bound = _bound(scaled, total, of_total)
    largest = max(of_total if N is None else _share_beside(scaled, E, N), SMALLEST_SHARE)
    return NoiseFloor(1.0 if of_total >= bound else largest, largest, bound)


def is_clearly_below(moments: LagMoments, error_cov: np.ndarray) -> bool:
    """Whether the spectrum allows all of E, however the sums behind the moments were rounded."""
    if not is_positive_definite(moments.after):
        return False
    scaled, whiten = _unit_variance(moments)
    return plain_share(scaled, symmetrise(whiten @ error_cov @ whiten.T)) > 1 + ROUNDING


def _unit_variance(moments: LagMoments) -> tuple[LagMoments, np.ndarray]:
    """The moments in units in which the series has variance one, and the matrix that scales it."""
    whiten = np.linalg.inv(np.linalg.cholesky(moments.after))
    P = len(whiten)
    wide = np.kron(np.eye(moments.before.shape[0] // P), whiten)
    before = symmetrise(wide @ moments.before @ wide.T)
    lag = whiten @ moments.lag @ wide.T
    return LagMoments(before, lag, np.eye(P), moments.num_windows), whiten


def plain_share(moments: LagMoments, error_cov: np.ndarray) -> float:
    """Return ĉ of these moments, not limited to 1."""
    values, vectors = np.linalg.eigh(error_cov)
    half = vectors * np.sqrt(np.maximum(values, 0.0))
    B, V = _autoregression(moments)
    shaped = np.linalg.solve(np.linalg.cholesky(V), _transfer(B, len(V)) @ half)
    gram = np.conj(np.swapaxes(shaped, 1, 2)) @ shaped
    return float(1 / max(np.linalg.eigvalsh(gram)[:, -1].max(), np.finfo(float).tiny))


def _share_beside(moments: LagMoments, error_cov: np.ndarray, added_cov: np.ndarray) -> float:
    """Largest c with S − N − c E ⪰ 0, 1 at most; 0 where S − N itself is not positive."""
    values, vectors = np.linalg.eigh(error_cov)
    half = vectors * np.sqrt(np.maximum(values, 0.0))
    rest = _spectrum(moments) - added_cov
    if np.linalg.eigvalsh(rest)[:, 0].min() <= 0:
        return 0.0
    gram = half.T @ np.linalg.solve(rest, np.broadcast_to(half + 0j, rest.shape))
    return float(1 / max(np.linalg.eigvalsh(gram)[:, -1].max(), 1.0))


def _autoregression(moments: LagMoments) -> tuple[np.ndarray, np.ndarray]:
    before = moments.before + RIDGE * np.diag(np.diag(moments.before))
    B = np.linalg.solve(before, moments.lag.T).T
    V = symmetrise(moments.after - B @ moments.lag.T - moments.lag @ B.T + B @ before @ B.T)
    return B, V + RIDGE * np.diag(np.diag(moments.after))


def _transfer(B: np.ndarray, dim: int) -> np.ndarray:
    """B(ω) at all frequencies, (frequency, P, P)."""
    lags = B.shape[1] // dim
    phases = np.exp(-1j * np.outer(FREQUENCIES, np.arange(1, lags + 1)))
    by_lag = B.reshape(dim, lags, dim).swapaxes(0, 1).reshape(lags, -1)
    return np.eye(dim) - (phases @ by_lag).reshape(-1, dim, dim)


def _spectrum(moments: LagMoments) -> np.ndarray:
    """S(ω) at all frequencies, (frequency, P, P)."""
    B, V = _autoregression(moments)
    inverse = np.linalg.inv(_transfer(B, len(V)))
    return inverse @ V @ np.conj(np.swapaxes(inverse, 1, 2))


def _bound(moments: LagMoments, error_cov: np.ndarray, share: float) -> float:
    """Where ĉ of series that do hold all of E ends: mean minus three deviations, in logarithms.

    From the first draws alone where the `share` found is clearly above it. The seed is fixed: the
    same data give the same answer.
    """
    dim = len(moments.after)
    lags = moments.before.shape[0] // dim
    values, vectors = np.linalg.eigh(_spectrum(moments) - error_cov)
    excess = (vectors * np.maximum(values, 0.0)[:, None, :]) @ np.conj(np.swapaxes(vectors, 1, 2))
    values, vectors = np.linalg.eigh(error_cov + excess)
    half = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    ordinates = max(1, min(MOST_PER_CELL, round(moments.num_windows / (2 * NUM_FREQUENCIES))))
    phases = np.exp(1j * np.outer(np.arange(lags + 1), FREQUENCIES)) / NUM_FREQUENCIES
    rng = np.random.default_rng(0)
    logs: list[float] = []
    for _ in range(NUM_DRAWS):
        waves = half @ _wishart_root(dim, ordinates, rng)
        periodogram = waves @ np.conj(np.swapaxes(waves, 1, 2))
        autocov = (phases @ periodogram.reshape(NUM_FREQUENCIES, -1)).real.reshape(-1, dim, dim)
        logs.append(np.log(plain_share(_toeplitz(autocov), error_cov)))
        if len(logs) == FIRST_DRAWS and np.log(share) > np.mean(logs) - CLEAR_SD * np.std(logs):
            break
    return float(np.exp(np.mean(logs) - BOUND_SD * np.std(logs, ddof=1)))


def _wishart_root(dim: int, ordinates: int, rng: np.random.Generator) -> np.ndarray:
    """Z with Z Z* the mean of `ordinates` squares of complex normal vectors, at all frequencies."""
    width = min(dim, ordinates)
    shape = (2, NUM_FREQUENCIES, dim, width)
    z = rng.standard_normal(shape) * np.sqrt(0.5)
    root = z[0] + 1j * z[1]
    if ordinates > dim:  # Bartlett: triangular, squares of the diagonal are gamma distributed
        root = np.tril(root, -1)
        squares = rng.standard_gamma(ordinates - np.arange(dim), (NUM_FREQUENCIES, dim))
        root[:, np.arange(dim), np.arange(dim)] = np.sqrt(squares)
    return root / np.sqrt(ordinates)


def _toeplitz(autocov: np.ndarray) -> LagMoments:
    """Moments with these autocovariances E[s_{t+k} s_tᵀ], k = 0 … L."""
    lags = len(autocov) - 1
    blocks = [
        [autocov[i - j].T if i >= j else autocov[j - i] for j in range(lags)] for i in range(lags)
    ]
    return LagMoments(np.block(blocks), np.concatenate(autocov[1:], axis=1), autocov[0], np.inf)
