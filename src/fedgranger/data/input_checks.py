"""Checks of what users hand in: options, column names, cells and time stamps.

Every function takes `where` ("client 'pump2'", "table 'plant.csv'") and starts its error sentence
with it. Rows are data rows, counted from 1 without the header.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from fedgranger.errors import DataError

TIME_NAMES = ("time", "timestamp", "datetime", "date", "t")
STAMP_RANGE = (np.datetime64("1678-01-01"), np.datetime64("2262-01-01"))
"""What int64 nanoseconds can hold, rounded to whole years."""
DATE = re.compile(r"\s*\d{4}")
ZONE = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)$")


def nearest(word: str, options: Iterable[str]) -> str:
    """Return " (nearest: 'x')" with the most similar option, or "" when nothing is similar."""
    found = difflib.get_close_matches(word, list(options), n=1, cutoff=0.4)
    return f" (nearest: '{found[0]}')" if found else ""


def check_names(where: str, names: Sequence[str]) -> None:
    """Refuse headers in which a column cannot be recognised by its name."""
    for position, name in enumerate(names):
        if not name.strip() or re.fullmatch(r"__index_level_\d+__", name):
            raise DataError(
                f"{where}: column {position + 1} has no name; name it, or remove it if it is a "
                "row index (pandas writes none with index=False)"
            )
        if name in names[:position]:
            raise DataError(f"{where}: column '{name}' appears twice; rename or remove one of them")
    if len(names) == 1 and re.search("[;\t]", names[0]):
        raise DataError(
            f"{where}: the header '{names[0]}' is one single column; separate cells by commas"
        )
    # Whole numbers are the default names of pandas; decimals are the first row of measurements.
    if all(_is_number(name) for name in names) and any("." in name for name in names):
        raise DataError(
            f"{where}: the column names are numbers ('{names[0]}'); add a header row with names"
        )


def find_time_column(where: str, names: Sequence[str], time_column: str) -> str | None:
    """Return the name of the time column, None when rows are the time axis."""
    if time_column == "none":
        return None
    if time_column == "auto":
        return next((name for name in names if name.strip().lower() in TIME_NAMES), None)
    if time_column not in names:
        raise DataError(
            f"{where}: there is no time column '{time_column}'{nearest(time_column, names)}; "
            "pass the name of an existing column, 'auto' or 'none' (--time-column)"
        )
    return time_column


def to_numbers(where: str, name: str, column: pa.ChunkedArray) -> np.ndarray:
    """Return a column as float64 with NaN where a cell is empty; refuse text and infinity."""
    place = f"{where}, column '{name}', data row"
    column = _decoded(column)
    kind = column.type
    bad_row = None
    if pa.types.is_null(kind):
        values = np.full(len(column), np.nan)
    elif _is_text(kind):
        values, bad_row = _parse_numbers(column)
    elif pa.types.is_boolean(kind):
        values = column.cast(pa.uint8()).cast(pa.float64()).to_numpy()
    elif _is_numeric(kind):
        values = column.cast(pa.float64(), safe=False).to_numpy()
    else:
        values, bad_row = np.empty(0), int(np.argmax(column.is_valid().to_numpy()))
    if bad_row is not None:
        raise DataError(
            f"{place} {bad_row + 1}: {_shown(column[bad_row])} is not a number; correct it, leave "
            "the cell empty if the sample is missing, or remove the column"
        )
    if np.isinf(values).any():
        row = int(np.argmax(np.isinf(values)))
        raise DataError(
            f"{place} {row + 1}: the value {values[row]} is infinite; correct it, or leave the "
            "cell empty if the sample is missing"
        )
    return values


def to_times(where: str, name: str, column: pa.ChunkedArray) -> tuple[np.ndarray, bool]:
    """Return a time column, and whether its time stamps have a zone.

    The times are strictly increasing int64, float64 or, in UTC, datetime64[ns].
    """
    place = f"{where}, column '{name}', data row"
    column = _decoded(column)
    empty = column.is_null(nan_is_null=True).to_numpy()
    if empty.any():
        raise DataError(
            f"{place} {int(np.argmax(empty)) + 1}: the time is empty; fill it in or remove the row"
        )
    kind = column.type
    has_zone = pa.types.is_timestamp(kind) and kind.tz is not None
    bad_row = None
    if _is_text(kind) and _is_number(column[0].as_py()):
        times, bad_row = _parse_numbers(column)
    elif _is_text(kind):
        times, bad_row, has_zone = _parse_stamps(column.to_pylist())
    elif pa.types.is_integer(kind):
        try:
            times = column.cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:  # uint64 above 2**63
            raise DataError(
                f"{where}, column '{name}': the times are too large for int64; subtract an offset"
            ) from error
    elif _is_numeric(kind):
        times = column.cast(pa.float64(), safe=False).to_numpy()
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        times = column.to_numpy()  # arrow keeps zoned stamps in UTC, and so does the array
    else:
        times, bad_row = np.empty(0), 0
    if bad_row is not None:
        raise DataError(
            f"{place} {bad_row + 1}: {_shown(column[bad_row])} cannot be read as a time; write "
            "numbers or ISO time stamps (2026-01-31T12:00:00)"
        )
    return _checked_times(place, times), has_zone


def _checked_times(place: str, times: np.ndarray) -> np.ndarray:
    """Times as they are used: finite, time stamps in nanoseconds, strictly increasing."""
    if times.dtype.kind == "M":
        outside = (times < STAMP_RANGE[0]) | (times >= STAMP_RANGE[1])
        if outside.any():
            row = int(np.argmax(outside))
            raise DataError(
                f"{place} {row + 1}: the time {times[row]} is outside the years 1678 to 2261 that "
                "nanosecond stamps can hold; correct it or use numbers"
            )
        times = times.astype("datetime64[ns]", copy=False)
    elif times.dtype.kind == "f" and np.isinf(times).any():
        row = int(np.argmax(np.isinf(times)))
        raise DataError(f"{place} {row + 1}: the time {times[row]} is infinite; correct it")
    is_wrong = times[1:] <= times[:-1]
    if is_wrong.any():
        row = int(np.argmax(is_wrong)) + 1
        before, now = times[row - 1], times[row]
        if now == before:
            raise DataError(
                f"{place} {row + 1}: the time {now} is a duplicate of data row {row}; "
                "keep one row per time"
            )
        raise DataError(
            f"{place} {row + 1}: the time {now} is earlier than {before} in data row {row}; "
            "sort the rows by time"
        )
    return times


def _parse_stamps(texts: list[str]) -> tuple[np.ndarray, int | None, bool]:
    """ISO time stamps, the first row that holds none, and whether they have a zone."""
    stamps = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    # pandas takes "now" and "today" for stamps; a recorded time starts with its year
    is_bad = stamps.isna() | np.array([DATE.match(text) is None for text in texts])
    bad_row = int(np.argmax(is_bad)) if is_bad.any() else None
    has_zone = any(ZONE.search(text) and ":" in text for text in texts)
    return stamps.tz_convert(None).to_numpy(), bad_row, has_zone


def _parse_numbers(column: pa.ChunkedArray) -> tuple[np.ndarray, int | None]:
    """Parse text cell by cell; return the numbers and the first row that holds none."""
    values = np.full(len(column), np.nan)
    for row, text in enumerate(column.to_pylist()):
        if text is None:
            continue
        if not _is_number(text):
            return values, row
        values[row] = float(text)
    return values, None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # Python reads 1_000, no other program that writes tables does


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_numeric(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Undo the dictionary encoding that pandas categories have in Parquet."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _shown(cell: pa.Scalar) -> str:
    """Quote a cell on one line, cut where it gets long (an unclosed quote swallows a file)."""
    text = str(cell.as_py())
    return repr(text if len(text) <= 40 else text[:40] + "...")
