"""One sheet of an Excel workbook as columns; openpyxl (extra `excel`) does the reading."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pyarrow as pa

from fedgranger.data.file_format import Cells, FileFormat
from fedgranger.errors import ConfigError, DataError


def sheet_rows(where: str, path: Path, sheet: str) -> list[list[Any]]:
    """The cells of a sheet, without empty rows at its end.

    Raises:
        DataError: the workbook cannot be read, or it has several sheets and none was chosen.
    """
    try:
        import openpyxl
    except ImportError:
        raise DataError(
            f"{where}: '{path}' is an Excel workbook, and openpyxl is not installed; give "
            "'pip install openpyxl', or save the sheet as CSV"
        ) from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (BadZipFile, KeyError, ValueError) as error:
        raise DataError(
            f"{where}: '{path}' is not a readable Excel file; write it again"
        ) from error
    try:
        names = list(book.sheetnames)
        if sheet and sheet not in names:
            raise ConfigError(
                f"{where}: '{path}' has no sheet '{sheet}'; choose one of {', '.join(names)}"
            )
        filled = [name for name in names if sheet in ("", name) and book[name].max_row]
        contents = {name: _rows(book[name]) for name in filled}
        contents = {name: rows for name, rows in contents.items() if rows}
    finally:
        book.close()
    if len(contents) > 1:
        listed = ", ".join(f"'{name}'" for name in contents)
        raise DataError(
            f"{where}: '{path}' has {len(contents)} sheets with cells ({listed}); choose one "
            f"(--sheet '{next(iter(contents))}')"
        )
    if not contents:
        raise DataError(f"{where}: '{path}' has no cells; write a header and data rows")
    return next(iter(contents.values()))


def _rows(sheet: Any) -> list[list[Any]]:
    rows = [list(row) for row in sheet.iter_rows(values_only=True)]
    while rows and all(cell is None for cell in rows[-1]):
        rows.pop()
    return rows


def read_sheet(where: str, path: Path, written: FileFormat) -> Cells:
    """Read a sheet as its options say."""
    rows = sheet_rows(where, path, written.sheet)[written.skip_rows :]
    if not rows:
        raise DataError(
            f"{where}: '{path}' has no row below the {written.skip_rows} that are skipped; pass a "
            "smaller --skip-rows"
        )
    width = max(len(row) for row in rows)
    headers, *units = (
        ["" if cell is None else str(cell) for cell in row] for row in rows[: 1 + written.unit_rows]
    )
    headers += [""] * (width - len(headers))
    data = [[*row, *[None] * (width - len(row))] for row in rows[1 + written.unit_rows :]]
    columns = {k: _column([row[k] for row in data], written.missing_text) for k in range(width)}
    return Cells(headers, columns, len(data), units)


def _column(cells: Sequence[Any], missing_text: Sequence[str]) -> pa.ChunkedArray:
    """A column of one type; cells of several kinds become text, which the checks then name."""
    known = [None if cell in missing_text or cell == "" else cell for cell in cells]
    kinds = {type(cell) for cell in known if cell is not None}
    if kinds <= {int, float}:
        return pa.chunked_array([pa.array(known, pa.float64(), from_pandas=True)])
    if kinds <= {bool}:
        return pa.chunked_array([pa.array(known, pa.bool_())])
    if kinds <= {datetime.datetime, datetime.date}:
        stamps = [None if one is None else _stamp(one) for one in known]
        return pa.chunked_array([pa.array(stamps, pa.timestamp("us"))])
    texts = [None if cell is None else _text(cell) for cell in known]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _stamp(cell: Any) -> datetime.datetime:
    if isinstance(cell, datetime.datetime):
        return cell
    return datetime.datetime.combine(cell, datetime.time())


def _text(cell: Any) -> str:
    return cell.isoformat(sep=" ") if isinstance(cell, datetime.datetime) else str(cell)
