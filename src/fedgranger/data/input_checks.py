"""Checks of what users hand in: options, column names, cells and time stamps.

Every function takes `where` ("client 'pump2'", "table 'plant.csv'") and starts its error sentence
with it. Rows are data rows, counted from 1 without the header.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fedgranger.data.cell_text import is_time_like, to_number
from fedgranger.data.file_format import FileFormat
from fedgranger.errors import DataError
from fedgranger.text import did_you_mean

PLAIN = FileFormat()
TIME_NAMES = ("time", "timestamp", "datetime", "date", "t")


def nearest_or_all(word: str, options: Sequence[str], what: str) -> str:
    """The most similar option, or " (columns: a, b)" where nothing is similar; eight of many."""
    rest = f" and {len(options) - 8} more" if len(options) > 8 else ""
    return did_you_mean(word, options) or f" ({what}: {', '.join(options[:8])}{rest})"


def check_names(where: str, names: Sequence[str]) -> None:
    """Refuse headers in which a column cannot be recognised by its name."""
    for position, name in enumerate(names):
        if name in names[:position]:
            raise DataError(f"{where}: column '{name}' appears twice; rename or remove one of them")
    # Whole numbers are the default names of pandas; decimals are the first row of measurements.
    is_cell = [to_number(name, PLAIN) is not None or is_time_like(name) for name in names]
    if all(is_cell) and any("." in name or is_time_like(name) for name in names):
        raise DataError(
            f"{where}: the column names are numbers ('{names[0]}'); add a header row with names"
        )


def find_time_column(where: str, names: Sequence[str], time_column: str) -> str | None:
    """Return the name of the time column, None when rows are the time axis."""
    if time_column == "none":
        return None
    if time_column == "auto":
        return next((name for name in names if name.strip().lower() in TIME_NAMES), None)
    if len(time_parts(names, time_column)) == 2:
        return time_column
    if time_column not in names:
        raise DataError(
            f"{where}: there is no time column '{time_column}'"
            f"{nearest_or_all(time_column, names, 'columns')}; pass the name "
            "of an existing column, 'auto' or 'none' (--time-column)"
        )
    return time_column


def time_parts(names: Sequence[str], time_column: str) -> list[str]:
    """The two columns of a time column that is written "Date+Time"; [] of any other."""
    if time_column in names:
        return []
    for place, sign in enumerate(time_column):
        parts = [time_column[:place], time_column[place + 1 :]]
        if sign == "+" and all(part in names for part in parts):
            return parts
    return []


def to_numbers(
    where: str,
    name: str,
    column: pa.ChunkedArray,
    written: FileFormat = PLAIN,
    time: pa.ChunkedArray | None = None,
) -> np.ndarray:
    """Return a column as float64 with NaN where a cell is empty; refuse text and infinity.

    The time of a row, as it is written, is named where there is one.

    Raises:
        TextCellError: a cell is no number in this way of writing.
    """
    place = f"{where}, column '{name}', data row"
    column = decoded(column)
    kind = column.type
    bad_row = None
    if pa.types.is_null(kind):
        values = np.full(len(column), np.nan)
    elif is_text(kind):
        values, bad_row = parse_numbers(column, written)
    elif pa.types.is_boolean(kind):
        values = column.cast(pa.uint8()).cast(pa.float64()).to_numpy()
    elif is_numeric(kind):
        values = column.cast(pa.float64(), safe=False).to_numpy()
    else:
        values, bad_row = np.empty(0), int(np.argmax(column.is_valid().to_numpy()))
    if bad_row is not None:
        when = "" if time is None else f" ({time[bad_row]})"
        raise TextCellError(
            f"{place} {bad_row + 1}{when}: {shown(column[bad_row])} is not a number",
            [str(cell) for cell in column.to_pylist() if cell is not None],
        )
    if np.isinf(values).any():
        row = int(np.argmax(np.isinf(values)))
        raise DataError(
            f"{place} {row + 1}: the value {values[row]} is infinite; correct it, or leave the "
            "cell empty if the sample is missing"
        )
    return values


class TextCellError(DataError):
    """A cell is no number; what the column holds instead decides on the remedy.

    Attributes:
        fact: the sentence without a remedy.
        cells: all cells of the column that are not empty, as text.
    """

    def __init__(self, fact: str, cells: list[str]) -> None:
        """Add the remedy of a cell that is wrong."""
        super().__init__(
            f"{fact}; correct it, leave the cell empty if the sample is missing, or leave the "
            "column out (--leave-out)"
        )
        self.fact = fact
        self.cells = cells


def parse_numbers(column: pa.ChunkedArray, written: FileFormat) -> tuple[np.ndarray, int | None]:
    """Parse text cell by cell; return the numbers and the first row that holds none."""
    values = np.full(len(column), np.nan)
    for row, text in enumerate(column.to_pylist()):
        if text is None:
            continue
        number = to_number(text, written)
        if number is None:
            return values, row
        values[row] = number
    return values, None


def is_text(kind: pa.DataType) -> bool:
    """Whether cells of this type are text."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_numeric(kind: pa.DataType) -> bool:
    """Whether cells of this type are numbers."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Undo the dictionary encoding that pandas categories have in Parquet."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def shown(cell: pa.Scalar) -> str:
    """Quote a cell on one line, cut where it gets long (an unclosed quote swallows a file)."""
    text = str(cell.as_py())
    return repr(text if len(text) <= 40 else text[:40] + "...")
