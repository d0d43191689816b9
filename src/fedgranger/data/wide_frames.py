"""Whose the columns of one wide frame are, and an index as a time column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype

from fedgranger.data import input_checks
from fedgranger.data.partitions import check_partition, propose_map, read_map
from fedgranger.errors import DataError
from fedgranger.text import kind_of, listed

INDEX = "time"
"""Name of an index that has none."""


def share_out(
    frame: pd.DataFrame, clients: Mapping[str, Iterable[str]] | None, pattern: str
) -> Mapping[str, pd.DataFrame]:
    """One frame per client: by the first level of the columns' names, or as the options say."""
    if frame.columns.nlevels == 1:
        return _split(frame, clients, pattern)
    if clients is not None or pattern:
        raise DataError(
            "the frame's columns have levels, of which the first names the clients; leave out "
            "clients= and map=, or flatten the columns"
        )
    if frame.columns.nlevels > 2:
        raise DataError(
            f"the frame's columns have {frame.columns.nlevels} levels; give two, client and sensor"
        )
    common = [column for column in frame.columns if column[1] == ""]  # after reset_index(): time
    for column in common:
        is_time = str(column[0]).strip().lower() in input_checks.TIME_NAMES
        if len(common) > 1 or not (is_time or is_datetime64_any_dtype(frame[column])):
            raise DataError(
                f"the frame's column '{column[0]}' names no client; give it two levels, such as "
                f"('boiler', '{column[0]}'), or leave it out; only the time may have one level"
            )
    time = frame[common].droplevel(1, axis=1)
    names = dict.fromkeys(column[0] for column in frame.columns if column not in common)
    return {name: pd.concat([time, frame[name]], axis=1) for name in names}


def _split(
    frame: pd.DataFrame, clients: Mapping[str, Iterable[str]] | None, pattern: str
) -> dict[str, pd.DataFrame]:
    """One frame per client out of a wide one."""
    frame = with_index("the frame", frame)
    names = [str(name) for name in frame.columns]
    frame.columns = pd.Index(names)
    time_name = frame.attrs.get("index") or input_checks.find_time_column(
        "the frame", names, "auto"
    )
    sensors = [name for name in names if name != time_name]
    if clients is None and not pattern:
        proposed = propose_map(sensors)
        hint = f", such as map='{proposed}'" if proposed else ""
        raise DataError(
            "one frame holds all clients; say which columns are whose with "
            f"clients={{'boiler': ['P1', 'P2'], ...}} or patterns of their names{hint}"
        )
    shares = read_map(pattern, sensors) if clients is None else clients
    assignment = {}
    for client, own in shares.items():
        columns = listed(own)
        if columns is None:
            kind = f"'{own}'" if isinstance(own, str) else kind_of(own)
            raise DataError(
                f"clients: '{client}' has {kind}; give a list of columns, or patterns with "
                f"map='{own if isinstance(own, str) else 'P1_*'}={client},...'"
            )
        assignment[client_name(client)] = list(map(str, columns))
    check_partition(assignment, names, time_name)
    first = [] if time_name is None else [time_name]
    out = {}
    for client, own in assignment.items():
        out[client] = frame[[*first, *own]].copy()
        out[client].attrs = dict(frame.attrs)
    return out


def client_name(client: Any) -> str:
    """Refuse a name that is no word."""
    if not isinstance(client, str) or not client.strip():
        raise DataError(f"client name {client!r} is not a text; name clients with words")
    return client


def with_index(where: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The index as a first column, unless it merely counts the rows."""
    if isinstance(frame.columns, pd.MultiIndex) or isinstance(frame.index, pd.MultiIndex):
        raise DataError(
            f"{where}: the frame has an index of several levels; flatten it to one (columns of one "
            "frame for all clients may have two, client and sensor)"
        )
    index = frame.index
    if counts_rows(index):
        return frame
    if isinstance(index, pd.PeriodIndex):
        index = index.to_timestamp()
    name = str(index.name if index.name is not None else INDEX)
    if name in map(str, frame.columns):
        raise DataError(f"{where}: the index and a column are both called '{name}'; rename one")
    out = frame.reset_index(drop=True)
    out.insert(0, name, np.asarray(index) if index.dtype == object else index)
    out.attrs = {"index": name}
    return out


def counts_rows(index: pd.Index) -> bool:
    """Whether an index is the one that frames have when none was given."""
    if not isinstance(index, pd.RangeIndex) or index.name is not None:
        return False
    return (index.start, index.step) == (0, 1)


def with_named_index(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows are cut out of other clients' frames, so a plain index is the time axis here, too."""
    return frame.rename_axis(index=INDEX) if counts_rows(frame.index) else frame
