"""Durations as options take them, and the option `period`: durations or whole steps."""

from __future__ import annotations

import re
from typing import Any, Literal

from fedgranger.errors import ConfigError
from fedgranger.text import listed

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
ALSO = {"D": "d", "H": "h", "T": "min", "S": "s", "L": "ms", "W": "w"}
"""Units as pandas writes them."""
DURATION = re.compile(rf"(\d{{1,9}}(?:\.\d{{1,6}})?|)\s*({'|'.join((*UNITS, *ALSO))})")


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
            commas between them, a duration of Python, NumPy or pandas, or a list of these.

    Returns:
        "auto", "none" or a tuple of whole steps and durations, without repetitions.

    Raises:
        ConfigError: says what is not understood and what is.

    Example:
        >>> read_period("24, 168"), read_period([24]), read_period("1d")
        ((24, 168), (24,), ('1 d',))
    """
    if isinstance(value, str) and value in ("auto", "none"):
        return value
    parts = value.split(",") if isinstance(value, str) else listed(value)
    if parts is None:
        parts = [value]
    found = tuple(dict.fromkeys(_read_one(part, value) for part in parts))
    if not 1 <= len(found) <= MOST_PERIODS:
        raise ConfigError(
            f"period is {value!r}; give one to {MOST_PERIODS} periods, 'auto' or 'none'"
        )
    return found


def _read_one(part: Any, value: Any) -> int | str:
    text = part.strip() if isinstance(part, str) else part
    is_digits = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 10
    if is_digits or type(text).__name__.startswith(("int", "uint")):  # NumPy's too
        text = int(text)
    if type(text) is int and 2 <= text <= LONGEST:
        return text
    found = read_duration(text)
    if found is None:
        raise ConfigError(
            f"period is {value!r}; give whole steps of at least 2 (24, or 24,168), durations such "
            "as '1 d' or '12 h' (ms, s, min, h, d, w), 'auto' or 'none'"
        )
    return " ".join(found)


def read_duration(value: Any) -> tuple[str, str] | None:
    """Number and unit of a duration: a text, or one of Python, NumPy or pandas; None: it is none.

    Example:
        >>> read_duration("1D"), read_duration("h"), read_duration("0 s")
        (('1', 'd'), ('1', 'h'), None)
    """
    value = getattr(value, "freqstr", value)  # an offset of pandas
    if isinstance(value, str):
        match = DURATION.fullmatch(value.strip())
        number = float(match[1] or 1) if match else 0.0
        return (f"{number:.15g}", ALSO.get(match[2], match[2])) if match and number else None
    if type(value).__name__ == "timedelta64":
        length = int(value.astype("timedelta64[ns]").astype("int64"))
    elif hasattr(value, "total_seconds") and value.total_seconds() > 0:
        length = round(value.total_seconds() * UNITS["s"])
    else:
        return None
    if length <= 0:
        return None
    unit = next((u for u in ("d", "h", "min", "s") if length % UNITS[u] == 0), "ms")
    return f"{length / UNITS[unit]:.15g}", unit


def duration_text(nanoseconds: float) -> str:
    """A duration as options take it, in its largest fitting unit: `read_duration` undone.

    Example:
        >>> duration_text(90 * 60 * 10**9), duration_text(1.5e6)
        ('90min', '1.5ms')
    """
    for word in ("d", "h", "min", "s"):
        if nanoseconds >= UNITS[word] and nanoseconds % UNITS[word] == 0:
            return f"{int(nanoseconds // UNITS[word])}{word}"
    return f"{nanoseconds / 1e6:.6f}".rstrip("0").rstrip(".") + "ms"


def duration_nanoseconds(text: str) -> int:
    """Length of a duration that `read_period` has returned.

    Example:
        >>> duration_nanoseconds("1.5 h") == 90 * 60 * 10**9
        True
    """
    number, unit = text.split(" ")
    return round(float(number) * UNITS[unit])
