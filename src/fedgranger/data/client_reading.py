"""From a file to one client's table: which columns, in which order of rows, with which remedies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from shlex import quote

import numpy as np
import pyarrow as pa

from fedgranger.data import input_checks
from fedgranger.data.align import is_same_axis
from fedgranger.data.client_tables import Table, load_table
from fedgranger.data.clock_steps import move_to_full_steps
from fedgranger.data.file_format import client_formats
from fedgranger.data.long_tables import looks_long, pivot
from fedgranger.data.named_sensors import LeftOut
from fedgranger.data.reading_options import FileOptions
from fedgranger.data.reading_remedies import (
    Source,
    date_and_clock,
    explained,
    long_format_error,
    text_column_error,
)
from fedgranger.data.time_stamps import check_order, order_rows, to_times
from fedgranger.data.treatment import ClientTable
from fedgranger.data.trial_reading import joined
from fedgranger.errors import DataError, ReadingError
from fedgranger.text import did_you_mean


def load_source(source: Source) -> Table:
    """Load a client's own file."""
    return load_table(source.where, source.path, source.written)


def read_clients(
    paths: Mapping[str, Path],
    options: FileOptions,
    load: Callable[[Source], Table] = load_source,
) -> tuple[list[ClientTable], list[str]]:
    """Read every client's own table, and notes on them.

    Raises:
        ReadingError: one sentence, which proposes what all clients need.
    """
    formats, left_out = client_formats(options, sorted(paths)), LeftOut(options.leave_out)
    tables: list[ClientTable] = []
    notes: list[str] = []
    refused: list[DataError] = []
    for name in sorted(paths):
        source = Source(f"client '{name}'", name, paths[name], formats[name])
        try:
            table, more = read_client_table(source, name, options, left_out, load)
        except ReadingError as error:
            refused.append(error)
            continue
        notes += more
        shared = tables[0].time if tables else None
        if table.time is not None and shared is not None and is_same_axis(table.time, shared):
            table = table._replace(time=shared)
        tables.append(table)
    if refused:
        raise joined(refused)
    left_out.check()
    return tables, notes


def read_client_table(
    source: Source,
    client: str,
    options: FileOptions,
    left_out: LeftOut,
    load: Callable[[Source], Table] = load_source,
) -> tuple[ClientTable, list[str]]:
    """Read one client's own table without the columns that are left out, and notes on it.

    Raises:
        ReadingError: other options may read it; they are proposed.
    """
    with explained(source):
        table = load(source)
        dropped = left_out.of_client(client, [n for n in table.names if n != table.time_name])
        found, notes = read_columns(source, table, options, dropped=dropped)
    if dropped:
        listed = ", ".join(f"'{name}'" for name in sorted(dropped))
        notes.append(f"{source.where}: left out as asked for: {listed}")
    return found._replace(name=client), notes


def read_columns(
    source: Source,
    table: Table,
    options: FileOptions,
    *,
    dropped: Collection[str] = (),
    owners: Mapping[str, str] | None = None,
) -> tuple[ClientTable, list[str]]:
    """Convert the columns of a loaded table, all but the `dropped`, or those that have `owners`.

    The owner of a column is named in messages about it. The result has no name yet, but notes.
    """
    where, written = source.where, source.written
    used = [n for n in table.names if n not in dropped and (owners is None or n in owners)]
    for name in used:
        if name in table.unnamed or (name == "__index_level_0__"):
            raise ReadingError(
                f"{where}: column {table.names.index(name) + 1} has no name; name it, or leave it "
                f"out if it is a row index (--leave-out {quote(name)}; pandas writes none with "
                "index=False)",
                {"leave_out": name},
            )
    if written.tag_column:
        return _read_long(source, table, options)
    time, zone = None, ""
    raw_time = None
    if table.time_name is not None:
        raw_time = table.take(where, table.time_name)
    sensors = [name for name in used if name != table.time_name]
    if not sensors:
        raise DataError(f"{where}: there is no sensor column beside the time; add one")
    values = _numbers(source, table, sensors, raw_time, owners or {})
    notes = list(table.notes)
    if raw_time is not None and table.time_name is not None:
        time, zone = to_times(where, table.time_name, raw_time, written)
        time, values, more = order_rows(where, time, values, options.unordered, options.repeated)
        notes += more
        check_order(where, table.time_name, time, has_zone=bool(zone))
        time, more = move_to_full_steps(where, time, options.align_tolerance)
        notes += more
    return ClientTable("", tuple(sensors), values, time, zone, units=table.units), notes


def _read_long(source: Source, table: Table, options: FileOptions) -> tuple[ClientTable, list[str]]:
    """A table with one row per sample."""
    where, written = source.where, source.written
    for option, name in (("tag", written.tag_column), ("value", written.value_column)):
        if name not in table.names:
            raise DataError(
                f"{where}: there is no column '{name}'"
                f"{did_you_mean(name, table.names)} with the samples' {option}s; pass "
                f"--{option}-column"
            )
    if table.time_name is None:
        raise DataError(
            f"{where}: a table with one row per sample needs a time column; pass --time-column"
        )
    column = table.take(where, table.time_name)
    tags = table.take(where, written.tag_column).to_pylist()
    values = _numbers(source, table, [written.value_column], None, {})[:, 0]
    time, zone = to_times(where, table.time_name, column, written)
    names, time, wide, notes = pivot(where, tags, time, values, options.repeated)
    time, more = move_to_full_steps(where, time, options.align_tolerance)
    return ClientTable("", names, wide, time, zone), [*table.notes, *notes, *more]


def _numbers(
    source: Source,
    table: Table,
    sensors: Sequence[str],
    raw_time: pa.ChunkedArray | None,
    owners: Mapping[str, str],
) -> np.ndarray:
    """All sensors as numbers; the columns that are none are all looked at before one is named."""
    values = np.empty((table.num_rows, len(sensors)))
    found: list[DataError] = []
    for position, name in enumerate(sensors):
        column, where = table.take(source.where, name), owners.get(name, source.where)
        try:
            values[:, position] = input_checks.to_numbers(
                where, name, column, source.written, raw_time
            )
        except input_checks.TextCellError as error:
            if raw_time is not None and looks_long(column, raw_time, table.names):
                raise long_format_error(source, table, name, error.fact) from error
            both = date_and_clock(source, table, name, error.cells, raw_time)
            if both:
                raise ReadingError(
                    f"{error.fact}; date and time of day seem to be in two columns (--time-column "
                    f"{quote(both)})",
                    source.proposed(time_column=both),
                ) from error
            found.append(text_column_error(source, table, name, error))
    pa.default_memory_pool().release_unused()
    if found:  # how numbers are written comes first: the rest may follow from it
        writing = [
            error
            for error in found
            if isinstance(error, ReadingError) and {"decimal", "thousands"} & set(error.proposal)
        ]
        raise joined(writing or found)
    return values
