r"""What kind of record a client has, in a few numbers: seasonal, drifting or bursty.

A test's p-values are off where what a client's own past leaves of its states is not the noise that
the test takes it for. The numbers come from the states that the server has, s, and from what
a client's own past leaves of them, u (rotated and scaled to unit covariance, `whitening`):

- **seasonal**: a line in the spectrum of \(s_t - \varphi s_{t-1}\) (φ the autocorrelation at lag
  one, against the slope of slow series): the power at one frequency with at least six cycles in the
  record over the mean of twenty on either side, two next to it left out, is F(2, 80) where the
  spectrum is smooth. A client's own past may well explain its season; others explain it too, so two
  clients with the same cycle look linked, and copies with shifted clocks do not show it.
- **drifting**: a random walk cannot be excluded (augmented Dickey-Fuller test of the states,
  p > 0.05), or level or variance (‖u‖²) differ between the first and the second half of the record:
  Student's t on the means of ten blocks in each, which short-lived bursts do not disturb.
- **bursty**: \(3\,E\lVert u\rVert^4 / (p(p+2))\), the kurtosis, 3 for Gaussian noise, is above 6;
  or bursts last: the mean autocorrelation of ‖u‖² (around the mean of each half) over five steps
  is above 0.05 and above what chance gives, \(3.3 / \sqrt{5n}\).

P-values below 0.001 count, Bonferroni over the client's states and frequencies. Nothing of this
changes an edge.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import stats

from fedgranger.inference.shifts import StateTable
from fedgranger.inference.states import StateSource
from fedgranger.inference.whitening import Whitened
from fedgranger.linalg.blocks import client_slices
from fedgranger.periods import unsearched_calendar
from fedgranger.tested_facts import Traits

DOUBTFUL = 1e-3
ROOTED = 0.05
FEWEST_CYCLES = 6
SIDE, NEXT = 20, 2
SAME = 0.02
"""Periods that differ by less than this share are the same."""
BLOCKS_PER_HALF = 10
PEAKED = 6.0
LASTING = 0.05
BURST_LAGS = 5


def record_traits(
    table: StateTable, whitened: Whitened, unit_root: Mapping[str, float]
) -> dict[str, Traits]:
    """Numbers and kinds of every client's record, plain values for the manifest.

    `unit_root` is the p-value per client that its least stationary state is a random walk.
    """
    places, out = client_slices(table.source.dims), {}
    for m, (name, own) in enumerate(zip(table.source.names, places, strict=True)):
        known = whitened.known[:, m]
        if known.sum() < 8 * BLOCKS_PER_HALF:
            out[name] = Traits(kinds=[])
            continue
        peak = _line(np.asarray(table.states[:, own]), table.observed[:, m])
        u = np.asarray(whitened.values[known, own])
        out[name] = _traits(peak, u, float(unit_root[name]))
    return out


def unsearched_cycles(source: StateSource) -> list[str]:
    """Day and week, where the record is too short to look for them; none without time stamps."""
    times = source.times
    if times is None or times.dtype.kind != "M" or len(times) < 2:
        return []
    ticks = times.astype("datetime64[ns]").astype(np.int64)
    interval = float(np.median(np.diff(ticks)))
    return list(unsearched_calendar(round((ticks[-1] - ticks[0]) / interval) + 1, interval))


def shared_cycles(traits: Mapping[str, Traits]) -> list[str]:
    """Clients whose records repeat with the same period, or one with a multiple of another's."""
    periods = {
        name: one.peak_period
        for name, one in traits.items()
        if "seasonal" in one.kinds and one.peak_period is not None
    }
    return [
        name
        for name, period in periods.items()
        if any(_is_multiple(period, other) for who, other in periods.items() if who != name)
    ]


def _is_multiple(first: float, second: float) -> bool:
    ratio = max(first, second) / min(first, second)
    return abs(ratio - round(ratio)) <= SAME * round(ratio)


