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
from fedgranger.data.align import ClientTable, align, finish_client, is_same_axis
from fedgranger.data.client_tables import Table, is_table, load_table
from fedgranger.data.findings import Finding
from fedgranger.data.finishing import finish_panel, prepare_table
from fedgranger.data.panel import ClientData, Panel
from fedgranger.data.sensor_preparation import choose, labels_of
from fedgranger.errors import DataError
from fedgranger.option_fields import check_choice

UNSAFE_NAME = re.compile(r'^$|^[.]|[\x00-\x1f/\\:*?"<>|]|[. ]$')


def read_panel(
    path: Path,
    *,
    partition: Path | None,
    time_column: str,
    missing: str,
    constant: str,
    difference: str = "auto",
    leave_out: str = "",
    suspect: str = "error",
) -> Panel:
    """Read, align and check the clients; see `Panel.read` for the arguments."""
    check_choice("missing", missing, ("error", "mask"))
    check_choice("constant", constant, ("error", "drop", "keep"))
    if not path.exists():
        raise DataError(f"'{path}' does not exist; pass a folder with one file per client")
    if partition is None:
        tables, notes = _read_folder(path, time_column), []
    else:
        tables, notes = _read_partitioned(path, partition, time_column)
    known = {table.name: table.sensors for table in tables}
    choices = choose(
        known, difference=difference, leave_out=leave_out, suspect=suspect, missing=missing
    )
    findings: list[Finding] = []
    for k in range(len(tables)):
        label = labels_of(tables[k].name, is_alone=False)
        tables[k] = prepare_table(tables[k], choices, missing, constant, label, findings, notes)
    panel = finish_panel(tables, constant, findings, notes)
    num_gaps = int(panel.segment_starts.sum()) - 1
    if num_gaps:
        count = "1 gap" if num_gaps == 1 else f"{num_gaps} gaps"
        notes.append(f"the time axis has {count}; no pair of time steps across a gap is used")
    return replace(panel, notes=tuple(notes))


def read_client(
    name: str,
    path: Path,
    *,
    time_column: str,
    missing: str,
    constant: str,
    difference: str = "auto",
    leave_out: str = "",
    suspect: str = "error",
) -> tuple[ClientData, np.ndarray, list[str]]:
    """Read one client's own table.

    Args:
        name: the client.
        path: its CSV or Parquet file.
        time_column: name of the time column, `"auto"` or `"none"`.
        missing: `"error"` refuses empty cells, `"mask"` marks them as missing samples.
        constant: `"error"` refuses constant sensors, `"drop"` removes and reports them, `"keep"`
            keeps them: for new data, which are not judged at all.
        difference: `"auto"`, `"none"` or sensors whose change per row is used.
        leave_out: sensors that are not used.
        suspect: `"error"` refuses clocks and codes for missing samples, `"keep"` uses them.

    Returns:
        The data, their time axis (row numbers without a time column), and notes.
    """
    check_choice("missing", missing, ("error", "mask"))
    check_choice("constant", constant, ("error", "drop", "keep"))
    if not path.exists():
        raise DataError(f"client '{name}': there is no file '{path}'; check its name and folder")
    if not is_table(path):
        raise DataError(f"client '{name}': '{path}' is not a .csv or .parquet file")
    client = _client_table(name, path, time_column)
    choices = choose(
        {name: client.sensors},
        difference=difference,
        leave_out=leave_out,
        suspect=suspect,
        missing=missing,
    )
    notes: list[str] = []
    findings: list[Finding] = []
    label = labels_of(name, is_alone=True)
    client = prepare_table(client, choices, missing, constant, label, findings, notes)
    time, alignment_notes = align([client])
    notes += alignment_notes
    data = finish_client(client, constant=constant, notes=notes, findings=findings, label=label)
    return data, time, notes


def _client_table(name: str, path: Path, time_column: str) -> ClientTable:
    where = f"client '{name}'"
    table = load_table(where, path, time_column)
    time = _take_time(where, table)
    sensors = [column for column in table.names if column != table.time_name]
    return ClientTable(name, tuple(sensors), _take_values(where, table, sensors), time)


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
        time, shared = client.time, tables[0].time if tables else None
        if time is not None and shared is not None and is_same_axis(time.values, shared.values):
            client = client._replace(time=time._replace(values=shared.values))
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
    time = _take_time(where, table)
    used = {column for columns in assignment.values() for column in columns}
    unused = [name for name in table.names if name not in used and name != table.time_name]
    for name in unused:
        table.columns.pop(name, None)
    tables = [
        ClientTable(name, tuple(columns), _take_values(f"client '{name}'", table, columns), time)
        for name, columns in assignment.items()
    ]
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


def _take_time(where: str, table: Table) -> input_checks.TimeAxis | None:
    name = table.time_name
    return None if name is None else input_checks.to_times(where, name, table.take(where, name))


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
