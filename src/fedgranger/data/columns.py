"""What one column of numbers is: a code for missing, a clock, a counter, a stuck sensor.

Every function takes the column as read, NaN where a sample is missing, and returns None when there
is nothing to note. Rows are counted from 0 here; sentences count them from 1.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

LEAST_ROWS = 30
"""Shorter columns are not judged."""
LEAST_DISTINCT = 10
"""A measurement that takes fewer values is a switch or a mode, and any of them may be far out."""
LEAST_MOVES = 20
"""A counter must have counted that often."""
FAR, NEAR = 10.0, 2.0
"""How many ranges of the other values a code lies away: any number, a number made for it."""
RESET_DROP, RESET_LANDING, LEAST_RUN = 0.2, 0.05, 50
"""A reset falls by this share of the range, lands in the lowest share, after this many rows."""
STILL_SHARE, STILL_WHILE_MOVING = 0.5, 0.25
FROZEN_ROWS, FROZEN_TIMES, FROZEN_MOVING = 30, 20, 0.8
"""A frozen run: at least this many rows, this many times any other run, changes elsewhere."""
MADE_FOR_IT = re.compile(r"-?(9{2,}(\.(0|9+|25))?|32767\.0|65535\.0|2147483647\.0|4294967295\.0)")
POWERS_OF_TWO = (-32768.0, -2147483648.0)
CLOCK_NAME = re.compile(r"time|date|stamp|clock|epoch|index|^row|^unnamed|^sample(_?(no|nr|num))?$")
EPOCHS = tuple((1e9 * unit, 2.5e9 * unit) for unit in (1.0, 1e3, 1e6, 1e9))
"""The years 2001 to 2049 in seconds, milliseconds, ... since 1970."""


class Code(NamedTuple):
    """A far-out value that is repeated, as recorders write it where they have no sample."""

    value: float
    rows: int
    first_row: int
    low: float
    high: float


class Counter(NamedTuple):
    """A column that moves one way only, apart from resets."""

    direction: int
    moves: int
    resets: int


class StandStill(NamedTuple):
    """The longest run of one value."""

    value: float
    rows: int
    first_row: int
    share: float


def find_code(column: np.ndarray) -> Code | None:
    """Find the lowest or highest value when it is repeated and far away from all others.

    A value v counts as far away when its distance to the nearest other value exceeds `FAR` times
    the range of the others (`NEAR` times for -9999 and its like, which alone may fill more than
    half the rows). 0 never does: it is where a machine stands that is switched off.
    """
    known = column[~np.isnan(column)]
    if len(known) < LEAST_ROWS:
        return None
    for value in (float(known.min()), float(known.max())):
        is_value = known == value
        count = int(is_value.sum())
        if value == 0.0 or count < 2 or len(known) - count < LEAST_DISTINCT:
            continue
        rest = known[~is_value]
        low, high = float(rest.min()), float(rest.max())
        other = high if value < low else low  # perhaps a second code, at the other end
        if (rest == other).sum() > 1 and (rest != other).any():
            inner = rest[rest != other]
            if _is_far(other, float(inner.min()), float(inner.max())):
                rest, low, high = inner, float(inner.min()), float(inner.max())
        if count > len(rest) and not _is_made_for_it(value):
            continue  # the usual value, and the others are the exception
        if _is_far(value, low, high) and len(np.unique(rest)) >= LEAST_DISTINCT:
            return Code(value, count, int(np.argmax(column == value)), low, high)
    return None


def _is_far(value: float, low: float, high: float) -> bool:
    distance = low - value if value < low else value - high
    return distance > (NEAR if _is_made_for_it(value) else FAR) * (high - low)


def _is_made_for_it(value: float) -> bool:
    """Whether the number is one that programs write for "none": nines, an integer's end."""
    return MADE_FOR_IT.fullmatch(repr(value)) is not None or value in POWERS_OF_TWO


