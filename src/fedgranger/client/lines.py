r"""Which periods does a client's spectrum show? Thomson's harmonic F test at their harmonics.

A line at frequency f is separated from a background that is smooth around f: with Slepian tapers
\(v_1 \dots v_K\) of n steps, \(U_k = \sum_t v_k(t)\) and
\(y_k = \sum_t v_k(t) x_t e^{-2\pi i f t}\),

$$\mu = \frac{\sum_k U_k y_k}{\sum_k U_k^2}, \qquad
  F = \frac{(K-1)\,|\mu|^2 \sum_k U_k^2}{\sum_k |y_k - \mu U_k|^2} \sim F(2, 2K-2), \qquad
  p = \Big(1 + \frac{F}{K-1}\Big)^{-(K-1)}$$

without a line (D. J. Thomson, Spectrum estimation and harmonic analysis, Proc. IEEE 70, 1982). A
resonance of the dynamics is wider than the band of NW/n and is no line. Every sensor is whitened by
an autoregression of what is left without the period's harmonics, which makes the background flat
and leaves lines as they are. A period's evidence is the better of Fisher's sum over its harmonics
and the strongest of them, times two; all p-values are multiplied by the number of sensors and of
periods that were tried.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import scipy.fft
import scipy.signal
import scipy.special
from scipy.signal.windows import dpss

from fedgranger.client.clock import Clock
from fedgranger.periods import CALENDAR, CALENDAR_REPEATS, SHORTEST_STEPS

HARMONICS = 4
"""Of every period, as far as it has so many below half the sampling rate."""
LEVEL = 1e-3
"""Chance of finding a period in a client that has none, at most: p-values after Bonferroni."""
BANDWIDTH = 6.0
"""NW of the tapers; there are 2 NW - 1. A period that is there a few times only gets less."""
LARGEST_BAND = 0.8
"""Half the band as a share of the period's frequency at most: the mean must stay outside."""
PADDING = 16
FEW_FREQUENCIES = 8
"""So few are summed up one by one, which takes less time than a Fourier transform."""
LEAST_STEPS = 100
MOST_STEPS = 32_768
"""Of longer data the last steps are used."""
MOST_FOUND = 3
MOST_NEAR = 40
SEARCH_REPEATS = 10
"""A period that nobody named must be there this often; a day or a week `CALENDAR_REPEATS` times."""
STEPS_PER_PERIOD = 96
"""Finer data are averaged to about this many steps per day."""
LEAST_OBSERVED = 0.5


class LineEvidence(NamedTuple):
    """Log p-values per period, for all its harmonics and for its own frequency alone."""

    whole: np.ndarray
    fundamental: np.ndarray


