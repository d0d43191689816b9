"""The option `period`: whole steps, or durations that become steps where time stamps are known."""

from __future__ import annotations

import re
from typing import Any, Literal

from fedgranger.errors import ConfigError

Period = Literal["auto", "none"] | tuple[int | str, ...]
MOST_PERIODS = 4
"""More periods than this are no calendar but a filter."""
LONGEST = 10**9
UNITS = {
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
    "w": 7 * 86_400 * 10**9,
}
CALENDAR = {"1d": UNITS["d"], "7d": UNITS["w"]}
"""Periods that are searched for by name, in nanoseconds."""
CALENDAR_REPEATS = 5
"""So often a day or a week must be in the record to be searched for."""
SHORTEST_STEPS = 4
"""Of the shortest period that is searched for."""
DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|min|h|d|w)")


def unsearched_calendar(num_steps: int, interval: float) -> tuple[str, ...]:
    """Day and week, up to the longest that a record holds twice, but too seldom to be searched for.

    Empty where the search leaves out nothing that could be removed.

    Example:
        >>> unsearched_calendar(3 * 24, 3600e9), unsearched_calendar(6 * 24, 3600e9)
        (('1d',), ())
    """
    fine = [name for name, length in CALENDAR.items() if length >= SHORTEST_STEPS * interval]
    times = [num_steps * interval / CALENDAR[name] for name in fine]
    last = max((k for k, count in enumerate(times) if 2 <= count < CALENDAR_REPEATS), default=-1)
    return tuple(fine[: last + 1])


def read_period(value: Any) -> Period:
    """Bring every way to write the option into one form, so that equal options are equal.

    Args:
        value: "auto", "none", a number of steps, a duration such as "12 h", several of them with
            commas between them, or a list.

    Returns:
        "auto", "none" or a tuple of whole steps and durations, without repetitions.

    Raises:
        ConfigError: says what is not understood and what is.

    Example:
        >>> read_period("24, 168"), read_period([24]), read_period("1d")
        ((24, 168), (24,), ('1 d',))
    """
    if value in ("auto", "none"):
        return value
    if isinstance(value, str):
        parts: list[Any] = value.split(",")
    elif isinstance(value, list | tuple):
        parts = list(value)
    else:
        parts = [value]
    found = tuple(dict.fromkeys(_read_one(part, value) for part in parts))
    if not 1 <= len(found) <= MOST_PERIODS:
        raise ConfigError(
            f"period is {value!r}; give one to {MOST_PERIODS} periods, 'auto' or 'none'"
        )
    return found


def _read_one(part: Any, value: Any) -> int | str:
    text = part.strip() if isinstance(part, str) else part
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 10:
        text = int(text)
    if type(text) is int and 2 <= text <= LONGEST:
        return text
    match = DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None or float(match[1]) == 0:
        raise ConfigError(
            f"period is {value!r}; give whole steps of at least 2 (24, or 24,168), durations such "
            "as '1 d' or '12 h' (ms, s, min, h, d, w), 'auto' or 'none'"
        )
    return f"{float(match[1]):.15g} {match[2]}"


def duration_nanoseconds(text: str) -> int:
    """Length of a duration that `read_period` has returned.

    Example:
        >>> duration_nanoseconds("1.5 h") == 90 * 60 * 10**9
        True
    """
    number, unit = text.split(" ")
    return round(float(number) * UNITS[unit])
