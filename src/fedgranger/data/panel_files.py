"""Read a `Panel` from CSV or Parquet files, and write one.

Rows are never dropped, filled or reordered without an error or a note. Cells are parsed by
pyarrow, whose decimal conversion is exact, in blocks that keep one file in memory at a time.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as arrow_parquet

from fedgranger.data import input_checks
from fedgranger.data.align import is_same_axis
from fedgranger.data.client_tables import Table, is_table, load_table
from fedgranger.data.finishing import finish_panel
from fedgranger.data.panel import ClientData, Panel
from fedgranger.data.reading_options import ReadingOptions
from fedgranger.data.sensor_preparation import plan_sensors, prepare
from fedgranger.data.treatment import ClientTable
from fedgranger.errors import DataError
from fedgranger.option_fields import check_choice

UNSAFE_NAME = re.compile(r'^$|^[.]|[\x00-\x1f/\\:*?"<>|]|[. ]$')


def read_panel(path: Path, partition: Path | None, options: ReadingOptions) -> Panel:
    """Read, align and check the clients; see `Panel.read`."""
    if not path.exists():
        raise DataError(f"'{path}' does not exist; pass a folder with one file per client")
    if partition is None:
        tables, notes = _read_folder(path, options.time_column), []
    else:
        tables, notes = _read_partitioned(path, partition, options.time_column)
    plan = plan_sensors(tables, options)
    plan.notes.extend(notes)
    for k in range(len(tables)):  # one by one, so that no client is in memory twice for long
        tables[k] = prepare(tables[k], plan)
    panel = finish_panel(tables, plan)
    num_gaps = int(panel.segment_starts.sum()) - 1
    if not num_gaps:
        return panel
    count = "1 gap" if num_gaps == 1 else f"{num_gaps} gaps"
    note = f"the time axis has {count}; no pair of time steps across a gap is used"
    return replace(panel, notes=(*panel.notes, note))


def read_client(
    name: str, path: Path, options: ReadingOptions
) -> tuple[ClientData, np.ndarray, list[str]]:
    """Read one client's own table, in whose options sensors are named without the client.

    Returns:
        The data, their time axis (row numbers without a time column), and notes.
    """
    if not path.exists():
        raise DataError(f"client '{name}': there is no file '{path}'; check its name and folder")
    if not is_table(path):
        raise DataError(f"client '{name}': '{path}' is not a .csv or .parquet file")
    table = _client_table(name, path, options.time_column)._replace(is_alone=True)
    plan = plan_sensors([table], options)
    panel = finish_panel([prepare(table, plan)], plan)
    return panel.clients[0], panel.time, plan.notes


def _client_table(name: str, path: Path, time_column: str) -> ClientTable:
    where = f"client '{name}'"
    table = load_table(where, path, time_column)
    time, has_zone = _take_time(where, table)
    sensors = [column for column in table.names if column != table.time_name]
    values = _take_values(where, table, sensors)
    return ClientTable(name, tuple(sensors), values, time, has_zone)


def _read_folder(folder: Path, time_column: str) -> list[ClientTable]:
    if not folder.is_dir():
        raise DataError(
            f"'{folder}' is a single file; pass a partition file that maps clients to its columns "
            "(--partition), or a folder with one file per client"
        )
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if not is_table(path) or path.name.startswith("."):
            continue
        if path.stem in files:
            raise DataError(
                f"client '{path.stem}' has two files, {files[path.stem].name} and {path.name}; "
                "remove one of them"
            )
        files[path.stem] = path
    if len(files) < 2:
        found = f"only client '{next(iter(files))}'" if files else "no .csv or .parquet file"
        raise DataError(
            f"folder '{folder}' holds {found}; at least two clients are needed, one file for each"
        )
    tables: list[ClientTable] = []
    for name in sorted(files):
        client = _client_table(name, files[name], time_column)
        shared = tables[0].time if tables else None
        if client.time is not None and shared is not None and is_same_axis(client.time, shared):
            client = client._replace(time=shared)
        tables.append(client)
    return tables


def _read_partitioned(
    path: Path, partition: Path, time_column: str
) -> tuple[list[ClientTable], list[str]]:
    if path.is_dir() or not is_table(path):
        raise DataError(
            f"'{path}' is not a .csv or .parquet file, and a partition splits one such table; pass "
            "the table, or leave the partition out for a folder"
        )
    assignment = read_partition(partition)
    where = f"table '{path.name}'"
    table = load_table(where, path, time_column)
    _check_partition(assignment, table)
    time, has_zone = _take_time(where, table)
    used = {column for columns in assignment.values() for column in columns}
    unused = [name for name in table.names if name not in used and name != table.time_name]
    for name in unused:
        table.columns.pop(name, None)
    tables = []
    for name, columns in assignment.items():
        values = _take_values(f"client '{name}'", table, columns)
        tables.append(ClientTable(name, tuple(columns), values, time, has_zone))
    listed = ", ".join(f"'{name}'" for name in unused)
    return tables, [f"{where}: not assigned to any client and left out: {listed}"] if unused else []


def read_partition(path: Path) -> dict[str, list[str]]:
    """Read client -> columns from JSON or TOML, bare or under the single key `clients`."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".toml":
            content = tomllib.loads(text)
        else:
            content = json.loads(text, object_pairs_hook=_distinct_keys)
    except DataError as error:
        raise DataError(f"partition '{path}': {error}") from error
    except OSError as error:
        raise DataError(f"partition '{path}' cannot be read: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, not JSON, not TOML
        raise DataError(f"partition '{path}' is not valid JSON or TOML: {error}") from error
    if isinstance(content, dict) and list(content) == ["clients"]:
        content = content["clients"] if isinstance(content["clients"], dict) else content
    if not isinstance(content, dict):
        raise DataError(f"partition '{path}' is not a mapping; write client -> list of columns")
    for client, columns in content.items():
        is_list = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
        if not is_list or not columns:
            raise DataError(
                f"partition '{path}': client '{client}' has {columns!r} where a list of one or "
                "more column names is needed"
            )
    if len(content) < 2:
        found = f"only client '{next(iter(content))}'" if content else "no client"
        raise DataError(f"partition '{path}' names {found}; at least two clients are needed")
    return content


def _distinct_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse the repeated keys that JSON would resolve silently in favour of the last one."""
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise DataError(f"client '{key}' appears twice; join its columns in one list")
    return dict(pairs)


def _check_partition(assignment: dict[str, list[str]], table: Table) -> None:
    owners: dict[str, str] = {}
    for client, columns in assignment.items():
        for name in columns:
            if name not in table.names:
                raise DataError(
                    f"client '{client}': the table has no column '{name}'"
                    f"{input_checks.nearest(name, table.names)}; correct the partition"
                )
            if name == table.time_name:
                raise DataError(
                    f"client '{client}': column '{name}' is the time column and cannot be a "
                    "sensor; take it out of the partition or pass another time_column"
                )
            if name in owners:
                raise DataError(
                    f"column '{name}' is assigned to client '{owners[name]}' and again to client "
                    f"'{client}'; assign each column once"
                )
            owners[name] = client


def _take_time(where: str, table: Table) -> tuple[np.ndarray | None, bool]:
    """The time axis, None when rows are it, and whether its stamps have a zone."""
    name = table.time_name
    if name is None:
        return None, False
    return input_checks.to_times(where, name, table.take(where, name))


def _take_values(where: str, table: Table, sensors: Sequence[str]) -> np.ndarray:
    if not sensors:
        raise DataError(f"{where}: there is no sensor column beside the time; add one")
    values = np.empty((table.num_rows, len(sensors)))
    for position, name in enumerate(sensors):
        values[:, position] = input_checks.to_numbers(where, name, table.take(where, name))
    pa.default_memory_pool().release_unused()
    return values


def write_panel(panel: Panel, folder: Path, format: str) -> list[Path]:
    """Write one file per client, `time` first; see `Panel.write`.

    Numbers are written with as many digits as it takes to read the same float64 again. A file
    appears under its name only when it is complete.
    """
    check_choice("format", format, ("csv", "parquet"))
    for client in panel:
        if UNSAFE_NAME.search(client.name) or len(client.name) > 100:
            raise DataError(
                f"client '{client.name}': the name cannot be a file name; rename the client with "
                "letters, digits, '-' and '_'"
            )
        if "time" in client.sensors:
            raise DataError(
                f"client '{client.name}': sensor 'time' would clash with the time column of the "
                "file; rename the sensor"
            )
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for client in panel:
        path = folder / f"{client.name}.{format}"
        draft = folder / f".{path.name}.{os.getpid()}.tmp"
        try:
            _write_client(client, panel.time, draft, format)
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        paths.append(path)
    return paths


def _write_client(client: ClientData, time: np.ndarray, path: Path, format: str) -> None:
    if format == "parquet":
        arrays = [pa.array(time)]
        arrays += [
            pa.array(values, mask=~observed)
            for values, observed in zip(client.values.T, client.observed.T, strict=True)
        ]
        arrow_parquet.write_table(pa.table(arrays, names=["time", *client.sensors]), path)
        return
    # pandas, not arrow: arrow writes -0.0 as -0 and 1.0 as 1, which are read back as integers.
    frame = pd.DataFrame(np.where(client.observed, client.values, np.nan), columns=client.sensors)
    frame.insert(0, "time", time)
    frame.to_csv(path, index=False, lineterminator="\n")