def traits_in_words(traits: Traits | None) -> str:
    """Why a test may be off at this client; empty when its record shows nothing special."""
    if traits is None:
        return ""
    kinds, words = traits.kinds, []
    if "seasonal" in kinds:
        words.append(
            f"seasonal ({100 * (traits.peak_share or 0.0):.2g} % of its changes repeat every "
            f"{traits.peak_period:.3g} steps)"
        )
    if "drifting" in kinds:
        drifts = []
        if (traits.unit_root or 0.0) > ROOTED:
            drifts.append("a random walk cannot be excluded")
        if traits.level_p is not None and traits.level_p < DOUBTFUL:
            drifts.append("its level differs between the halves of the record")
        if traits.spread_p is not None and traits.spread_p < DOUBTFUL:
            ratio = traits.spread_ratio
            drifts.append(f"its variance changes {ratio:.2f}-fold between the halves")
        words.append(f"drifting ({', '.join(drifts)})")
    if "bursty" in kinds:
        lasts = traits.burst_autocorrelation
        words.append(
            f"bursty (kurtosis {traits.kurtosis:.1f} where Gaussian noise has 3, bursts have "
            f"autocorrelation {lasts:.2f})"
        )
    return ", ".join(words)


def _traits(peak: tuple[float, float, float], u: np.ndarray, unit_root: float) -> Traits:
    (share, period, peak_p), p = peak, u.shape[1]
    energy = (u**2).sum(axis=1) / p
    level_p = min(1.0, p * min(_half_p_value(column) for column in u.T))
    spread_p = _half_p_value(energy)
    before, after = (half.mean() for half in np.array_split(energy, 2))
    kurtosis = 3 * float((energy**2).mean()) * p / (p + 2)
    lasting = _lasting(energy)
    kinds = []
    if peak_p < DOUBTFUL:
        kinds.append("seasonal")
    if unit_root > ROOTED or min(level_p, spread_p) < DOUBTFUL:
        kinds.append("drifting")
    if kurtosis > PEAKED or lasting > max(LASTING, 3.3 / np.sqrt(BURST_LAGS * len(u))):
        kinds.append("bursty")
    numbers = {
        "peak_share": share,
        "peak_period": period,
        "peak_p": peak_p,
        "unit_root": unit_root,
        "level_p": level_p,
        "spread_p": spread_p,
        "spread_ratio": after / max(before, np.finfo(np.float64).tiny),
        "kurtosis": kurtosis,
        "burst_autocorrelation": lasting,
    }
    rounded = {name: float(f"{value:.4g}") for name, value in numbers.items()}
    return Traits(kinds=kinds, **rounded)


def _line(states: np.ndarray, known: np.ndarray) -> tuple[float, float, float]:
    """Share of power at the clearest line, its period in steps and its p-value."""
    T, p = states.shape
    centred = np.where(known[:, None], states - states[known].mean(axis=0), 0.0)
    square = np.maximum((centred**2).sum(axis=0), np.finfo(np.float64).tiny)
    slope = (centred[1:] * centred[:-1]).sum(axis=0) / square
    change = centred[1:] - slope * centred[:-1]
    power = np.abs(np.fft.rfft(change, axis=0)[1 : T // 2]) ** 2
    N = len(power)
    if N <= FEWEST_CYCLES + SIDE:
        return 0.0, float(T), 1.0
    sums = np.concatenate([np.zeros((1, p)), np.cumsum(power, axis=0)])
    k = np.arange(N)
    left = sums[np.maximum(k - NEXT, 0)] - sums[np.maximum(k - NEXT - SIDE, 0)]
    right = sums[np.minimum(k + NEXT + 1 + SIDE, N)] - sums[np.minimum(k + NEXT + 1, N)]
    count = np.minimum(np.maximum(k - NEXT, 0), SIDE) + np.minimum(
        np.maximum(N - k - NEXT - 1, 0), SIDE
    )
    around = np.maximum((left + right) / count[:, None], np.finfo(np.float64).tiny)
    p_values = stats.f.sf(power / around, 2, 2 * count[:, None])
    p_values[: FEWEST_CYCLES - 1] = 1.0
    row, column = np.unravel_index(int(p_values.argmin()), p_values.shape)
    share = float(power[row, column] / max(power[:, column].sum(), np.finfo(np.float64).tiny))
    return share, (T - 1) / (int(row) + 1), min(1.0, p * N * float(p_values[row, column]))


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
