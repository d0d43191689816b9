"""What the server makes of the clients' time ranges: the axis that all share, by `time_axis`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np

from fedgranger.data.clock_steps import propose_between, round_up
from fedgranger.data.time_axis import (
    TOLERANCE,
    Stretches,
    TimeGrid,
    TimeRange,
    interval_text,
    period_in_utc,
)
from fedgranger.errors import DataError, ReadingError
from fedgranger.linalg.unbroken_steps import LONGEST_GAP
from fedgranger.periods import duration_text

LARGEST_MULTIPLE = 60
"""A common grid is at most so many times as coarse as the coarsest client's."""


def agree(ranges: Mapping[str, TimeRange]) -> TimeGrid:
    """The common axis of all clients.

    Raises:
        DataError: the clients do not sample alike or have no time in common.
    """
    names = sorted(ranges)
    kind = ranges[names[0]].time_kind
    for name in names[1:]:
        if ranges[name].time_kind != kind:
            raise DataError(
                f"client '{names[0]}' has time in {kind} and client '{name}' in "
                f"{ranges[name].time_kind}; use time stamps everywhere"
            )
    interval = _common_interval(ranges)
    first = _common_first(ranges, interval)
    last = min(ranges[name].last for name in names)
    num_steps = math.floor((last - first) / interval + 2 * TOLERANCE) + 1
    if num_steps < 2:
        late = max(names, key=lambda name: ranges[name].first)
        early = min(names, key=lambda name: ranges[name].last)
        raise DataError(
            f"the clients have no time in common: '{late}' begins after '{early}' ends, or nearly "
            "so; use data of the same period"
        )
    return TimeGrid(kind, first, interval, _union(ranges.values(), first, interval, num_steps))


def _common_interval(ranges: Mapping[str, TimeRange]) -> Fraction:
    """The least common multiple of the intervals; those equal to 1e-6 count as one."""
    coarsest = max(ranges, key=lambda name: ranges[name].interval)
    common = largest = ranges[coarsest].interval
    for name in sorted(ranges):
        found = ranges[name].interval
        multiple = common / found
        if abs(multiple - round(multiple)) <= multiple / 10**6:
            continue
        denominator = math.lcm(common.denominator, found.denominator)
        numerators = (int(one * denominator) for one in (common, found))
        common = Fraction(math.lcm(*numerators), denominator)
        if common > LARGEST_MULTIPLE * largest:
            kind = ranges[name].time_kind
            fact = (
                f"client '{coarsest}' samples every {interval_text(largest, kind)} and client "
                f"'{name}' every {interval_text(found, kind)}, which hardly ever coincide"
            )
            if kind != "stamps":
                raise DataError(f"{fact}; resample one of them")
            step = duration_text(round_up(float(largest)))
            raise ReadingError.proposing(fact, {"resample": step})
    return common


def _common_first(ranges: Mapping[str, TimeRange], interval: Fraction) -> Fraction:
    """The first time that is on everybody's grid, after all have begun."""
    begin = max(found.first for found in ranges.values())
    base = max(sorted(ranges), key=lambda name: (ranges[name].interval, ranges[name].first))
    one = ranges[base]
    passed = math.ceil((begin - one.first) / one.interval - TOLERANCE)
    worst = base, Fraction(0)
    for k in range(round(interval / one.interval)):
        candidate = one.first + (passed + k) * one.interval
        offsets = {
            name: (found.first - candidate) / found.interval for name, found in ranges.items()
        }
        away = {name: offset - round(offset) for name, offset in offsets.items()}
        worst = max(away.items(), key=lambda item: abs(item[1]))
        if abs(worst[1]) <= TOLERANCE:
            return candidate
    fact = (
        f"client '{worst[0]}': its time stamps are offset by {float(worst[1]):+.2f} sampling "
        f"intervals from those of client '{base}'"
    )
    if one.time_kind != "stamps":
        raise DataError(f"{fact}; shift or resample them")
    proposal = propose_between([int(found.first) for found in ranges.values()], int(one.interval))
    raise ReadingError.proposing(fact, proposal)


def _union(
    ranges: Iterable[TimeRange], first: Fraction, interval: Fraction, num_steps: int
) -> Stretches:
    """Steps of the common grid on which some client has a stretch, short gaps closed."""
    found: list[tuple[int, int]] = []
    for one in ranges:
        for start, stop in one.stretches:
            begin = (one.first + start * one.interval - first) / interval
            end = (one.first + (stop - 1) * one.interval - first) / interval
            low = max(math.ceil(begin - 2 * TOLERANCE), 0)
            high = min(math.floor(end + 2 * TOLERANCE) + 1, num_steps)
            if high > low:
                found.append((low, high))
    out: list[tuple[int, int]] = []
    for low, high in sorted(found):
        if out and low - out[-1][1] <= LONGEST_GAP:
            out[-1] = out[-1][0], max(out[-1][1], high)
        else:
            out.append((low, high))
    return tuple(out)


def is_covered(mine: TimeRange, grid: TimeGrid) -> bool:
    """Whether a common axis has every step, from its first to its last, at which a client has rows.

    So it may begin later and end earlier than the client's own, and be coarser.
    """
    whole = _union([mine], grid.first, grid.interval, grid.stretches[-1][1])
    starts, stops = (np.array(side) for side in zip(*grid.stretches, strict=True))
    place = np.searchsorted(starts, [start for start, _ in whole], side="right") - 1
    ends = np.array([stop for _, stop in whole])
    return bool((place >= 0).all() and (ends <= stops[np.maximum(place, 0)]).all())


def unused_notes(ranges: Mapping[str, TimeRange], grid: TimeGrid) -> list[str]:
    """Which clients of a federation have steps that are left out, and what would use them.

    Whoever joins its rows to steps of the common axis loses none; these lie on full steps of the
    clock, so where the axis does not, every client has to.
    """
    is_on_clock = abs((place := grid.first / grid.interval) - round(place)) <= TOLERANCE
    notes = []
    for name, mine in sorted(ranges.items()):
        whole = sum(stop - start for start, stop in mine.stretches)
        lost = whole - _used_steps(mine, grid)
        if not lost:
            continue
        note = (
            f"client '{name}': {lost} of {whole} time steps are not on the common time axis "
            f"({period_in_utc(grid)}) and are left out"
        )
        if grid.time_kind == "stamps" and 2 * mine.interval <= grid.interval:
            at = "" if is_on_clock else " at every client"
            step = duration_text(int(grid.interval))
            note += f"; 'federation start' with --resample {step}{at} uses them all"
        notes.append(note)
    return notes


def _used_steps(mine: TimeRange, grid: TimeGrid) -> int:
    """How many of a client's steps are on the common axis, which covers all between its ends."""
    multiple = round(grid.interval / mine.interval)
    begin = round((grid.first - mine.first) / mine.interval)
    end = begin + (grid.stretches[-1][1] - 1) * multiple
    used = 0
    for start, stop in mine.stretches:
        low, high = max(start, begin), min(stop - 1, end)
        used += max((high - begin) // multiple + (begin - low) // multiple + 1, 0)
    return used
