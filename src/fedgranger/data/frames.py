"""A `Panel` from data frames: the same checks and the same numbers as from files.

Names of columns stay; a time index, or a time column as in a file, is the clients' time axis, by
which they are aligned. Frames are converted column by column and never written anywhere. Those of
polars and xarray come through their `to_pandas`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from fedgranger.data import input_checks
from fedgranger.data.client_reading import read_clients
from fedgranger.data.client_tables import Table
from fedgranger.data.file_format import FileFormat
from fedgranger.data.finishing import finished_panel
from fedgranger.data.panel import Panel
from fedgranger.data.reading_options import PanelOptions, kept_options
from fedgranger.data.reading_remedies import Source
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
from fedgranger.errors import DataError, ReadingError
from fedgranger.text import counted, kind_of, listed

FLAG = re.compile(r"--([a-z][a-z-]*) ('[^']*'|[^\s;)]+)")
REPEATED_FLAG = re.compile(r"(\w+='[^']*') \(--[^)]*\)")


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
    if clients is None:
        return None
    if not isinstance(clients, Mapping):
        raise DataError(
            f"clients= is {kind_of(clients)}; give the columns of every client, such as "
            "{'boiler': ['P1', 'P2'], ...}"
        )
    found = {name: (own, listed(own)) for name, own in clients.items()}
    return {name: own if columns is None else columns for name, (own, columns) in found.items()}


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
    zones = set()

    def load(source: Source) -> Table:
        table = _table(source, frames[str(source.key)])
        zones.add(_zone(table))
        return table

    paths = {name: Path(f"{name} (data frame)") for name in frames}
    tables, notes = read_clients(paths, options, load)
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
