"""Bring the clients' tables, or a panel, onto one regular time axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from shlex import quote
from typing import NamedTuple

import numpy as np

from fedgranger.data.common_axis import agree
from fedgranger.data.panel import Panel
from fedgranger.data.time_axis import (
    LocalSeries,
    TimeGrid,
    TimeRange,
    axis_range,
    grid_time,
    on_grid,
    period_text,
    places_on,
)
from fedgranger.data.time_stamps import shown_time
from fedgranger.data.time_zones import find_zone
from fedgranger.data.treatment import ClientTable
from fedgranger.errors import DataError, ReadingError
from fedgranger.linalg.unbroken_steps import LONGEST_GAP
from fedgranger.periods import duration_text
from fedgranger.text import quoted_list

USES_ALL = "; --resample ", " uses them all"
"""How a note on rows that were left out ends, around the interval that would use them."""


def unused_rows(notes: Iterable[str]) -> dict[str, str]:
    """Notes on rows that were left out although an interval would use them, and that interval.

    Example:
        >>> unused_rows(["client 'a': 8 of 10 rows are left out; --resample 5min uses them all"])
        {"client 'a': 8 of 10 rows are left out": '5min'}
    """
    parts = (note.removesuffix(USES_ALL[1]).split(USES_ALL[0]) for note in notes)
    return {part[0]: part[1] for part in parts if len(part) == 2}


def align(tables: list[ClientTable]) -> tuple[np.ndarray, list[str]]:
    """Put all clients on one time axis (`time_axis`); rows that a client lacks become NaN.

    Tables whose rows change are replaced in the list one by one, so that only one client is in
    memory twice at any moment.

    Returns:
        The common time axis and notes on rows that are not on it and on steps without a row.
    """
    if all(table.time is None for table in tables):
        time, notes = _row_axis(tables), []
    else:
        axes, notes = _time_axes(tables), []
        time = axes[0]
        if not all(is_same_axis(axis, time) for axis in axes):
            time = _on_common_axis(tables, axes, notes)
    if len(time) < 2:
        raise DataError(
            f"the clients share {len(time)} time step; at least two are needed, so give more rows"
        )
    return time, notes


class RegularPanel(NamedTuple):
    """A panel on the grid of its time axis, short gaps closed by missing rows.

    So does a federation. The interval is None where the rows lie on no grid.
    """

    panel: Panel
    axis: TimeRange
    interval: float | None


def regular_panel(panel: Panel) -> RegularPanel:
    """Put a panel on its grid; one without a grid stays as it is.

    Steps that follow each other are then told by their distance alone, and the rows are the axis.
    """
    try:
        axis = axis_range(panel.names[0], panel.time)
    except DataError:
        return RegularPanel(panel, _axis_of_rows(panel.segment_starts), None)
    grid = TimeGrid(axis.time_kind, axis.first, axis.interval, axis.stretches)
    time = grid_time(grid).astype(panel.time.dtype, copy=False)
    clients = panel.clients
    if len(time) > panel.num_steps:
        clients = tuple(on_grid(LocalSeries(client, panel.time), grid) for client in panel)
    panel = replace(panel, clients=clients, time=time)
    return RegularPanel(panel, axis, float(axis.interval))


def _axis_of_rows(starts: np.ndarray) -> TimeRange:
    """Row numbers with a gap before every start of a segment."""
    first = np.flatnonzero(starts)
    moved = np.arange(len(first)) * (LONGEST_GAP + 1)
    stops = np.append(first[1:], len(starts)) + moved
    stretches = tuple(zip((first + moved).tolist(), stops.tolist(), strict=True))
    last = Fraction(stretches[-1][1] - 1)
    return TimeRange("numbers", Fraction(0), last, Fraction(1), stretches)


def is_same_axis(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether two time axes are equal in kind and value."""
    return left is right or (left.dtype == right.dtype and np.array_equal(left, right))


def _row_axis(tables: list[ClientTable]) -> np.ndarray:
    first = tables[0]
    for table in tables[1:]:
        if len(table.values) != len(first.values):
            raise DataError(
                f"client '{first.name}' has {len(first.values)} rows and client '{table.name}' has "
                f"{len(table.values)}, and without a time column they cannot be aligned; add a "
                "time column or give every client the same rows"
            )
    return np.arange(len(first.values))


