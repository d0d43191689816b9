"""One time axis for clients that need not show each other their rows: the rule of every run.

A client samples on a regular grid. Where it has no row for more than `LONGEST_GAP` steps, its
record falls into stretches; a shorter gap is a few missing samples. The common axis

- lies on the grid that all clients share (every 2 s and every 3 s: every 6 s),
- begins when the last client begins and ends when the first one ends,
- leaves out the steps at which no client has a stretch, and starts a new segment after them.

Whatever else a client lacks is missing for this client only. The server of a federation knows the
clients' stretches, never their rows, and comes to the same axis as a run in one process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedgranger.data.clock_steps import duration_text, propose_between, propose_for, round_up
from fedgranger.data.panel import ClientData
from fedgranger.data.time_stamps import shown_time
from fedgranger.errors import DataError, ReadingError
from fedgranger.linalg.unbroken_steps import LONGEST_GAP
from fedgranger.text import elapsed

if TYPE_CHECKING:
    from fedgranger.client.params import LocalModel

TOLERANCE = Fraction(1, 10)
"""How far from the grid a time stamp may lie, in sampling intervals."""
MOST_STRETCHES = 10_000
LARGEST_MULTIPLE = 60
"""A common grid is at most so many times as coarse as the coarsest client's."""

Stretches = tuple[tuple[int, int], ...]
"""First step and step after the last, in order, apart from each other."""


class LocalSeries(NamedTuple):
    """A client's data with its own strictly increasing numbers or time stamps (datetime64[ns]).

    The sampling interval may be declared, in units of `time` (nanoseconds for time stamps);
    without it is the median step. The local model may be known; else it is identified.
    """

    client: ClientData
    time: np.ndarray
    interval: float | None = None
    model: LocalModel | None = None


class TimeRange(NamedTuple):
    """What a client says of its time axis: exact numbers, nanoseconds when they are time stamps.

    Its kind is "stamps" or "numbers"; the stretches on which it has rows are in steps from `first`.
    """

    time_kind: str
    first: Fraction
    last: Fraction
    interval: Fraction
    stretches: Stretches


class TimeGrid(NamedTuple):
    """The common axis: stretches of a grid that starts at `first`, in steps of `interval`."""

    time_kind: str
    first: Fraction
    interval: Fraction
    stretches: Stretches

    @property
    def num_steps(self) -> int:
        """Steps of all stretches."""
        return sum(stop - start for start, stop in self.stretches)

    @property
    def segment_starts(self) -> np.ndarray:
        """Bool per step: it begins a stretch."""
        lengths = [stop - start for start, stop in self.stretches]
        out = np.zeros(sum(lengths), dtype=np.bool_)
        out[np.cumsum([0, *lengths[:-1]])] = True
        return out


def range_of(series: LocalSeries) -> TimeRange:
    """Describe a client's time axis.

    Raises:
        DataError: its rows do not lie on a regular grid.
    """
    return axis_range(series.client.name, series.time, series.interval)


def axis_range(name: str, time: np.ndarray, declared: float | None = None) -> TimeRange:
    """The same of a time axis alone."""
    if len(time) < 2:
        raise DataError(f"client '{name}': {len(time)} row; at least two are needed")
    kind, numbers = _numbers(time)
    if declared is None:
        interval = Fraction(np.median(np.diff(numbers)).item())
        if kind == "numbers":  # 0.1 is meant as one tenth
            interval = interval.limit_denominator(10**6)
    else:
        interval = Fraction(declared).limit_denominator(10**6)
    if interval <= 0:
        raise DataError(
            f"client '{name}': the sampling interval is {float(interval):g}; it must be above 0"
        )
    first = _exact(numbers[0])
    index = _grid_index(name, time, first, interval, TOLERANCE)
    breaks = np.flatnonzero(np.diff(index) > LONGEST_GAP + 1) + 1
    if len(breaks) >= MOST_STRETCHES:
        raise DataError(
            f"client '{name}': {len(breaks)} gaps of more than {LONGEST_GAP} rows; the sampling "
            f"interval may not be {interval_text(interval, kind)}: declare it, or resample the data"
        )
    starts, stops = index[np.r_[0, breaks]], index[np.r_[breaks - 1, len(index) - 1]] + 1
    stretches = tuple(zip(starts.tolist(), stops.tolist(), strict=True))
    return TimeRange(kind, first, _exact(numbers[-1]), interval, stretches)


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


def places_on(name: str, time: np.ndarray, grid: TimeGrid, interval: Fraction) -> np.ndarray:
    """Which step of the common axis each row of a client is, -1 where it is none.

    The client's own `interval` divides that of the axis.

    Raises:
        DataError: a row lies between the steps of its own grid, or two rows on one of them.
    """
    # the row may be off its own grid by a tolerance, and that off the common one by another
    index = _grid_index(name, time, grid.first, interval, 2 * TOLERANCE)
    multiple = round(grid.interval / interval)
    index, between = np.divmod(index, multiple)
    starts, stops = np.array(grid.stretches, dtype=np.int64).T
    stretch = np.maximum(np.searchsorted(starts, index, side="right") - 1, 0)
    is_inside = (index >= starts[stretch]) & (index < stops[stretch]) & (between == 0)
    before = np.concatenate([[0], np.cumsum(stops - starts)[:-1]])
    return np.where(is_inside, before[stretch] + index - starts[stretch], -1)


