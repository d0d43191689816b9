"""The text of `rca --window`: steps, or times with or without a zone."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from fedgranger.data.panel import Panel
from fedgranger.errors import ConfigError, DataError


def window_steps(text: str, panel: Panel) -> tuple[int, int]:
    """Step range of a window's text, which must lie inside the data."""
    zone = " UTC" if panel.time_zone else ""
    if _has_zone(text) and panel.time.dtype.kind == "M" and not panel.time_zone:
        raise ConfigError(
            f"--window '{text}' names a zone, but the times of the data have none; write it as in "
            f"the data, such as {panel.time[0]}/{panel.time[-1]}, or pass --time-zone"
        )
    try:
        if "/" in text:
            first, stop = _between(text, panel)
        else:
            first, stop = (int(part) for part in text.split(":"))
    except ValueError:
        raise ConfigError(
            f"--window '{text}' is neither steps such as 160:960 nor times such as "
            f"{panel.time[0]}/{panel.time[-1]}{zone}"
        ) from None
    if stop < first:
        raise DataError(f"--window '{text}' ends before it begins; give the earlier end first")
    if not 0 <= first < stop <= panel.num_steps:
        raise DataError(
            f"--window '{text}' is not inside the data, which have steps 0:{panel.num_steps} "
            f"({panel.time[0]}/{panel.time[-1]}{zone})"
        )
    return first, stop


def window_name(text: str, panel: Panel) -> str:
    """The window as it was given; times without a zone are UTC where the data have one."""
    is_bare = "/" in text and not _has_zone(text)
    return f"window {text}{' UTC' if is_bare and panel.time_zone else ''}"


def _has_zone(text: str) -> bool:
    return any(_zoned(part) is not None for part in text.split("/", 1))


def _between(text: str, panel: Panel) -> tuple[int, int]:
    """Steps from one time to another, both included; −1 where they begin before the data.

    The second is before the first where the times are.
    """
    ends = [_time(part.strip(), panel) for part in text.split("/", 1)]
    if ends[1] < ends[0]:
        return 1, 0
    if ends[0] < panel.time[0]:
        return -1, 0
    first, stop = (int(np.searchsorted(panel.time, end)) for end in ends)
    return first, stop + (stop < panel.num_steps and bool(panel.time[stop] == ends[1]))


def _time(text: str, panel: Panel) -> np.datetime64 | float:
    """A time on the data's axis, which is in UTC where the data have a zone."""
    if panel.time.dtype.kind != "M":
        return float(text)
    found = _zoned(text)
    if found is None:
        return np.datetime64(text)
    return np.datetime64(found.astimezone(UTC).replace(tzinfo=None), "ns")


def _zoned(text: str) -> datetime | None:
    """The time, where its text has a zone such as Z or +01:00."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
