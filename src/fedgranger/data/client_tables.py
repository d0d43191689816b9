"""Load one CSV or Parquet file without guessing: every defect is one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as arrow_parquet

from fedgranger.data import input_checks
from fedgranger.errors import DataError

SUFFIXES = (".csv", ".parquet")
BLOCK_BYTES = 1 << 22


class Table(NamedTuple):
    """One file. CSV columns are loaded and leave `columns` one by one; Parquet has none loaded."""

    path: Path
    names: list[str]
    time_name: str | None
    num_rows: int
    columns: dict[str, pa.ChunkedArray]

    def take(self, where: str, name: str) -> pa.ChunkedArray:
        """Return a column, which the table then no longer holds, so that memory stays low."""
        if name in self.columns:
            return self.columns.pop(name)
        with one_sentence(where, self.path), arrow_parquet.ParquetFile(self.path) as file:
            return file.read(columns=[name], use_threads=False)[name]


def is_table(path: Path) -> bool:
    """Whether the file is one we read."""
    return path.suffix.lower() in SUFFIXES and path.is_file()


@contextmanager
def one_sentence(where: str, path: Path) -> Iterator[None]:
    """Turn whatever a broken file raises into one sentence."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise not_utf8(where, "the header") from error
    except pa.ArrowException as error:
        kind = "CSV" if path.suffix.lower() == ".csv" else "Parquet"
        raise DataError(
            f"{where}: '{path}' is not a readable {kind} file; write it again"
        ) from error
    except OSError as error:
        detail = error.strerror or "damaged file"
        raise DataError(f"{where}: '{path}' cannot be read ({detail}); write it again") from error


def load_table(where: str, path: Path, time_column: str) -> Table:
    """Read a file; `where` names it in messages."""
    with one_sentence(where, path):
        if path.stat().st_size == 0:
            raise DataError(f"{where}: '{path}' is empty; write a header and data rows")
        load = _load_csv if path.suffix.lower() == ".csv" else _load_parquet
        table = load(where, path, time_column)
    if table.num_rows == 0:
        raise DataError(f"{where}: '{path}' has a header but no data rows; add some")
    return table


def _load_parquet(where: str, path: Path, time_column: str) -> Table:
    with arrow_parquet.ParquetFile(path) as file:
        names, num_rows = file.schema_arrow.names, file.metadata.num_rows
    input_checks.check_names(where, names)
    time_name = input_checks.find_time_column(where, names, time_column)
    return Table(path, names, time_name, num_rows, {})


def _load_csv(where: str, path: Path, time_column: str) -> Table:
    with path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):  # the mark of UTF-16
            raise not_utf8(where, "the file")
    ragged: list[arrow_csv.InvalidRow] = []

    def refuse(row: arrow_csv.InvalidRow) -> str:
        ragged.append(row)
        return "error"

    read = arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES)
    # A blank line is a missing sample in a file of one column, so arrow must not skip it.
    parse = arrow_csv.ParseOptions(
        newlines_in_values=True, ignore_empty_lines=False, invalid_row_handler=refuse
    )
    infer = arrow_csv.ConvertOptions(strings_can_be_null=True)
    try:
        with arrow_csv.open_csv(path, read, parse, infer) as reader:
            names = reader.schema.names
        input_checks.check_names(where, names)
        time_name = input_checks.find_time_column(where, names, time_column)
        types = {name: pa.float64() for name in names if name != time_name}
        fixed = arrow_csv.ConvertOptions(strings_can_be_null=True, column_types=types)
        try:
            with arrow_csv.open_csv(path, read, parse, fixed) as reader:
                data = reader.read_all()
        except pa.ArrowInvalid:
            if ragged:
                raise
            # Some cell is no plain number (true, text, a stamp): reading with inferred types
            # takes more memory but keeps the cells, so that the checks can name the first one.
            data = arrow_csv.read_csv(path, read, parse, infer)
    except pa.ArrowInvalid as error:
        if not ragged:
            raise
        row = ragged[0]
        raise DataError(
            f"{where}, data row {row.number - 1}: expected {row.expected_columns} cells as in the "
            f"header, found {row.actual_columns}; give every row one cell per column"
        ) from error
    for name in names:
        if pa.types.is_binary(data[name].type):
            raise not_utf8(where, f"column '{name}'")
    num_rows = data.num_rows - _num_blank_at_end(path, names)
    columns = {name: data[name].slice(0, num_rows) for name in names}
    return Table(path, names, time_name, num_rows, columns)


def _num_blank_at_end(path: Path, names: list[str]) -> int:
    """Count blank lines after the last row; in a file of one column they are missing samples."""
    if len(names) == 1:
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - BLOCK_BYTES))
        tail = file.read()
    return max(0, tail[len(tail.rstrip(b"\r\n")) :].count(b"\n") - 1)


def not_utf8(where: str, place: str) -> DataError:
    """The error for a file in another encoding."""
    return DataError(f"{where}: {place} is not UTF-8 text; save the file with UTF-8 encoding")
