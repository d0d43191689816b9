"""A client's time axis as numbers whose remainders are phases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.errors import DataError
from fedgranger.periods import duration_nanoseconds

LARGEST_MULTIPLE = 20
"""So many periods at most are joined until they are whole steps."""
CLOSE_STEPS = 0.02
"""As near as this to a whole number of steps counts as one."""


class Clock(NamedTuple):
    """When the rows were measured.

    Attributes:
        ticks: nanoseconds as the wall clock of the stamps shows them (int64), or numbers (float64).
        interval: ticks per step.
        is_stamped: the ticks are nanoseconds.
    """

    ticks: np.ndarray
    interval: float
    is_stamped: bool

    @property
    def num_steps(self) -> int:
        """Steps from the first row to the last, both included, rows that are missing too."""
        span = float(self.ticks[-1] - self.ticks[0])
        return round(span / self.interval) + 1

    @property
    def steps(self) -> np.ndarray:
        """Whole steps since the first row."""
        return np.rint((self.ticks - self.ticks[0]).astype(np.float64) / self.interval).astype(
            np.int64
        )

    def phase(self, length: float) -> np.ndarray:
        """Place within a period of that many ticks, 0 up to 1; 0 at the origin of the ticks."""
        if self.is_stamped:  # whole numbers: exact at any date
            return np.mod(self.ticks, round(length)) / round(length)
        return np.mod(self.ticks, length) / length


def clock_of(time: np.ndarray, interval: float | None = None) -> Clock:
    """Read a time axis; unless its interval (ticks per step) is given, it is the median step."""
    is_stamped = time.dtype.kind == "M"
    ticks = (
        time.astype("datetime64[ns]").astype(np.int64) if is_stamped else time.astype(np.float64)
    )
    if interval is None:
        interval = float(np.median(np.diff(ticks))) if len(ticks) > 1 else 1.0
    return Clock(ticks, float(interval), is_stamped)


def period_ticks(period: int | str, clock: Clock, client: str) -> float:
    """Length in ticks of a period that is given in steps or as a duration.

    Raises:
        DataError: a duration without time stamps, or a period that the data cannot show.
    """
    if isinstance(period, int):
        length = period * clock.interval
    elif clock.is_stamped:
        length = float(duration_nanoseconds(period))
    else:
        raise DataError(
            f"client '{client}': period '{period}' is a duration, but the rows have no time "
            "stamps; give the period in steps, or data with time stamps"
        )
    steps = length / clock.interval
    if steps < 2:
        raise DataError(
            f"client '{client}': period '{period}' is {steps:.3g} steps; at least 2 are needed, so "
            "leave it out"
        )
    if 2 * steps > clock.num_steps:
        raise DataError(
            f"client '{client}': period {period!r} is {steps:.6g} steps and the data have "
            f"{clock.num_steps}; at least two periods are needed, so give more data or leave it out"
        )
    return float(round(length)) if clock.is_stamped else length


def whole_steps(steps: float) -> int:
    """The fewest whole steps in which a period repeats; of odd lengths the nearest.

    Example:
        >>> whole_steps(24.0), whole_steps(20.5), whole_steps(1440 / 7)
        (24, 41, 1440)
    """
    multiples = steps * np.arange(1, LARGEST_MULTIPLE + 1)
    away = np.abs(multiples - np.rint(multiples))
    best = int(np.argmax(away <= CLOSE_STEPS)) if away.min() <= CLOSE_STEPS else int(away.argmin())
    return int(np.rint(multiples[best]))
