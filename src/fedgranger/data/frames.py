"""A `Panel` from data frames: the same checks and the same numbers as from files.

Names of columns stay; a time index, or a time column as in a file, is the clients' time axis, by
which they are aligned. Frames are converted column by column and never written anywhere. Those of
polars and xarray come through their `to_pandas`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from fedgranger.data import input_checks
from fedgranger.data.client_reading import client_table
from fedgranger.data.client_tables import Table
from fedgranger.data.file_format import FileFormat, client_formats
from fedgranger.data.left_out import LeftOut
from fedgranger.data.panel import Panel
from fedgranger.data.panel_files import client_names, finished_panel, read_panel
from fedgranger.data.reading_options import AS_MEASURED, PanelOptions, kept_options
from fedgranger.data.reading_remedies import Source, explained, joined
from fedgranger.data.sensor_preparation import NO_TREATMENTS
from fedgranger.data.treatment import Treatment
from fedgranger.data.trial_reading import Trial, read_or_propose, try_reading
from fedgranger.data.wide_frames import (
    client_name,
    counts_rows,
    share_out,
    with_index,
    with_named_index,
)
from fedgranger.errors import ConfigError, DataError, ReadingError
from fedgranger.text import counted, kind_of, listed

FLAG = re.compile(r"--([a-z][a-z-]*) ('[^']*'|[^\s;)]+)")
REPEATED_FLAG = re.compile(r"(\w+='[^']*') \(--[^)]*\)")


def as_panel(
    data: Any,
    clients: Mapping[str, Iterable[str]] | None,
    reading: Mapping[str, Any],
    treatments: Mapping[str, Treatment] = NO_TREATMENTS,
) -> Panel:
    """The panel of any data that `fit` takes.

    Raises:
        DataError: the data are of no such kind, or options do not fit them.
    """
    if isinstance(data, Panel):
        if clients is not None or reading:
            word = "clients" if clients is not None else next(iter(reading))
            raise DataError(f"'{word}' is for data that are read; this is a panel already")
        return data
    if isinstance(data, str | Path):
        if clients is not None:
            raise DataError("clients= is for one wide frame; for a table use partition= or map=")
        return read_panel(Path(data), None, PanelOptions.from_mapping(reading), treatments)
    return frames_panel(data, clients, PanelOptions.from_mapping(reading), treatments)


def new_panel(
    data: Any,
    reading: Mapping[str, Any],
    kept: Mapping[str, Any],
    treatments: Mapping[str, Treatment],
) -> Panel:
    """New data for a run that exists, not judged, and treated like its training data.

    Args:
        data: whatever `fit` takes.
        reading: `clients` and options of reading, for data that are no panel.
        kept: those of the training data (`Panel.reading`): they hold where nothing else is given
            and data of the same kind can be read with them.
        treatments: of the training data, by client.
    """
    options = dict(reading)
    clients = options.pop("clients", None)
    if isinstance(data, Panel):
        return as_panel(data, clients, options)
    same = dict(kept)
    if same.pop("of", "") == ("files" if isinstance(data, str | Path) else "frames"):
        shares = same.pop("clients", None)
        try:
            return as_panel(data, clients or shares, AS_MEASURED | same | options, treatments)
        except (DataError, ConfigError) as error:
            with suppress(DataError, ConfigError):
                return as_panel(data, clients, AS_MEASURED | options, treatments)
            raise error from None
    return as_panel(data, clients, AS_MEASURED | options, treatments)


def clients_before_reading(data: Any) -> list[str]:
    """Clients of a folder's files, or of frames client by client; none where only reading tells."""
    is_named = isinstance(data, Mapping) and not is_frame(data)
    if is_named and all(is_frame(frame) for frame in data.values()):
        return [client_name(name) for name in data]
    return client_names(Path(data)) if isinstance(data, str | Path) else []


def try_frames(named: Mapping[str, pd.DataFrame], options: PanelOptions) -> Trial[Panel]:
    """Read one frame per client with what they need beside the options given."""
    return try_reading(partial(_read, named), options, sorted(named))


def in_keywords(sentence: str) -> str:
    """Options of the command line in a sentence as keywords of Python.

    >>> in_keywords("leave it out (--leave-out a.b); in all: --leave-out a.b --missing mask")
    "leave it out (leave_out='a.b'); in all: leave_out='a.b', missing='mask'"
    """

    def keyword(found: re.Match[str]) -> str:
        return f"{found[1].replace('-', '_')}='{found[2].strip(chr(39))}'"

    return re.sub(r"' (?=\w+=')", "', ", FLAG.sub(keyword, REPEATED_FLAG.sub(r"\1", sentence)))


def is_frame(data: Any) -> bool:
    """Whether this is a data frame, or can become one."""
    return isinstance(data, pd.DataFrame) or hasattr(data, "to_pandas")


def frames_panel(
    data: Any,
    clients: Mapping[str, Iterable[str]] | None,
    options: PanelOptions,
    treatments: Mapping[str, Treatment] = NO_TREATMENTS,
) -> Panel:
    """One frame per client, or one wide frame whose columns `clients` or `map` share out.

    Raises:
        DataError: a frame cannot be used, with the client, the column and the remedy.
    """
    clients = columns_listed(clients)
    named = named_frames(data, clients, options)
    shares = {} if clients is None else {"clients": clients}
    try:
        read = partial(_read, named, treatments=treatments)
        panel = read_or_propose(read, options, sorted(named))
        notes = tuple(in_keywords(note) for note in panel.notes)
        return replace(panel, notes=notes, reading=kept_options(options, "frames", **shares))
    except ReadingError as error:
        raise ReadingError(in_keywords(str(error)), error.proposal) from None
    except DataError as error:
        raise DataError(in_keywords(str(error))) from None


