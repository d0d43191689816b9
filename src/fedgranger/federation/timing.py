"""One time axis for parties that never show each other their rows.

Every party says when its data begin and end and how far apart its rows are. The common axis is the
intersection of the ranges on that grid; a party's rows that are not there count as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fedgranger.data.panel import ClientData
from fedgranger.errors import DataError

__all__ = [
    "LocalSeries",
    "TimeGrid",
    "TimeRange",
    "agree",
    "grid_time",
    "on_grid",
    "range_of",
    "say_period",
]

TOLERANCE = Fraction(1, 10)
"""How far from the grid a time stamp may lie, in sampling intervals."""


class LocalSeries(NamedTuple):
    """A party's data with its own time stamps.

    Attributes:
        client: the data; rows in time order.
        time: integers, numbers or datetime64[ns], strictly increasing.
        interval: declared sampling interval in units of `time` (nanoseconds for time stamps), or
            None: the median step.
    """

    client: ClientData
    time: np.ndarray
    interval: float | None = None


class TimeRange(NamedTuple):
    """What a party says of its time axis: exact numbers, nanoseconds when they are time stamps."""

    time_kind: str
    first: Fraction
    last: Fraction
    interval: Fraction


class TimeGrid(NamedTuple):
    """The common axis: `num_steps` points from `first` in steps of `interval`."""

    time_kind: str
    first: Fraction
    interval: Fraction
    num_steps: int


def range_of(series: LocalSeries) -> TimeRange:
    """Describe a party's time axis."""
    time, name = series.time, series.client.name
    if len(time) < 2:
        raise DataError(f"client '{name}': {len(time)} row; at least two are needed")
    kind = "stamps" if time.dtype.kind == "M" else "numbers"
    numbers = time.astype("datetime64[ns]").astype(np.int64) if kind == "stamps" else time
    if series.interval is None:
        interval = Fraction(np.median(np.diff(numbers)).item())
        if kind == "numbers":  # 0.1 is meant as one tenth
            interval = interval.limit_denominator(10**6)
    else:
        interval = Fraction(series.interval).limit_denominator(10**6)
    if interval <= 0:
        raise DataError(
            f"client '{name}': the sampling interval is {float(interval):g}; it must be above 0"
        )
    return TimeRange(kind, _exact(numbers[0]), _exact(numbers[-1]), interval)


def agree(ranges: Mapping[str, TimeRange]) -> TimeGrid:
    """Intersect the ranges.

    Raises:
        DataError: the parties do not sample alike or have no time in common.
    """
    names = sorted(ranges)
    one, others = ranges[names[0]], names[1:]
    for name in others:
        found = ranges[name]
        if found.time_kind != one.time_kind:
            raise DataError(
                f"client '{names[0]}' has time in {one.time_kind} and client '{name}' in "
                f"{found.time_kind}; use time stamps everywhere"
            )
        if abs(found.interval - one.interval) > one.interval / 10**6:
            raise DataError(
                f"client '{names[0]}' samples every {_say(one.interval, one.time_kind)} and client "
                f"'{name}' every {_say(found.interval, one.time_kind)}; resample one of them"
            )
        shift = (found.first - one.first) / one.interval
        if abs(shift - round(shift)) > TOLERANCE:
            raise DataError(
                f"client '{name}': its time stamps are offset by "
                f"{float(shift - round(shift)):+.2f} sampling intervals from those of client "
                f"'{names[0]}'; shift or resample them"
            )
    first = max(ranges[name].first for name in names)
    last = min(ranges[name].last for name in names)
    num_steps = round((last - first) / one.interval) + 1
    if num_steps < 2:
        late = max(names, key=lambda name: ranges[name].first)
        early = min(names, key=lambda name: ranges[name].last)
        raise DataError(
            f"the clients have no time in common: '{late}' begins after '{early}' ends; use data "
            "of the same period"
        )
    return TimeGrid(one.time_kind, first, one.interval, num_steps)


def on_grid(series: LocalSeries, grid: TimeGrid) -> ClientData:
    """Put a party's rows on the common axis; missing rows are marked as not observed."""
    client, time = series.client, series.time
    stamps = time.dtype.kind == "M"
    numbers = time.astype("datetime64[ns]").astype(np.int64) if stamps else time
    if stamps:
        offset = (numbers - int(grid.first)).astype(np.float64)
    else:
        offset = numbers.astype(np.float64) - float(grid.first)
    place = offset / float(grid.interval)
    index = np.rint(place).astype(np.int64)
    inside = (index >= 0) & (index < grid.num_steps)
    off = inside & (np.abs(place - index) > float(TOLERANCE))
    if off.any():
        row = int(np.argmax(off))
        raise DataError(
            f"client '{client.name}': the time stamp in row {row + 1} ({time[row]}) is "
            f"offset by {place[row] - index[row]:+.2f} sampling intervals from the common time "
            "axis; resample the data or declare another interval"
        )
    kept = np.flatnonzero(inside)
    if len(np.unique(index[kept])) != len(kept):
        twice = kept[np.flatnonzero(np.diff(index[kept]) == 0)[0]]
        raise DataError(
            f"client '{client.name}': rows {twice + 1} and {twice + 2} fall on the same point of "
            "the common time axis; resample the data"
        )
    values = np.zeros((grid.num_steps, client.num_sensors))
    observed = np.zeros((grid.num_steps, client.num_sensors), dtype=np.bool_)
    values[index[kept]] = client.values[kept]
    observed[index[kept]] = client.observed[kept]
    return ClientData(client.name, client.sensors, values, observed, client.treatment)


def grid_time(grid: TimeGrid) -> np.ndarray:
    """Every point of the common axis: datetime64[ns] for time stamps, numbers otherwise."""
    steps = np.arange(grid.num_steps)
    if grid.time_kind == "numbers":
        return float(grid.first) + steps * float(grid.interval)
    passed = steps * int(grid.interval) + np.rint(steps * float(grid.interval % 1)).astype(np.int64)
    return (int(grid.first) + passed).astype("datetime64[ns]")


def say_period(grid: TimeGrid) -> str:
    """The common axis in words, for the people at a site."""
    ends = (grid.first, grid.first + (grid.num_steps - 1) * grid.interval)
    if grid.time_kind == "stamps":
        first, last = (str(np.datetime64(int(end), "ns").astype("datetime64[s]")) for end in ends)
    else:
        first, last = (f"{float(end):.10g}" for end in ends)
    return f"{first} to {last}, {grid.num_steps} steps of {_say(grid.interval, grid.time_kind)}"


def _exact(number: np.generic) -> Fraction:
    value = number.item()
    return Fraction(value) if isinstance(value, int) else Fraction(value).limit_denominator(10**9)


def _say(interval: Fraction, kind: str) -> str:
    return f"{float(interval) / 1e9:g} s" if kind == "stamps" else f"{float(interval):g}"