def _time_axes(tables: list[ClientTable]) -> list[np.ndarray]:
    """Return comparable time axes of all clients."""
    timed = [table for table in tables if table.time is not None]
    for table in tables:
        if table.time is None:
            raise DataError(
                f"client '{table.name}' has no time column but client '{timed[0].name}' has one; "
                "add it, or pass time_column='none' (--time-column none) to use rows as time"
            )
    times = [table.time for table in tables if table.time is not None]
    is_stamp = [time.dtype.kind == "M" for time in times]
    if any(is_stamp) and not all(is_stamp):
        raise DataError(
            f"client '{tables[is_stamp.index(True)].name}' has time stamps but client "
            f"'{tables[is_stamp.index(False)].name}' has numbers as time; use one kind for all"
        )
    _refuse_mixed_zones(tables)
    kind = np.result_type(*times)  # float64 when some are whole numbers
    return [time.astype(kind, copy=False) for time in times]


def _refuse_mixed_zones(tables: list[ClientTable]) -> None:
    """Refuse clients whose time stamps name no zone beside others that have one.

    A zone that all others share is proposed, but UTC is not: there it may be a program's choice.
    """
    zoned = [table for table in tables if table.zone]
    without = [table for table in tables if not table.zone]
    if not zoned or not without:
        return
    other, names = zoned[0], quoted_list(table.name for table in without)
    start = "" if without[0].time is None else shown_time(without[0].time[0])
    fact = (
        f"client {names}: the time stamps (the first is {start}) name no time zone, but those of "
        f"client '{other.name}' are in {other.zone}, so they cannot be compared"
    )
    zones = {table.zone for table in zoned}
    is_sure = len(zones) == 1 and other.zone != "UTC" and find_zone(other.zone) is not None
    proposed = {table.name: other.zone if is_sure else "UTC" for table in without}
    flag = quote(",".join(f"{name}={zone}" for name, zone in proposed.items()))
    reason = "their clock is the same" if is_sure else "they are in UTC"
    example = "UTC" if is_sure else "Europe/Berlin"
    message = (
        f"{fact}; pass --time-zone {flag} if {reason}, or the zone of their clock (such as "
        f"{example}) in its place"
    )
    raise ReadingError(message, {"time_zone": proposed}) if is_sure else DataError(message)


def _on_common_axis(
    tables: list[ClientTable], axes: list[np.ndarray], notes: list[str]
) -> np.ndarray:
    own = {
        table.name: axis_range(table.name, axis) for table, axis in zip(tables, axes, strict=True)
    }
    grid, coarsest = agree(own), max(axis.interval for axis in own.values())
    for k, (table, axis) in enumerate(zip(tables, axes, strict=True)):
        place = places_on(table.name, axis, grid, own[table.name].interval)
        values = np.full((grid.num_steps, len(table.sensors)), np.nan)
        values[place[place >= 0]] = table.values[place >= 0]
        tables[k] = table._replace(values=values)
        used = int((place >= 0).sum())
        if used < len(axis):
            is_finer = grid.time_kind == "stamps" and 2 * own[table.name].interval <= grid.interval
            hint = f"{USES_ALL[0]}{duration_text(int(coarsest))}{USES_ALL[1]}"
            now, then = ("is", "was") if len(axis) - used == 1 else ("are", "were")
            notes.append(
                f"client '{table.name}': {len(axis) - used} of {len(axis)} rows {now} not on the "
                f"common time axis ({period_text(grid)}) and {then} left out"
                f"{hint if is_finer else ''}"
            )
        if used < grid.num_steps:
            verbs = ("has", "counts") if grid.num_steps - used == 1 else ("have", "count")
            notes.append(
                f"client '{table.name}': {grid.num_steps - used} of {grid.num_steps} time steps "
                f"{verbs[0]} no row and {verbs[1]} as missing"
            )
    return grid_time(grid).astype(axes[0].dtype, copy=False)
