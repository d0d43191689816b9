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

from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from fedgranger.data.client_data import ClientData
from fedgranger.data.clock_steps import propose_for
from fedgranger.data.time_stamps import shown_time
from fedgranger.errors import DataError, ReadingError
from fedgranger.linalg.unbroken_steps import LONGEST_GAP
from fedgranger.manifest_types import PeriodFacts
from fedgranger.periods import duration_text
from fedgranger.text import elapsed

TOLERANCE = Fraction(1, 10)
"""How far from the grid a time stamp may lie, in sampling intervals."""
MOST_STRETCHES = 10_000

Stretches = tuple[tuple[int, int], ...]
"""First step and step after the last, in order, apart from each other."""


class LocalSeries(NamedTuple):
    """A client's data with its own strictly increasing numbers or time stamps (datetime64[ns]).

    The sampling interval may be declared, in units of `time` (nanoseconds for time stamps);
    without it is the median step. The local model (`client.params.LocalModel`) may be
    known; else it is identified.
    """

    client: ClientData
    time: np.ndarray
    interval: float | None = None
    model: Any = None


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


def period_facts(grid: TimeGrid, time_zone: str = "") -> PeriodFacts:
    """The common axis for the manifest; seconds only where it has time stamps.

    Where the data have a zone, the text says that its own times are in UTC.
    """
    is_stamped = grid.time_kind == "stamps"
    return PeriodFacts(
        text=period_in_utc(grid) if time_zone else period_text(grid),
        step_seconds=float(grid.interval) / 1e9 if is_stamped else None,
    )


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
        raise ReadingError.proposing(fact, propose_for(numbers))
    same = np.flatnonzero(np.diff(index) == 0)
    if len(same):
        fact = (
            f"client '{name}': rows {same[0] + 1} and {same[0] + 2} fall on the same step of a "
            f"time axis with an interval of {interval_text(interval, kind)}"
        )
        if kind != "stamps":
            raise DataError(f"{fact}; resample the data")
        raise ReadingError.proposing(fact, propose_for(numbers))
    return index


def _numbers(time: np.ndarray) -> tuple[str, np.ndarray]:
    if time.dtype.kind == "M":
        return "stamps", time.astype("datetime64[ns]").astype(np.int64)
    return "numbers", time


def _exact(number: np.generic) -> Fraction:
    value = number.item()
    return Fraction(value) if isinstance(value, int) else Fraction(value).limit_denominator(10**9)


def interval_text(interval: Fraction | float, kind: str) -> str:
    """A sampling interval as options take it; of time stamps it is in nanoseconds."""
    return duration_text(float(interval)) if kind == "stamps" else f"{float(interval):g}"
