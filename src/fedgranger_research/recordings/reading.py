"""Read the recordings of one or several units (machines, runs) that have the same clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from fedgranger.data import input_checks
from fedgranger.data.client_tables import is_table, load_table
from fedgranger.data.file_format import FileFormat
from fedgranger.data.panel import Panel
from fedgranger.data.partitions import read_partition
from fedgranger.data.sensor_preparation import check_missing
from fedgranger.data.time_stamps import check_order, to_times
from fedgranger.data.treatment import ClientTable
from fedgranger.errors import DataError
from fedgranger.option_fields import check_choice
from fedgranger.text import did_you_mean


def read_recordings(
    path: Path,
    *,
    partition: Path | None = None,
    unit_column: str | None = None,
    time_column: str = "auto",
    missing: str = "error",
) -> dict[str, Panel]:
    """Return a panel per unit; with one recording there is one.

    Args:
        path: a folder with one file per client; a folder of such folders, one per unit; a table
            with a partition; a folder of such tables, one per unit.
        partition: file that maps each client to its columns.
        unit_column: column of the table that names the unit of each row.
        time_column: name of the time column, `"auto"` or `"none"`.
        missing: `"error"` refuses empty cells, `"mask"` marks them as missing samples.
    """
    check_choice("missing", missing, ("error", "mask"))
    if not path.exists():
        raise DataError(f"'{path}' does not exist; pass a folder or a table")
    if unit_column is not None:
        if partition is None or path.is_dir():
            raise DataError(
                "a unit column needs one table and a partition that maps clients to its columns "
                "(--partition); without one give a folder per machine"
            )
        units = _by_column(path, partition, unit_column, time_column, missing)
    else:
        units = {
            name: Panel.read(
                place,
                partition=partition,
                time_column=time_column,
                missing=missing,
                constant="keep",
            )
            for name, place in _places(path, partition).items()
        }
    _check_alike(units)
    return units


def _places(path: Path, partition: Path | None) -> dict[str, Path]:
    if not path.is_dir():
        return {path.stem: path}
    inside = sorted(place for place in path.iterdir() if not place.name.startswith("."))
    if partition is not None:
        tables = {place.stem: place for place in inside if is_table(place)}
        if not tables:
            raise DataError(f"folder '{path}' holds no .csv or .parquet file; give one per machine")
        return tables
    if any(is_table(place) for place in inside):
        return {path.name: path}
    folders = [place for place in inside if place.is_dir()]
    return {place.name: place for place in folders} or {path.name: path}


def _by_column(
    path: Path, partition: Path, unit_column: str, time_column: str, missing: str
) -> dict[str, Panel]:
    where = f"table '{path.name}'"
    assignment = read_partition(partition)
    table = load_table(where, path, FileFormat(time_column=time_column))
    for name in (unit_column, *(name for columns in assignment.values() for name in columns)):
        if name not in table.names:
            raise DataError(
                f"{where}: there is no column '{name}'{did_you_mean(name, table.names)}"
            )
    cells = table.take(where, unit_column).to_pylist()
    if any(cell is None for cell in cells):
        raise DataError(f"{where}, column '{unit_column}': a cell is empty; name every row's unit")
    owners = np.array([str(cell) for cell in cells])
    times = None if table.time_name is None else table.take(where, table.time_name)
    values = {
        client: np.column_stack(
            [input_checks.to_numbers(where, name, table.take(where, name)) for name in columns]
        )
        for client, columns in assignment.items()
    }
    units = {}
    for unit in dict.fromkeys(owners.tolist()):
        rows = owners == unit
        here, time = f"{where}, unit '{unit}'", None
        if times is not None and table.time_name is not None:
            time, zone = to_times(here, table.time_name, times.filter(pa.array(rows)))
            check_order(here, table.time_name, time, has_zone=bool(zone))
        arrays = {client: array[rows] for client, array in values.items()}
        if missing == "error":
            for client, array in arrays.items():
                check_missing(ClientTable(client, tuple(assignment[client]), array, time))
        units[unit] = Panel.from_arrays(arrays, sensors=assignment, time=time)
    return units


def _check_alike(units: dict[str, Panel]) -> None:
    (first, panel), *others = units.items()
    for unit, other in others:
        if set(other.names) != set(panel.names):
            odd = sorted(set(other.names) ^ set(panel.names))[0]
            raise DataError(
                f"units '{first}' and '{unit}' have different clients, for example '{odd}'; "
                "all machines need the same ones"
            )
