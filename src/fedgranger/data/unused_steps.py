"""Time steps of a client that are none of the common axis, told from what the client says of it."""

from __future__ import annotations

from collections.abc import Mapping

from fedgranger.data.clock_steps import duration_text
from fedgranger.data.time_axis import TOLERANCE, TimeGrid, TimeRange, period_in_utc


def unused_notes(ranges: Mapping[str, TimeRange], grid: TimeGrid) -> list[str]:
    """Which clients of a federation have steps that are left out, and what would use them.

    Whoever joins its rows to steps of the common axis loses none; these lie on full steps of the
    clock, so where the axis does not, every client has to.
    """
    is_on_clock = abs((place := grid.first / grid.interval) - round(place)) <= TOLERANCE
    notes = []
    for name, mine in sorted(ranges.items()):
        whole = sum(stop - start for start, stop in mine.stretches)
        lost = whole - _used_steps(mine, grid)
        if not lost:
            continue
        note = (
            f"client '{name}': {lost} of {whole} time steps are not on the common time axis "
            f"({period_in_utc(grid)}) and are left out"
        )
        if grid.time_kind == "stamps" and 2 * mine.interval <= grid.interval:
            at = "" if is_on_clock else " at every client"
            step = duration_text(int(grid.interval))
            note += f"; 'federation start' with --resample {step}{at} uses them all"
        notes.append(note)
    return notes


def _used_steps(mine: TimeRange, grid: TimeGrid) -> int:
    """How many of a client's steps are on the common axis, which covers all between its ends."""
    multiple = round(grid.interval / mine.interval)
    begin = round((grid.first - mine.first) / mine.interval)
    end = begin + (grid.stretches[-1][1] - 1) * multiple
    used = 0
    for start, stop in mine.stretches:
        low, high = max(start, begin), min(stop - 1, end)
        used += max((high - begin) // multiple + (begin - low) // multiple + 1, 0)
    return used
