"""Names and numbers as people read them, on the page and in the terminal; lists as they write."""

import difflib
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from shlex import quote
from typing import Any

SMALLEST_SHOWN = 1e-99
LONGEST_LINE = 16
MOST_NAMES = 8
NEAR = 0.5
"""Words less alike than this are not proposed."""
# Characters that XML 1.0 forbids, and lone surrogates, which UTF-8 cannot write.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_INVISIBLE = re.compile("[\u200b-\u200f\u2028-\u202e]")
LONGEST_UNIT = 12
_UNIT_AT_END = re.compile(
    rf"\s*[\[(](?=.{{1,{LONGEST_UNIT}}}[\])]\s*$)([^\[\]()]+(?:\([^\[\]()]*\))?)[\])]\s*$"
)


def printable(text: object) -> str:
    """Replace characters that neither HTML nor UTF-8 can hold."""
    return _UNPRINTABLE.sub("\ufffd", str(text))


def shorten(name: object, max_chars: int = 28) -> str:
    """One visible line; a long name keeps its start and its end, where names often differ.

    Example:
        >>> shorten("north_wing_pump_house_pressure_sensor_07")
        'north_wing_pump_ho…sensor_07'
    """
    text = _INVISIBLE.sub("\ufffd", printable(" ".join(str(name).split())))
    if len(text) <= max_chars:
        return text
    tail = max_chars // 3
    return f"{text[: max_chars - tail - 1]}…{text[len(text) - tail :]}"


def unit_of(sensor: str) -> str:
    """The unit in brackets at the end of a sensor's name, "" when there is none.

    Example:
        >>> unit_of("P03 [bar]"), unit_of("P03 [bar(g)]"), unit_of("P03")
        ('bar', 'bar(g)', '')
    """
    found = _UNIT_AT_END.search(sensor)
    return found.group(1) if found else ""


def without_unit(sensor: str) -> str:
    """A sensor's name without the unit at its end."""
    return _UNIT_AT_END.sub("", sensor)


def with_unit(sensor: str, units: Mapping[str, str]) -> str:
    """A sensor's name with its unit in brackets, where one is known and not there already."""
    unit = units.get(sensor, "")
    return f"{sensor} [{unit}]" if unit and not unit_of(sensor) else sensor


def enumerated(words: Sequence[str]) -> str:
    """Words in a sentence.

    Example:
        >>> enumerated(["a", "b", "c"]), enumerated(["a"])
        ('a, b and c', 'a')
    """
    return " and ".join((*([", ".join(words[:-1])] if words[1:] else []), *words[-1:]))


def quoted_list(names: Iterable[str]) -> str:
    """Quote names one after the other, the first eight of many."""
    quoted = [f"'{name}'" for name in names]
    if len(quoted) > MOST_NAMES:
        return f"{', '.join(quoted[:MOST_NAMES])} and {len(quoted) - MOST_NAMES} more"
    return ", ".join(quoted)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """What proposes the nearest of the known words in a sentence; empty where none is near.

    Example:
        >>> did_you_mean("Boilr", ["boiler", "turbine"]), did_you_mean("x", ["boiler"])
        (" (did you mean 'boiler'?)", '')

    Dashes before an option make it no nearer to another one.
    """
    as_known = {str(one).lower().lstrip("-"): one for one in known}
    nearest = difflib.get_close_matches(word.lower().lstrip("-"), as_known, n=1, cutoff=NEAR)
    return f" (did you mean '{as_known[nearest[0]]}'?)" if nearest else ""


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun, which has an s where there is not one of it; or with `many`.

    Example:
        >>> counted(1, "row"), counted(3, "row"), counted(2, "line holds", "lines hold")
        ('1 row', '3 rows', '2 lines hold')
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def as_flags(options: Mapping[str, str]) -> str:
    """Options by name as the command line takes them.

    Example:
        >>> as_flags({"skip_rows": "2", "leave_out": "status text"})
        "--skip-rows 2 --leave-out 'status text'"
    """
    return " ".join(f"--{name.replace('_', '-')} {quote(one)}" for name, one in options.items())


