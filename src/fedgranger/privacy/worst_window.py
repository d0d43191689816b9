"""The window of a record whose measurements can move a filter's trajectory farthest.

All windows of a record are covered; those with the same steps and the same future count once,
and the worst of them try every beta of `filter_bounds`.
"""

from __future__ import annotations

import numpy as np

from fedgranger.privacy.filter_bounds import (
    LIMITS,
    common_price,
    largest_gain,
    window_bounds,
)
from fedgranger.privacy.filter_steps import CUT, OBSERVED, Steps, energy_after, later_energy
from fedgranger.privacy.long_records import record_prices

SHORT = 256
"""For shorter windows of a complete record the price of endless ones is not of interest."""
LONG = 16_384
"""Longer windows are not gone through one step after the other."""
LEAST_WORK, WORK_PER_STEP = 3_000_000, 8
"""When windows have more steps together, fewer and longer ones that contain them stand for them."""
WORK_OF_TRIALS = 1_000_000
"""Steps of windows, times limits, that are gone through to choose a limit."""
WINDOWS_AT_ONCE = 20_000
SAMPLE = 32
REFINED = 256
NUM_REFINEMENTS = 4
GRID = 1e-10
"""Futures whose energies differ by less, relative to the largest, are the same."""


def complete_window(steps: Steps, length: int, num_steps: int) -> float:
    """Bound of the squared change by the first `length` of `num_steps` steps, all observed.

    No other window of a complete record can do more: its change has a shorter future.
    """
    matrix, G = steps.matrices[OBSERVED], steps.gain
    X = energy_after(matrix, num_steps - length)
    first = energy_after(matrix, num_steps - 1)
    if not np.isfinite(first).all():
        return np.inf
    simple = length**2 * float(largest_gain(first, G))  # triangle inequality
    if length > SHORT:
        simple = min(simple, length * common_price(matrix, G))
    if length > LONG:
        return simple
    kinds = np.full(length, OBSERVED)
    kinds[0] = CUT
    window = Steps(steps.matrices, kinds, np.ones(length, dtype=np.bool_), G)
    begins = np.zeros(len(LIMITS), dtype=np.int64)
    ends = np.tile(X, (len(LIMITS), 1, 1))
    return min(simple, float(window_bounds(window, begins, length, ends, LIMITS).min()))


def worst_window(steps: Steps, length: int) -> float:
    """Bound of the squared change, over all windows of `length` steps of the record."""
    if length > LONG and np.isfinite(prices := record_prices(steps)).all():
        return float(_sums(prices, length).max())
    X = later_energy(steps)
    if not np.isfinite(X).all():
        return np.inf
    single = np.where(steps.observed, largest_gain(X, steps.gain), 0.0)
    if length == 1:
        return float(single.max())
    last = len(single) - length
    begins = np.flatnonzero(steps.observed[: last + 1])  # others see no more than the next one
    begins = np.union1d(begins, [last])
    if length > LONG:
        return float(_sums(np.sqrt(single), length)[begins].max() ** 2)
    begins, margin = _distinct(steps, X, begins, length)
    work = max(LEAST_WORK, WORK_PER_STEP * len(single))
    if len(begins) * length > work:
        spacing = -(-length * len(single) // (work - len(single)))
        length = min(length + spacing, len(single))
        begins = np.unique(np.minimum(begins // spacing * spacing, len(single) - length))
        begins, margin = _distinct(steps, X, begins, length)
    ends = X[begins + length - 1] + margin * np.eye(steps.state_dim)
    triangle = _sums(np.sqrt(single), length)[begins] ** 2
    return _largest(steps, ends, begins, length, triangle)


def _largest(
    steps: Steps, ends: np.ndarray, begins: np.ndarray, length: int, triangle: np.ndarray
) -> float:
    """Largest bound of the windows: one limit for all, every limit for the worst.

    `triangle` are bounds by the triangle inequality: the sum of what each step can do alone.
    """
    num_trials = max(1, min(SAMPLE, WORK_OF_TRIALS // (len(LIMITS) * length)))
    by_size = np.argsort(-triangle)[: -(-num_trials // 2)]
    evenly = np.linspace(0, len(begins) - 1, num_trials // 2).astype(np.int64)
    sample = np.union1d(by_size, evenly)
    trials = _every_limit(steps, ends[sample], begins[sample], length)
    limit = LIMITS[np.argmin(np.minimum(trials, triangle[sample, None]).max(axis=0))]

    bounds = triangle.copy()
    for part in np.split(
        np.arange(len(begins)), np.arange(WINDOWS_AT_ONCE, len(begins), WINDOWS_AT_ONCE)
    ):
        limits = np.full(len(part), limit)
        found = window_bounds(steps, begins[part], length, ends[part], limits)
        bounds[part] = np.minimum(bounds[part], found)

    order, best = np.argsort(-bounds), 0.0
    num_refined = max(1, min(REFINED, WORK_OF_TRIALS // (len(LIMITS) * length)))
    for _ in range(NUM_REFINEMENTS):
        part, order = np.split(order, [num_refined])
        found = _every_limit(steps, ends[part], begins[part], length).min(axis=1)
        best = max(best, float(np.minimum(bounds[part], found).max()))
        if not len(order) or bounds[order[0]] <= best:
            return best
    return float(bounds[order[0]])


def _every_limit(steps: Steps, ends: np.ndarray, begins: np.ndarray, length: int) -> np.ndarray:
    """Bounds of windows with each of the limits; shape (window, limit)."""
    each = np.repeat(np.arange(len(begins)), len(LIMITS))
    limits = np.tile(LIMITS, len(begins))
    found = window_bounds(steps, begins[each], length, ends[each], limits)
    return found.reshape(len(begins), len(LIMITS))


def _distinct(
    steps: Steps, X: np.ndarray, begins: np.ndarray, length: int
) -> tuple[np.ndarray, float]:
    """Begins of one of each kind of window, and how far the futures of its like may lie above."""
    labels = _joined(steps.kinds, steps.observed.astype(np.int64))
    reach = 1  # labels name that many steps from each one on
    while 2 * reach <= length:
        labels = _joined(labels[:-reach], labels[reach:])
        reach *= 2
    found = _joined(labels[begins], labels[begins + length - reach])
    ends = X[begins + length - 1]
    p = steps.state_dim
    grid = GRID * float(ends.max())
    for row, column in zip(*np.triu_indices(p), strict=True):
        found = _joined(found, np.round(ends[:, row, column] / grid).astype(np.int64))
    return begins[np.unique(found, return_index=True)[1]], grid * p


def _joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Whole numbers that are equal where both are equal."""
    _, a = np.unique(first, return_inverse=True)
    _, b = np.unique(second, return_inverse=True)
    return a * (int(b.max()) + 1) + b


def _sums(values: np.ndarray, length: int) -> np.ndarray:
    """Sums over all windows of that length, with what rounding can take off."""
    totals = np.concatenate([[0.0], np.cumsum(values)])
    return totals[length:] - totals[:-length] + 2.0**-52 * len(values) * totals[-1]