def is_covered(mine: TimeRange, grid: TimeGrid) -> bool:
    """Whether a common axis has every step, from its first to its last, at which a client has rows.

    So it may begin later and end earlier than the client's own, and be coarser.
    """
    whole = _union([mine], grid.first, grid.interval, grid.stretches[-1][1])
    starts, stops = (np.array(side) for side in zip(*grid.stretches, strict=True))
    place = np.searchsorted(starts, [start for start, _ in whole], side="right") - 1
    ends = np.array([stop for _, stop in whole])
    return bool((place >= 0).all() and (ends <= stops[np.maximum(place, 0)]).all())


def on_grid(series: LocalSeries, grid: TimeGrid) -> ClientData:
    """Put a client's rows on the common axis; rows that it lacks are marked as not observed."""
    client = series.client
    place = places_on(client.name, series.time, grid, range_of(series).interval)
    values = np.zeros((grid.num_steps, client.num_sensors))
    observed = np.zeros(values.shape, dtype=np.bool_)
    values[place[place >= 0]] = client.values[place >= 0]
    observed[place[place >= 0]] = client.observed[place >= 0]
    return replace(client, values=values, observed=observed)


def grid_time(grid: TimeGrid) -> np.ndarray:
    """Every step of the common axis: datetime64[ns] for time stamps, numbers otherwise."""
    steps = np.concatenate([np.arange(start, stop) for start, stop in grid.stretches])
    if grid.time_kind == "numbers" and grid.first.denominator == grid.interval.denominator == 1:
        return int(grid.first) + steps * int(grid.interval)
    if grid.time_kind == "numbers":
        return float(grid.first) + steps * float(grid.interval)
    passed = steps * int(grid.interval) + np.rint(steps * float(grid.interval % 1)).astype(np.int64)
    return (int(grid.first) + passed).astype("datetime64[ns]")


def period_text(grid: TimeGrid) -> str:
    """The common axis in words, for the people at a site."""
    ends = (grid.first, grid.first + (grid.stretches[-1][1] - 1) * grid.interval)
    if grid.time_kind == "stamps":
        first, last = (str(np.datetime64(int(end), "ns").astype("datetime64[s]")) for end in ends)
    else:
        first, last = (f"{float(end):.10g}" for end in ends)
    count = len(grid.stretches)
    parts = f" in {count} stretches" if count > 1 else ""
    every = interval_text(grid.interval, grid.time_kind)
    if grid.time_kind == "stamps":
        every = elapsed(1, float(grid.interval) / 1e9)
    return f"{first} to {last}, {grid.num_steps} steps of {every}{parts}"


def period_in_utc(grid: TimeGrid) -> str:
    """The same; of stamps it says that they are in UTC, as they are between parties."""
    is_stamped = grid.time_kind == "stamps"
    return period_text(grid).replace(", ", " UTC, ", 1) if is_stamped else period_text(grid)


def period_facts(grid: TimeGrid, time_zone: str = "") -> dict[str, Any]:
    """The common axis for the manifest; seconds only where it has time stamps.

    Where the data have a zone, the text says that its own times are in UTC.
    """
    is_stamped = grid.time_kind == "stamps"
    return {
        "text": period_in_utc(grid) if time_zone else period_text(grid),
        "step_seconds": float(grid.interval) / 1e9 if is_stamped else None,
    }


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
            raise ReadingError(f"{fact}; pass --resample {step}", {"resample": step})
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
    raise ReadingError(f"{fact}; pass {_flag(proposal)}", proposal)


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


def _grid_index(
    name: str, time: np.ndarray, first: Fraction, interval: Fraction, tolerance: Fraction
) -> np.ndarray:
    """The step of a grid that every row is."""
    kind, numbers = _numbers(time)
    if kind == "stamps":
        offset = (numbers - int(first)).astype(np.float64)
    else:
        offset = numbers.astype(np.float64) - float(first)
    place = offset / float(interval)
    index = np.rint(place).astype(np.int64)
    off = np.abs(place - index) > float(tolerance)
    if off.any():
        row = int(np.argmax(off))
        fact = (
            f"client '{name}': the time stamp in row {row + 1} ({shown_time(time[row])}) is offset "
            f"by {place[row] - index[row]:+.2f} sampling intervals of "
            f"{interval_text(interval, kind)} from a regular time axis"
        )
        if kind != "stamps":
            raise DataError(f"{fact}; resample the data or declare another interval")
        proposal = propose_for(numbers)
        raise ReadingError(f"{fact}; pass {_flag(proposal)}", proposal)
    same = np.flatnonzero(np.diff(index) == 0)
    if len(same):
        fact = (
            f"client '{name}': rows {same[0] + 1} and {same[0] + 2} fall on the same step of a "
            f"time axis with an interval of {interval_text(interval, kind)}"
        )
        if kind != "stamps":
            raise DataError(f"{fact}; resample the data")
        proposal = propose_for(numbers)
        raise ReadingError(f"{fact}; pass {_flag(proposal)}", proposal)
    return index


def _flag(proposal: Mapping[str, str]) -> str:
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in proposal.items())


def _numbers(time: np.ndarray) -> tuple[str, np.ndarray]:
    if time.dtype.kind == "M":
        return "stamps", time.astype("datetime64[ns]").astype(np.int64)
    return "numbers", time


def _exact(number: np.generic) -> Fraction:
    value = number.item()
    return Fraction(value) if isinstance(value, int) else Fraction(value).limit_denominator(10**9)


def interval_text(interval: Fraction | float, kind: str) -> str:
    """A sampling interval for people; of time stamps it is in nanoseconds."""
    return f"{float(interval) / 1e9:g} s" if kind == "stamps" else f"{float(interval):g}"
