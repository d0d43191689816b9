r"""What kind of record a client has, in a few numbers: seasonal, drifting or bursty.

A test's p-values are off where what a client's own past leaves of its states is not the noise that
the test takes it for. So the numbers are computed on those residuals u (turned and scaled to unit
covariance, `arrivals.whiten`), from the state streams that the server has:

- **seasonal**: the largest share of the residuals' power at one frequency with at least four
  cycles in the record, Fisher's g; \(P(g > x) \approx N (1 - x)^{N-1}\) over N frequencies.
- **drifting**: a random walk cannot be excluded (augmented Dickey-Fuller test of the states,
  p > 0.05), or level or spread (‖u‖²) differ between the first and the second half of the record:
  Student's t on the means of ten blocks in each, which short-lived bursts do not disturb.
- **bursty**: \(3\,E\lVert u\rVert^4 / (p(p+2))\), the kurtosis, 3 for Gaussian noise, is above 6;
  or bursts last: the mean autocorrelation of ‖u‖² (around the mean of each half) over five steps
  is above 0.05 and above what chance gives, \(3.3 / \sqrt{5n}\).

P-values below 0.001 count, Bonferroni over the client's states. Nothing of this changes an edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats

from fedgranger.inference.arrivals import Whitened

__all__ = ["record_traits", "traits_in_words"]

DOUBTFUL = 1e-3
ROOTED = 0.05
FEWEST_CYCLES = 4
BLOCKS_PER_HALF = 10
PEAKED = 6.0
LASTING = 0.05
BURST_LAGS = 5


def record_traits(
    whitened: Whitened,
    names: tuple[str, ...],
    dims: tuple[int, ...],
    unit_root: Mapping[str, float],
) -> dict[str, dict[str, Any]]:
    """Numbers and kinds of every client's record, plain values for the manifest.

    Args:
        whitened: own residuals of all clients.
        names: the clients.
        dims: their states.
        unit_root: p-value per client that its least stationary state is a random walk.
    """
    ends = np.cumsum(dims)
    out = {}
    for m, name in enumerate(names):
        part = whitened.values[:, ends[m] - dims[m] : ends[m]]
        known = whitened.known[:, m]
        if known.sum() < 8 * BLOCKS_PER_HALF:
            out[name] = {"kinds": []}
            continue
        out[name] = _traits(np.asarray(part), known, float(unit_root[name]))
    return out


def traits_in_words(traits: Mapping[str, Any]) -> str:
    """Why a test may be off at this client; empty when its record shows nothing special."""
    kinds, words = traits.get("kinds", []), []
    if "seasonal" in kinds:
        words.append(
            f"seasonal ({100 * traits['peak_share']:.1f} % of what its own past leaves repeats "
            f"every {traits['peak_period']:.4g} steps)"
        )
    if "drifting" in kinds:
        words.append(f"drifting ({', '.join(_drift_words(traits))})")
    if "bursty" in kinds:
        lasts = traits["burst_autocorrelation"]
        words.append(
            f"bursty (kurtosis {traits['kurtosis']:.1f} where even noise has 3, bursts go on with "
            f"correlation {lasts:.2f})"
        )
    return ", ".join(words)


def _drift_words(traits: Mapping[str, Any]) -> list[str]:
    words = []
    if traits["unit_root"] > ROOTED:
        words.append("a random walk cannot be excluded")
    if traits["level_p"] < DOUBTFUL:
        words.append("its level differs between the halves of the record")
    if traits["spread_p"] < DOUBTFUL:
        words.append(f"its spread changes {traits['spread_ratio']:.2f}-fold between the halves")
    return words


def _traits(values: np.ndarray, known: np.ndarray, unit_root: float) -> dict[str, Any]:
    share, period, peak_p = _peak(values)
    u = values[known]
    energy = (u**2).sum(axis=1) / u.shape[1]
    level_p = min(1.0, u.shape[1] * min(_half_p_value(column) for column in u.T))
    spread_p = _half_p_value(energy)
    before, after = (half.mean() for half in np.array_split(energy, 2))
    p = u.shape[1]
    kurtosis = 3 * float((energy**2).mean()) * p / (p + 2)
    lasting = _lasting(energy)
    kinds = []
    if peak_p < DOUBTFUL:
        kinds.append("seasonal")
    if unit_root > ROOTED or min(level_p, spread_p) < DOUBTFUL:
        kinds.append("drifting")
    if kurtosis > PEAKED or lasting > max(LASTING, 3.3 / np.sqrt(BURST_LAGS * len(u))):
        kinds.append("bursty")
    return {
        "kinds": kinds,
        "peak_share": _digits(share),
        "peak_period": _digits(period),
        "peak_p": _digits(peak_p),
        "unit_root": _digits(unit_root),
        "level_p": _digits(level_p),
        "spread_p": _digits(spread_p),
        "spread_ratio": _digits(after / max(before, np.finfo(np.float64).tiny)),
        "kurtosis": _digits(kurtosis),
        "burst_autocorrelation": _digits(lasting),
    }


def _peak(values: np.ndarray) -> tuple[float, float, float]:
    """Largest share of power at one frequency, its period in steps and Fisher's p-value."""
    T, p = values.shape
    power = np.abs(np.fft.rfft(values, axis=0)[1 : (T + 1) // 2]) ** 2
    share = power / np.maximum(power.sum(axis=0), np.finfo(np.float64).tiny)
    share[: FEWEST_CYCLES - 1] = 0.0
    row, column = np.unravel_index(int(share.argmax()), share.shape)
    g, N = float(share[row, column]), len(share)
    p_value = min(1.0, p * N * (1 - min(g, 1.0)) ** (N - 1))
    return g, T / (int(row) + 1), p_value


def _half_p_value(series: np.ndarray) -> float:
    """Student's t between the block means of the first and of the second half."""
    means = np.array([block.mean() for block in np.array_split(series, 2 * BLOCKS_PER_HALF)])
    if np.ptp(means) == 0:
        return 1.0
    found = stats.ttest_ind(means[:BLOCKS_PER_HALF], means[BLOCKS_PER_HALF:], equal_var=False)
    return float(np.asarray(found)[1])


def _lasting(energy: np.ndarray) -> float:
    """Mean autocorrelation over the first lags, around the mean of each half of the record."""
    centred = np.concatenate([half - half.mean() for half in np.array_split(energy, 2)])
    total = max(float(centred @ centred), np.finfo(np.float64).tiny)
    lags = range(1, BURST_LAGS + 1)
    return float(np.mean([centred[k:] @ centred[:-k] / total for k in lags]))


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