def clock_step(name: str, column: np.ndarray, time: np.ndarray | None = None) -> float | None:
    """Return the typical step of a clock or a row number, None for anything else.

    A clock rises in every row and one of these holds: nearly all its steps are equal; it keeps
    to a straight line within a step (a rounded clock); it is proportional to the time column; its
    values are seconds since 1970 or the like; its name says so.
    """
    if len(column) < LEAST_ROWS or np.isnan(column).any():
        return None
    steps = np.diff(column)
    if not steps.min() > 0:
        return None
    step = float(np.median(steps))
    rounding = 8 * np.finfo(np.float64).eps * float(np.abs(column).max())
    is_usual = np.abs(steps - step) <= 1e-6 * step + rounding
    is_epoch = any(low <= column[0] and column[-1] <= high for low, high in EPOCHS)
    if (
        is_usual.mean() >= 0.95
        or _is_rounded_line(column, steps, step)
        or (time is not None and _is_proportional(column, time))
        or (is_epoch and np.abs(steps - step).mean() < 0.5 * step)
        or CLOCK_NAME.search(name.strip().lower())
    ):
        return step
    return None


def _is_rounded_line(column: np.ndarray, steps: np.ndarray, step: float) -> bool:
    sizes = np.unique(np.round(steps / step, 6))
    rows = np.arange(len(column))
    line = np.polyval(np.polyfit(rows, column, 1), rows)
    return len(sizes) <= 2 and bool(np.abs(column - line).max() <= 0.75 * step)


def _is_proportional(column: np.ndarray, time: np.ndarray) -> bool:
    passed = (time - time[0]).astype(np.float64)
    risen = column - column[0]
    return bool(np.abs(risen - risen[-1] * passed / passed[-1]).max() <= 1e-6 * risen[-1])


def find_counter(column: np.ndarray) -> Counter | None:
    """Find a column that only ever rises (or falls), perhaps with resets to where it began."""
    known = column[~np.isnan(column)]
    if len(known) < LEAST_ROWS:
        return None
    steps = np.diff(known)
    rises, falls = int((steps > 0).sum()), int((steps < 0).sum())
    direction = 1 if rises >= falls else -1
    moves, reversals = max(rises, falls), np.flatnonzero(direction * steps < 0)
    if moves < LEAST_MOVES:
        return None
    if len(reversals):
        height = direction * known
        low, span = float(height.min()), float(np.ptp(height))
        falls_far = -direction * steps[reversals] >= RESET_DROP * span
        lands_low = height[reversals + 1] - low <= RESET_LANDING * span
        runs = len(known) / (len(reversals) + 1)
        enough = runs >= LEAST_RUN and moves >= LEAST_MOVES * (len(reversals) + 1)
        if not (enough and falls_far.all() and lands_low.all()):
            return None
    return Counter(direction, moves, len(reversals))


def longest_stand_still(column: np.ndarray) -> StandStill | None:
    """Find a run of one value over half the rows, or a quarter if the sensor else moves.

    Missing samples end a run.
    """
    if len(column) < LEAST_ROWS:
        return None
    firsts, lengths = _runs(column)
    longest = int(np.argmax(lengths))
    rows, share = int(lengths[longest]), float(lengths[longest] / len(column))
    if share < STILL_SHARE:
        others = len(column) - rows
        moves_else = (len(lengths) - 1) / others if others else 0.0
        if share < STILL_WHILE_MOVING or moves_else < STILL_SHARE:
            return None
    first = int(firsts[longest])
    return StandStill(float(column[first]), rows, first, share)


def find_frozen(column: np.ndarray) -> StandStill | None:
    """Find one long run of a value in a sensor that changes nearly always and never stands so long.

    At its lowest or highest value a sensor is saturated or switched off, not frozen.
    """
    firsts, lengths = _runs(column)
    if len(lengths) < LEAST_ROWS:
        return None
    longest = int(np.argmax(lengths))
    rows, first = int(lengths[longest]), int(firsts[longest])
    value, others = float(column[first]), np.delete(lengths, longest)
    if rows < max(FROZEN_ROWS, FROZEN_TIMES * others.max()):
        return None
    is_extreme = value in (np.fmin.reduce(column), np.fmax.reduce(column))
    if is_extreme or len(others) < FROZEN_MOVING * others.sum():
        return None
    return StandStill(value, rows, first, rows / len(column))


def _runs(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First rows and lengths of the runs of one value; a missing sample is a run of its own."""
    edges = np.flatnonzero(np.concatenate([[True], column[1:] != column[:-1], [True]]))
    return edges[:-1], np.diff(edges)
