"""Time zones as time stamps and options name them: Europe/Berlin, +01:00, UTC."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Sequence
from datetime import UTC, timedelta, timezone, tzinfo

from fedgranger.errors import DataError

WRITTEN = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)\s*$")
OFFSET = re.compile(r"([+-])(0\d|1[0-4]):([0-5]\d)")


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