def kind_of(value: object) -> str:
    """What a value is, for the refusal of one that is something else.

    Example:
        >>> import numpy as np
        >>> kind_of(3), kind_of({}), kind_of(np.ones(2)), kind_of(None)
        ('an int', 'a dict', 'an ndarray', 'None')
    """
    if value is None:
        return "None"
    name = type(value).__name__
    is_spoken_with_n = name.lower().startswith(("a", "e", "i", "o", "nd"))
    return f"{'an' if is_spoken_with_n else 'a'} {name}"


def wrap(text: str) -> tuple[str, ...]:
    """Break a text of more than 16 characters in two, after the separator nearest its middle.

    Example:
        >>> wrap("north_wing_pump_ho…sensor_07")
        ('north_wing_pump_', 'ho…sensor_07')
    """
    if len(text) <= LONGEST_LINE:
        return (text,)
    half = len(text) / 2
    breaks = [k + 1 for k, char in enumerate(text[:-1]) if char in " _-./:,…" and k > 0]
    at = min(breaks, key=lambda k: abs(k - half), default=round(half))
    if max(at, len(text) - at) > 1.2 * LONGEST_LINE:
        at = round(half)
    return text[:at], text[at:]


def format_number(value: float | None) -> str:
    """Three decimals, or three digits where decimals would hide them: columns line up.

    Example:
        >>> [format_number(x) for x in (0.1234, 0.00004567, 4.0, None)]
        ['0.123', '4.57e-05', '4.000', '–']
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    return f"{value:.3f}" if 1e-3 <= abs(value) < 1e5 else f"{value:.2e}"


def format_digits(value: float | None, digits: int = 3, empty: str = "–") -> str:
    """A number with so many digits, as short as it can be; `empty` where there is none."""
    if value is None or math.isnan(value):
        return empty
    return "<1e-99" if 0 < value < SMALLEST_SHOWN else f"{value:.{digits}g}"


def format_probability(value: float | None) -> str:
    """A p-value like any number, but never an exact 0."""
    return "<1e-99" if value is not None and value < SMALLEST_SHOWN else format_number(value)


def format_share(value: float | None) -> str:
    """A share in percent with one decimal."""
    return "–" if value is None else f"{100 * value:.1f} %"


def utc_stamp(seconds: float | None = None) -> str:
    """A moment, now by default, in universal time.

    Example:
        >>> utc_stamp(0.0)
        '1970-01-01T00:00:00Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def format_bytes(count: float | None) -> str:
    """A number of bytes in B, kB, MB, GB or TB (powers of 1000), with three digits."""
    if count is None or not math.isfinite(count):
        return "–"
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"


_SPANS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))


def elapsed(steps: float, step_seconds: float | None) -> str:
    """So many steps as a time span, or as steps where their length is not known.

    Example:
        >>> elapsed(0, 60.0), elapsed(90, 60.0), elapsed(3, None), elapsed(1, None)
        ('0 min', '1.5 h', '3 steps', '1 step')
    """
    size, unit = time_unit(steps, step_seconds)
    if step_seconds is None:
        unit = "step" if steps == 1 else unit
    return f"{steps * size:.3g} {unit}"


def time_unit(steps: float, step_seconds: float | None) -> tuple[float, str]:
    """The unit in which so many steps are shown (none: one), and how many of it one step has."""
    if step_seconds is None:
        return 1.0, "steps"
    seconds = abs(steps or 1) * step_seconds
    size, unit = next((span for span in _SPANS if seconds >= span[0]), _SPANS[-1])
    return step_seconds / size, unit


def listed(value: Any) -> list[Any] | None:
    """The parts of a list, tuple, set, index, column or array; None: a text or a single value.

    Those of a set in the order of their texts, so that equal options are equal.

    Example:
        >>> listed({"b", "a"}), listed("a,b"), listed(24)
        (['a', 'b'], None, None)
    """
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return None
    if getattr(value, "ndim", 1) != 1:
        return None
    return sorted(value, key=str) if isinstance(value, Set) else list(value)