def columns_listed(clients: Any) -> dict[str, Any] | None:
    """Every client's columns as a list, read once; what is none stays for the refusal."""
    if clients is not None and not isinstance(clients, Mapping):
        raise DataError(
            f"clients= is {kind_of(clients)}; give the columns of every client, such as "
            "{'boiler': ['P1', 'P2'], ...}"
        )
    found = {name: (own, listed(own)) for name, own in (clients or {}).items()}
    listings = {name: own if columns is None else columns for name, (own, columns) in found.items()}
    return None if clients is None else listings


def named_frames(
    data: Any, clients: Mapping[str, Iterable[str]] | None, options: PanelOptions
) -> dict[str, pd.DataFrame]:
    """One frame per client; refuses what is no data."""
    if not isinstance(data, Mapping) and not is_frame(data):
        raise DataError(
            f"{kind_of(data)} was given; give a folder, a data frame per client "
            "({'boiler': frame, ...}), one wide frame, or a Panel"
        )
    if is_frame(data):
        data = share_out(_as_frame(data), clients, options.map)
    elif clients is not None:
        raise DataError("clients= is for one wide frame; these are given client by client")
    named = {client_name(name): _as_frame(frame) for name, frame in data.items()}
    if not all(counts_rows(frame.index) for frame in named.values()):
        named = {name: with_named_index(frame) for name, frame in named.items()}
    if len(named) < 2:
        given = counted(len(named), "client was", "clients were") if named else "no client was"
        raise DataError(f"{given} given; at least two are needed")
    return named


def _read(
    frames: Mapping[str, pd.DataFrame],
    options: PanelOptions,
    treatments: Mapping[str, Treatment] = NO_TREATMENTS,
) -> Panel:
    formats, left_out = client_formats(options, sorted(frames)), LeftOut(options.leave_out)
    tables, notes, zones = [], [], set()
    refused: list[DataError] = []
    for name in sorted(frames):
        source = Source(f"client '{name}'", name, Path(f"{name} (data frame)"), formats[name])
        try:
            loaded = _table(source, frames[name])
            zones.add(_zone(loaded))
            with explained(source):
                table, more = client_table(source, name, loaded, options, left_out)
        except ReadingError as error:  # one sentence, but what all clients need
            refused.append(error)
            continue
        notes += more
        tables.append(table)
    if refused:
        raise joined(refused)
    left_out.check()
    panel = finished_panel(tables, notes, options, treatments)
    zone = zones.pop() if len(zones) == 1 else ""
    return replace(panel, time_zone=zone) if zone else panel


def _zone(table: Table) -> str:
    """Zone of the time column; empty where it names none."""
    kind = pa.null() if table.time_name is None else table.columns[table.time_name].type
    return getattr(kind, "tz", None) or ""


def _table(source: Source, frame: pd.DataFrame) -> Table:
    where, frame = source.where, with_index(source.where, frame)
    names = [str(name) for name in frame.columns]
    input_checks.check_names(where, names)
    if not len(frame):
        raise DataError(f"{where}: the frame has no rows; give some")
    time_name = input_checks.find_time_column(where, names, _time_column(frame, source.written))
    missing = source.written.missing_text
    columns = {
        name: _column(where, name, frame.iloc[:, k], missing) for k, name in enumerate(names)
    }
    return Table(source.path, names, time_name, len(frame), columns, source.written)


def _time_column(frame: pd.DataFrame, written: FileFormat) -> str:
    """The index that was given, unless the options name a column."""
    if written.time_column != "auto" or not frame.attrs.get("index"):
        return written.time_column
    return str(frame.attrs["index"])


def _column(
    where: str, name: str, column: pd.Series, missing_text: Sequence[str]
) -> pa.ChunkedArray:
    """A column of one type; texts among numbers make it text, which the checks then name."""
    column = column.mask(column.isin(missing_text)) if missing_text else column
    try:
        return pa.chunked_array([pa.array(column, from_pandas=True)])
    except (pa.ArrowException, TypeError, ValueError):
        if any(isinstance(cell, str) for cell in column):
            texts = column.map(str).where(column.notna(), None)
            return pa.chunked_array([pa.array(texts, pa.string())])
        raise DataError(
            f"{where}: column '{name}' holds values of different kinds; convert it to numbers"
        ) from None


def _as_frame(data: Any) -> pd.DataFrame:
    found = data if isinstance(data, pd.DataFrame) else None
    if found is None and hasattr(data, "to_pandas"):
        try:
            found = data.to_pandas()
        except ValueError as error:  # xarray with more than two axes
            raise DataError(
                f"{kind_of(data)} cannot become a data frame ({error}); give one with the "
                "axes time and sensor for every client"
            ) from None
        found = found.to_frame() if isinstance(found, pd.Series) else found
    if hasattr(data, "collect"):
        raise DataError(f"{kind_of(data)} is not computed yet; give what its collect() gives")
    if not isinstance(found, pd.DataFrame):
        raise DataError(
            f"{kind_of(data)} was given where a data frame is needed; for plain arrays use "
            "Panel.from_arrays"
        )
    return found
