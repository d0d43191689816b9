"""Load one file as its options say, without guessing: every defect is one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as arrow_parquet

from fedgranger.data import input_checks
from fedgranger.data.excel_tables import read_sheet
from fedgranger.data.file_format import Cells, FileFormat, table_suffix
from fedgranger.data.reading_progress import add_bytes
from fedgranger.data.text_structure import units_in
from fedgranger.data.text_tables import name_columns, not_utf8, read_text
from fedgranger.errors import DataError
from fedgranger.text import with_unit

KINDS = {".parquet": "Parquet", ".xlsx": "Excel"}


class Table(NamedTuple):
    """One file. CSV columns are loaded and leave `columns` one by one; Parquet has none loaded.

    Columns without a name are called "column 3" and listed in `unnamed`; `units` are by name.
    """

    path: Path
    names: list[str]
    time_name: str | None
    num_rows: int
    columns: dict[str, pa.ChunkedArray]
    written: FileFormat
    unnamed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    units: Mapping[str, str] = {}

    def take(self, where: str, name: str) -> pa.ChunkedArray:
        """Return a column, which the table then no longer holds, so that memory stays low."""
        if name in self.columns:
            return self.columns.pop(name)
        with one_sentence(where, self.path), arrow_parquet.ParquetFile(self.path) as file:
            return file.read(columns=[name], use_threads=False)[name]


def is_table(path: Path) -> bool:
    """Whether the file is one we read."""
    return bool(table_suffix(path.name)) and path.is_file()


@contextmanager
def one_sentence(where: str, path: Path) -> Iterator[None]:
    """Turn whatever a broken file raises into one sentence."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise not_utf8(where, "the header") from error
    except pa.ArrowException as error:
        kind = KINDS.get(table_suffix(path.name), "CSV")
        raise DataError(
            f"{where}: '{path}' is not a readable {kind} file; write it again"
        ) from error
    except OSError as error:
        detail = error.strerror or "damaged file"
        raise DataError(f"{where}: '{path}' cannot be read ({detail}); write it again") from error


def load_table(where: str, path: Path, written: FileFormat) -> Table:
    """Read a file; `where` names it in messages."""
    suffix = table_suffix(path.name)
    with one_sentence(where, path):
        if path.stat().st_size == 0:
            raise DataError(f"{where}: '{path}' is empty; write a header and data rows")
        if suffix == ".parquet":
            table = _load_parquet(where, path, written)
        else:
            read = read_sheet if suffix == ".xlsx" else read_text
            table = _named(where, path, written, read(where, path, written))
    add_bytes(path, path.stat().st_size)
    if table.num_rows == 0:
        raise DataError(f"{where}: '{path}' has a header but no data rows; add some")
    return table


def _load_parquet(where: str, path: Path, written: FileFormat) -> Table:
    with arrow_parquet.ParquetFile(path) as file:
        names, num_rows = file.schema_arrow.names, file.metadata.num_rows
    input_checks.check_names(where, names)
    time_name = input_checks.find_time_column(where, names, written.time_column)
    if str(time_name).strip().lower() == "t":
        columns = {str(time_name): arrow_parquet.read_table(path, columns=[time_name])[time_name]}
        if _is_temperature(time_name, written, columns):
            notes = (_not_the_time(where, str(time_name)),)
            return Table(path, names, None, num_rows, {}, written, notes=notes)
    return Table(path, names, time_name, num_rows, {}, written)


def _is_temperature(
    time_name: str | None, written: FileFormat, columns: Mapping[str, pa.ChunkedArray]
) -> bool:
    """Whether a column called t or T, taken for the time by its name, is a sensor.

    Its numbers go up and down, and in order they are not evenly spaced.
    """
    if time_name is None or time_name.strip().lower() != "t" or written.time_column != "auto":
        return False
    column = columns[time_name].drop_null()
    if len(column) < 3:
        return False
    if input_checks.is_text(column.type):
        values, bad_row = input_checks.parse_numbers(column, written)
        if bad_row is not None:
            return False
    elif input_checks.is_numeric(column.type):
        values = column.cast(pa.float64(), safe=False).to_numpy()
    else:
        return False
    if (np.diff(values) > 0).all():
        return False
    steps = np.diff(np.unique(values)).astype(np.float64)
    return len(steps) < 2 or not np.allclose(steps, np.median(steps), rtol=1e-6)


def _side_by_side(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Date and time of day of each row as one text; empty where either is."""
    texts = [
        [None if cell is None else str(cell) for cell in column.to_pylist()] for column in columns
    ]
    joined = [
        None if date is None or clock is None else f"{date.removesuffix(' 00:00:00')} {clock}"
        for date, clock in zip(*texts, strict=True)
    ]
    return pa.chunked_array([pa.array(joined, pa.string())])


def _not_the_time(where: str, name: str) -> str:
    return f"{where}: column '{name}' goes up and down, so it is a sensor and not the time"


def _named(where: str, path: Path, written: FileFormat, cells: Cells) -> Table:
    """Name the columns; one without a name and without a cell is left out."""
    columns, notes = cells.columns, cells.notes
    names, unnamed = name_columns(cells.headers)
    empty = [
        k
        for k, name in enumerate(names)
        if name in unnamed and columns[k].null_count == len(columns[k])
    ]
    if empty:
        listed = ", ".join(str(k + 1) for k in empty)
        notes += (f"{where}: left out for having neither a name nor a cell: column {listed}",)
        kept = [k for k in range(len(names)) if k not in empty]
        columns = {place: columns[k] for place, k in enumerate(kept)}
        unnamed = tuple(name for name in unnamed if name in [names[k] for k in kept])
        names = [names[k] for k in kept]
    input_checks.check_names(where, names)
    time_name = input_checks.find_time_column(where, names, written.time_column)
    named = {name: columns[k] for k, name in enumerate(names)}
    parts = input_checks.time_parts(names, str(time_name))
    if parts:
        named[str(time_name)] = _side_by_side([named.pop(part) for part in parts])
        names = [str(time_name), *(name for name in names if name not in parts)]
    if _is_temperature(time_name, written, named):
        notes += (_not_the_time(where, str(time_name)),)
        time_name = None
    units = units_in(cells.headers, cells.unit_rows)
    if units:
        listed = ", ".join(with_unit(name, units) for name in units)
        notes += (f"{where}: with units: {listed}",)
    return Table(path, names, time_name, cells.num_rows, named, written, unnamed, notes, units)
