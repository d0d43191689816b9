"""Bring the clients onto one time axis and turn them into checked `ClientData`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fedgranger.data.findings import Finding, lost_rows
from fedgranger.data.input_checks import TimeAxis
from fedgranger.data.panel import ClientData, Panel
from fedgranger.data.time_axis import (
    LocalSeries,
    TimeGrid,
    TimeRange,
    agree,
    axis_range,
    grid_time,
    on_grid,
    period_text,
    places_on,
)
from fedgranger.data.treatment import NO_TREATMENT, Treatment
from fedgranger.errors import DataError
from fedgranger.linalg.unbroken_steps import LONGEST_GAP


class ClientTable(NamedTuple):
    """One client as read: NaN marks a missing sample; no `time` means rows are the time axis."""

    name: str
    sensors: tuple[str, ...]
    values: np.ndarray
    time: TimeAxis | None
    treatment: Treatment = NO_TREATMENT


def align(tables: list[ClientTable]) -> tuple[np.ndarray, list[str]]:
    """Put all clients on one time axis (`time_axis`); rows that a client lacks become NaN.

    Args:
        tables: the clients; entries whose rows change are replaced in this list one by one, so
            that only one client is in memory twice at any moment.

    Returns:
        The common time axis and notes on rows that are not on it and on steps without a row.
    """
    if all(table.time is None for table in tables):
        time, notes = _row_axis(tables), []
    else:
        axes, notes = _time_axes(tables)
        time = axes[0]
        if not all(is_same_axis(axis, time) for axis in axes):
            time = _on_common_axis(tables, axes, notes)
    if len(time) < 2:
        raise DataError(
            f"the clients share {len(time)} time step; at least two are needed, so give more rows"
        )
    return time, notes


class RegularPanel(NamedTuple):
    """A panel on the grid of its time axis.

    Attributes:
        panel: short gaps closed by missing rows, as a federation does.
        axis: its time axis.
        interval: between two steps; None where the rows lie on no grid.
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


def finish_client(
    table: ClientTable,
    *,
    constant: str,
    notes: list[str],
    findings: list[Finding],
    label: Callable[[str], str],
) -> ClientData:
    """Mask missing samples, see to constant sensors; append to `notes` what was done.

    Constant sensors are refused ("error"), dropped ("drop") or kept ("keep": new data for a model
    that exists, where a sensor that stands still is news). The sensor that costs most rows is
    named, with `label` as options name it.

    The values become the client's own array: they were made by the reader, so they are changed
    in place instead of copied.
    """
    name, sensors, values, _, treatment = table
    is_missing = np.isnan(values)
    num_missing = is_missing.sum(axis=0)
    for sensor, count in zip(sensors, num_missing, strict=True):
        if count == len(values) and constant != "keep":
            raise _never_observed(name, sensor)
    low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    is_constant = (low == high) & (constant != "keep")
    for sensor, value in zip(np.array(sensors)[is_constant], low[is_constant], strict=True):
        what = (
            "changes by the same amount in every row"
            if sensor in treatment.differenced
            else ("is constant")
        )
        if constant == "error":
            raise DataError(
                f"client '{name}': sensor '{sensor}' {what} ({float(value)!r}) and carries no "
                "information; remove it or pass constant='drop' (--constant drop)"
            )
        notes.append(f"client '{name}': sensor '{sensor}' {what} ({float(value)!r}), dropped")
    if is_constant.all():
        raise DataError(
            f"client '{name}': every sensor is constant, so none is left; remove the client"
        )
    if is_constant.any():
        values, is_missing = values[:, ~is_constant], is_missing[:, ~is_constant]
        sensors = tuple(s for s, drop in zip(sensors, is_constant, strict=True) if not drop)
    total = int(is_missing.sum())
    if total:
        notes.append(
            f"client '{name}': {total} of {values.size} samples ({total / values.size:.2%}) are "
            "missing and were masked"
        )
        costly = lost_rows(name, sensors, is_missing, label)
        if costly is not None:
            findings.append(costly)
            notes.append(
                f"client '{name}': sensor '{costly.sensor}' {costly.sentence}; {costly.remedy}"
            )
    values[is_missing] = 0.0
    observed = np.logical_not(is_missing, out=is_missing)
    return ClientData(name, sensors, values, observed, treatment)


def check_missing(table: ClientTable) -> None:
    """Refuse missing samples, naming the first column that has some."""
    for sensor, column in zip(table.sensors, table.values.T, strict=True):
        is_missing = np.isnan(column)
        count = int(is_missing.sum())
        if count == len(column):
            raise _never_observed(table.name, sensor)
        if count:
            raise DataError(
                f"client '{table.name}', column '{sensor}': {count} of {len(column)} samples are "
                f"missing, the first in data row {int(np.argmax(is_missing)) + 1}; fill them in "
                "or pass missing='mask' (--missing mask)"
            )


def _never_observed(name: str, sensor: str) -> DataError:
    return DataError(
        f"client '{name}': sensor '{sensor}' has no observed sample; remove the column"
    )


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


def _time_axes(tables: list[ClientTable]) -> tuple[list[np.ndarray], list[str]]:
    """Return comparable time axes of all clients, and a note on time stamps without a zone."""
    for table in tables:
        if table.time is None:
            other = next(t for t in tables if t.time is not None)
            raise DataError(
                f"client '{table.name}' has no time column but client '{other.name}' has one; add "
                "it, or pass time_column='none' (--time-column none) to use rows as time"
            )
    times = [table.time for table in tables if table.time is not None]
    is_stamp = [time.values.dtype.kind == "M" for time in times]
    if any(is_stamp) and not all(is_stamp):
        raise DataError(
            f"client '{tables[is_stamp.index(True)].name}' has time stamps but client "
            f"'{tables[is_stamp.index(False)].name}' has numbers as time; use one kind for all"
        )
    notes = [
        f"client '{table.name}': time stamps without a time zone were taken as UTC"
        for table, time in zip(tables, times, strict=True)
        if not time.is_zoned and any(other.is_zoned for other in times)
    ]
    kind = np.result_type(*(time.values for time in times))  # float64 when some are whole numbers
    return [time.values.astype(kind, copy=False) for time in times], notes


def _on_common_axis(
    tables: list[ClientTable], axes: list[np.ndarray], notes: list[str]
) -> np.ndarray:
    named = {table.name: axis for table, axis in zip(tables, axes, strict=True)}
    ranges = {name: axis_range(name, axis) for name, axis in named.items()}
    grid = agree(ranges)
    for position, table in enumerate(tables):
        name, axis = table.name, named[table.name]
        place = places_on(name, axis, grid, ranges[name].interval)
        values = np.full((grid.num_steps, len(table.sensors)), np.nan)
        values[place[place >= 0]] = table.values[place >= 0]
        tables[position] = table._replace(values=values)
        used = int((place >= 0).sum())
        if used < len(axis):
            notes.append(
                f"client '{name}': {len(axis) - used} of {len(axis)} rows are not on the common "
                f"time axis ({period_text(grid)}) and were left out"
            )
        if used < grid.num_steps:
            notes.append(
                f"client '{name}': {grid.num_steps - used} of {grid.num_steps} time steps have no "
                "row and count as missing"
            )
    return grid_time(grid).astype(axes[0].dtype, copy=False)
