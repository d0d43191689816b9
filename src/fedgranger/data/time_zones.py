"""Time zones as time stamps and options name them: Europe/Berlin, +01:00, UTC."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Sequence
from datetime import UTC, timedelta, timezone, tzinfo

import numpy as np
import pandas as pd

from fedgranger.errors import ConfigError, DataError

WRITTEN = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)\s*$")
OFFSET = re.compile(r"([+-])(0\d|1[0-4]):([0-5]\d)")

PROPOSED_ZONES = (
    "Europe/Berlin",
    "Europe/London",
    "America/New_York",
    "America/Chicago",
    "America/Denver",
    "America/Los_Angeles",
    "Australia/Sydney",
)
"""Tried where a clock seems to have been put back."""
LONGEST_REPEAT = np.timedelta64(1, "h")


def find_zone(name: str) -> tzinfo | None:
    """The zone of a name or of a fixed offset such as -05:30; None when there is none."""
    if name == "UTC":
        return UTC
    fixed = OFFSET.fullmatch(name)
    if fixed is not None:
        offset = timedelta(hours=int(fixed[2]), minutes=int(fixed[3]))
        return timezone(-offset if fixed[1] == "-" else offset)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def written_zone(place: str, texts: Sequence[str]) -> str:
    """The zone that all time stamps name, several with commas; "" where none does.

    Raises:
        DataError: some name one and others do not.
    """
    offsets = [_offset(text) for text in texts]
    known = sorted(set(offsets))
    if "" in known and len(known) > 1:
        without, first = offsets.index(""), offsets.index(known[1])
        raise DataError(
            f"{place} {without + 1}: the time '{texts[without]}' names no time zone, but "
            f"'{texts[first]}' in data row {first + 1} does; write the zone in all rows or in none"
        )
    return ", ".join(known)


def _offset(text: str) -> str:
    """The offset at the end of a time stamp, as options write it."""
    found = WRITTEN.search(text) if ":" in text else None
    if found is None:
        return ""
    digits = found[1].replace(":", "").ljust(5, "0")
    return "UTC" if digits[1:] == "0000" else f"{digits[:3]}:{digits[3:]}"


def to_utc(place: str, times: np.ndarray, zone: str) -> np.ndarray:
    """Wall-clock times of a zone in UTC; an hour that comes twice is told by its order."""
    if times.dtype.kind != "M":
        raise ConfigError(
            f"{place.removesuffix(', data row')}: time_zone is '{zone}', but the times are "
            "numbers; leave --time-zone out"
        )
    known = find_zone(zone)
    if known is None:
        raise ConfigError(
            f"time_zone is '{zone}', which is not a time zone; pass one such as Europe/Berlin, "
            "+01:00 or UTC (--time-zone)"
        )
    try:
        local = pd.DatetimeIndex(times).tz_localize(known, ambiguous="infer")
    except ValueError as error:
        raise DataError(
            f"{place.removesuffix(', data row')}: the times do not fit the clock of {zone}, "
            "where one hour in spring does not exist and one in autumn comes twice; export the "
            "data in UTC, or pass another --time-zone"
        ) from error
    return local.tz_convert(None).to_numpy().astype("datetime64[ns]")


def fitting_zone(times: np.ndarray, row: int) -> str:
    """The first zone in whose clock all times rise; "" when there is none."""
    if times.dtype.kind != "M" or times[row - 1] - times[row] > LONGEST_REPEAT:
        return ""
    for zone in PROPOSED_ZONES:
        try:
            local = pd.DatetimeIndex(times).tz_localize(zone, ambiguous="infer")
        except (ValueError, zoneinfo.ZoneInfoNotFoundError):
            continue
        if local.is_monotonic_increasing and local.is_unique:
            return zone
    return ""