def find_periods(values: np.ndarray, observed: np.ndarray, clock: Clock) -> tuple[float, ...]:
    """Periods, in steps, that the spectrum of some sensor shows; without any it is empty.

    With time stamps only a day and a week are searched for, where the data hold five of them and at
    least four steps each. Without, all whole steps from 4 to a tenth of the data are, and besides
    the harmonics together the period's own frequency must be significant, so that twice the period
    is not found as well.

    What is missing is interpolated, and a sensor that is missing more than half of the time is left
    out.
    """
    if clock.num_steps < LEAST_STEPS:
        return ()
    if not clock.is_stamped:
        return _search(_on_steps(values, observed, clock, 1))
    known = np.array([length / clock.interval for length in CALENDAR.values()])
    known = known[(known >= SHORTEST_STEPS) & (CALENDAR_REPEATS * known <= clock.num_steps)]
    if not len(known):
        return ()
    factor = max(1, int(known.min() // STEPS_PER_PERIOD))
    series = _on_steps(values, observed, clock, factor)
    if len(series) < LEAST_STEPS or not series.shape[1]:
        return ()
    tested = known / factor
    filters = _filters(_without(series, tested))
    found = [
        _evidence(series, tested[[k]], filters, len(known)).whole[0] for k in range(len(known))
    ]
    return tuple(known[np.array(found) <= np.log(LEVEL)].tolist())


def num_harmonics(steps: float) -> int:
    """How many harmonics of a period are used; each must lie below half the sampling rate."""
    return max(1, min(HARMONICS, int(np.ceil(steps / 2)) - 1))


def line_log_p(
    series: np.ndarray, frequencies: np.ndarray, bandwidth: float = BANDWIDTH
) -> np.ndarray:
    """Log p-value of the F test at every frequency (cycles per step) for one whitened sensor."""
    tapers, sums = _tapers(len(series), bandwidth)
    size = int(scipy.fft.next_fast_len(PADDING * len(series), real=True) or 0)
    bins = np.rint(frequencies * size).astype(np.int64)
    if len(bins) <= FEW_FREQUENCIES:
        angle = np.outer(np.arange(len(series)), 2 * np.pi / size * bins)
        y = (tapers * series) @ np.exp(-1j * angle)
    else:
        y = np.asarray(scipy.fft.rfft(tapers * series, size, axis=1, workers=-1))[:, bins]
    mu = sums @ y / (sums @ sums)
    rest = (np.abs(y - sums[:, None] * mu) ** 2).sum(axis=0)
    line = np.abs(mu) ** 2 * (sums @ sums)
    return -(len(sums) - 1) * np.log1p(line / np.maximum(rest, 1e-15 * line + 1e-300))


@functools.lru_cache(maxsize=4)
def _tapers(num_steps: int, bandwidth: float) -> tuple[np.ndarray, np.ndarray]:
    count = int(2 * bandwidth) - 1
    tapers = np.asarray(dpss(num_steps, bandwidth, count))
    return tapers, tapers.sum(axis=1)


def _search(series: np.ndarray) -> tuple[float, ...]:
    """The strongest period, then the strongest of what is left without it, and so on.

    A rough filter, which no line can bend, proposes; one of what is left without the proposal
    decides.
    """
    n, limit = len(series), np.log(LEVEL)
    periods = np.arange(SHORTEST_STEPS, n // SEARCH_REPEATS + 1, dtype=np.float64)
    found: list[float] = []
    while series.shape[1] and len(periods) and len(found) < MOST_FOUND:
        whole, fundamental = _evidence(series, periods, _filters(series, 1), len(periods))
        whole = np.where(fundamental <= limit, whole, 0.0)
        best = _refined(series, periods, float(periods[np.argmin(whole)]))
        if whole.min() > limit or best in found:
            break
        left = _without(series, np.array([best]))
        sure = _evidence(series, np.array([best]), _filters(left), len(periods))
        if max(sure.whole[0], sure.fundamental[0]) > limit:
            break
        found.append(best)
        series = left
    return tuple(found)


def _refined(series: np.ndarray, periods: np.ndarray, period: float) -> float:
    """Of the periods that n steps cannot separate the one whose harmonics explain most."""
    near = periods[np.abs(1 / periods - 1 / period) <= 0.5 / len(series)]
    near = near[:: -(-len(near) // MOST_NEAR)] if len(near) > MOST_NEAR else near
    z = (series - series.mean(axis=0)) / series.std(axis=0)
    left = [(_without(z, np.array([q])) ** 2).mean(axis=0).min() for q in near.tolist()]
    return float(near[int(np.argmin(left))])


def _without(series: np.ndarray, periods: np.ndarray) -> np.ndarray:
    """What least squares on the periods' harmonics leave."""
    k = np.concatenate([np.arange(1, num_harmonics(q) + 1) / q for q in periods.tolist()])
    angle = 2 * np.pi * np.outer(np.arange(len(series)), k)
    basis = np.hstack([np.ones((len(series), 1)), np.cos(angle), np.sin(angle)])
    Q = np.linalg.qr(basis)[0]
    return series - Q @ (Q.T @ series)


def _evidence(
    series: np.ndarray, periods: np.ndarray, filters: list[np.ndarray], num_tried: int
) -> LineEvidence:
    """Log p-values per period after Bonferroni's correction for sensors and periods."""
    counts = np.array([num_harmonics(steps) for steps in periods.tolist()])
    place = np.repeat(np.arange(len(periods)), counts)
    k = np.concatenate([np.arange(1, count + 1) for count in counts])
    frequencies, inverse = np.unique(k / periods[place], return_inverse=True)
    firsts = np.r_[0, np.cumsum(counts)[:-1]]
    bandwidth = min(BANDWIDTH, LARGEST_BAND * len(series) / float(periods.max()))
    whole, fundamental = np.zeros(len(periods)), np.zeros(len(periods))
    for column, weights in zip(series.T, filters, strict=True):
        x = np.asarray(scipy.signal.lfilter(weights, [1.0], column - column.mean()))
        log_p = line_log_p(x[len(weights) - 1 :], frequencies, bandwidth)[inverse]
        strongest = np.minimum.reduceat(log_p, firsts) + np.log(counts)
        together = _log_tail(counts, -np.add.reduceat(log_p, firsts))
        whole = np.minimum(whole, np.minimum(strongest, together) + np.log(2.0))
        fundamental = np.minimum(fundamental, log_p[k == 1])
    tried = np.log(num_tried * series.shape[1])
    return LineEvidence(whole + tried, fundamental + tried)


def _log_tail(shape: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Log of the chance that a gamma variable of whole shape exceeds x; far out by its series."""
    near = np.log(np.maximum(scipy.special.gammaincc(shape, x), 1e-300))
    y = np.maximum(x, 100.0)
    far = (shape - 1) * np.log(y) - y - scipy.special.gammaln(shape)
    return np.where(x > 100.0, far, near)


def _filters(series: np.ndarray, order: int | None = None) -> list[np.ndarray]:
    """Whitening filter of every sensor: an autoregression by least squares."""
    n = len(series)
    order = min(int(10 * np.log10(n)), n // 20) if order is None else order
    out = []
    for column in series.T:
        x = (column - column.mean()) / column.std()
        gram, cross = _lag_products(x, order)
        out.append(np.r_[1.0, -np.linalg.solve(gram + 1e-9 * n * np.eye(order), cross)])
    return out


def _lag_products(x: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Σ x(t−i) x(t−j) for i, j = 1 … order, and with x(t), over the t at which all of them are.

    One step along a diagonal adds one product at the beginning and takes one away at the end.
    """
    n = len(x)
    first = np.array([x[order - k : n - k] @ x[order:] for k in range(order + 1)])
    full = np.empty((order + 1, order + 1))
    full[0] = full[:, 0] = first
    for i in range(1, order + 1):
        added, removed = x[order - i] * x[order - i :: -1], x[n - i] * x[n - i : n - order - 2 : -1]
        size = order + 1 - i
        full[i, i:] = full[i - 1, i - 1 : -1] + added[:size] - removed[:size]
        full[i:, i] = full[i, i:]
    return full[1:, 1:], full[1:, 0]


def _on_steps(values: np.ndarray, observed: np.ndarray, clock: Clock, factor: int) -> np.ndarray:
    """The last steps without holes, averaged over `factor` of them, usable sensors only."""
    place = clock.steps // factor
    recent = place > place[-1] - MOST_STEPS
    place = place[recent] - place[recent][0]
    num_steps = int(place[-1]) + 1
    columns = []
    for column, known in zip(values[recent].T, observed[recent].T, strict=True):
        count = np.bincount(place[known], minlength=num_steps)
        have = np.flatnonzero(count)
        if len(have) < LEAST_OBSERVED * num_steps:
            continue
        base = column[known].mean()
        mean = np.bincount(place[known], column[known] - base, num_steps)[have] / count[have]
        whole = np.interp(np.arange(num_steps), have, mean)
        if whole.std() > 1e-12 * max(abs(base), 1e-300) and np.isfinite(whole.std()):
            columns.append(whole)
    return np.array(columns).T.reshape(num_steps, len(columns))
