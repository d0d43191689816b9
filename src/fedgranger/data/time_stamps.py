"""A time column: numbers or stamps in some way of writing and some zone, in order."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from fedgranger.data.cell_text import date_orders, is_known_date_format, parse_dates
from fedgranger.data.day_and_month import decided_order, refuse_swapped
from fedgranger.data.file_format import FileFormat
from fedgranger.data.input_checks import PLAIN, decoded, is_numeric, is_text, parse_numbers, shown
from fedgranger.data.time_zones import fitting_zone, to_utc, written_zone
from fedgranger.errors import ConfigError, DataError, ReadingError
from fedgranger.text import counted

STAMP_RANGE = (np.datetime64("1678-01-01"), np.datetime64("2262-01-01"))
"""What int64 nanoseconds can hold, rounded to whole years."""
DATE = re.compile(r"\s*\d{4}")
UNIX = {"unix": "s", "unix-ms": "ms"}


def to_times(
    where: str, name: str, column: pa.ChunkedArray, written: FileFormat = PLAIN
) -> tuple[np.ndarray, str]:
    """Return a time column as it is ordered, and the zone of its time stamps, "" without one.

    The times are int64, float64 or, in UTC where the zone is known, datetime64[ns].

    Raises:
        DataError: a cell is no time, or not in the way that the options say.
    """
    place = f"{where}, column '{name}', data row"
    if not is_known_date_format(written.date_format) and written.date_format not in UNIX:
        raise ConfigError(
            f"date_format is '{written.date_format}'; write it like dd.mm.yyyy or mm/dd/yyyy, with "
            "% as in %d.%m.%Y %H:%M, or pass iso, unix (seconds since 1970) or unix-ms"
        )
    column = decoded(column)
    empty = column.is_null(nan_is_null=True).to_numpy()
    if empty.any():
        raise DataError(
            f"{place} {int(np.argmax(empty)) + 1}: the time is empty; fill it in or remove the row"
        )
    kind = column.type
    zone = (kind.tz or "") if pa.types.is_timestamp(kind) else ""
    bad_row = None
    if is_text(kind) and parse_numbers(column.slice(0, 1), written)[1] is None:
        times, bad_row = parse_numbers(column, written)
    elif is_text(kind):
        texts = column.to_pylist()
        times, bad_row = _parse_stamps(texts, written.date_format)
        zone = written_zone(place, texts) if bad_row is None else ""
        if bad_row is None:
            refuse_swapped(place, texts, times, written.date_format)
    elif pa.types.is_integer(kind):
        try:
            times = column.cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:  # uint64 above 2**63
            raise DataError(
                f"{where}, column '{name}': the times are too large for int64; subtract an offset"
            ) from error
    elif is_numeric(kind):
        times = column.cast(pa.float64(), safe=False).to_numpy()
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        times = column.to_numpy()  # arrow keeps zoned stamps in UTC, and so does the array
    else:
        times, bad_row = np.empty(0), 0
    if bad_row is not None:
        raise _not_a_time(place, name, bad_row, column, written)
    if written.date_format in UNIX and times.dtype.kind in "if":
        times, zone = _from_unix(times, UNIX[written.date_format]), "UTC"
    times = _checked_times(place, times)
    if written.time_zone and not zone:
        return to_utc(place, times, written.time_zone), written.time_zone
    return times, zone


def _from_unix(times: np.ndarray, unit: str) -> np.ndarray:
    scale = {"s": 10**9, "ms": 10**6}[unit]
    whole = times.astype(np.int64)
    rest = np.rint((times - whole) * scale).astype(np.int64)
    return (whole * scale + rest).astype("datetime64[ns]")


def _not_a_time(
    place: str, name: str, row: int, column: pa.ChunkedArray, written: FileFormat
) -> DataError:
    """The error for a cell that is no time, with the way of writing that fits all cells."""
    fact = f"{place} {row + 1}: {shown(column[row])} cannot be read as a time"
    orders = date_orders(column.to_pylist()) if is_text(column.type) else []
    if len(orders) == 1:
        return ReadingError(
            f"{fact} in the format '{written.date_format}'; the dates are written {orders[0]} "
            f"(--date-format {orders[0]})",
            {"date_format": orders[0]},
        )
    order, reason = decided_order(column.to_pylist(), orders) if orders else ("", "")
    if order:
        return ReadingError(f"{fact}: {reason} (--date-format {order})", {"date_format": order})
    if orders:
        return DataError(
            f"{fact}: column '{name}' can mean {orders[0]} or {orders[1]}; pass the right one of "
            f"--date-format {orders[0]} and --date-format {orders[1]}"
        )
    if written.date_format != "iso":
        return DataError(f"{fact} in the format '{written.date_format}'; correct one of them")
    return DataError(f"{fact}; write numbers or ISO time stamps (2026-01-31T12:00:00)")


def _checked_times(place: str, times: np.ndarray) -> np.ndarray:
    """Times as they are used: finite, time stamps in nanoseconds."""
    if times.dtype.kind == "M":
        outside = (times < STAMP_RANGE[0]) | (times >= STAMP_RANGE[1])
        if outside.any():
            row = int(np.argmax(outside))
            raise DataError(
                f"{place} {row + 1}: the time {times[row]} is outside the years 1678 to 2261 that "
                "nanosecond stamps can hold; correct it or use numbers"
            )
        return times.astype("datetime64[ns]", copy=False)
    if times.dtype.kind == "f" and np.isinf(times).any():
        row = int(np.argmax(np.isinf(times)))
        raise DataError(f"{place} {row + 1}: the time {times[row]} is infinite; correct it")
    return times


def _parse_stamps(texts: list[str], date_format: str) -> tuple[np.ndarray, int | None]:
    """Time stamps, in UTC where they name a zone, and the first row that holds none."""
    if date_format != "iso":
        stamps = parse_dates(texts, date_format)
        is_bad = np.asarray(stamps.isna())
    else:
        stamps = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
        # pandas takes "now" and "today" for stamps; a recorded time starts with its year
        is_bad = stamps.isna() | np.array([DATE.match(text) is None for text in texts])
    bad_row = int(np.argmax(is_bad)) if is_bad.any() else None
    if stamps.tz is not None:
        stamps = stamps.tz_convert(None)
    return stamps.to_numpy(), bad_row


def check_order(where: str, name: str, times: np.ndarray, *, has_zone: bool) -> None:
    """Refuse times that do not rise from row to row, with the option that mends it."""
    is_wrong = times[1:] <= times[:-1]
    if not is_wrong.any():
        return
    row = int(np.argmax(is_wrong)) + 1
    before, now = shown_time(times[row - 1]), shown_time(times[row])
    fact = f"{where}, column '{name}', data row {row + 1}: the time {now}"
    zone = "" if has_zone else fitting_zone(times, row)
    if zone:
        raise ReadingError(
            f"{fact} comes after {before} in data row {row}, as where daylight saving time ends; "
            f"pass the zone of the clock, such as --time-zone {zone}",
            {"time_zone": zone},
        )
    if times[row] == times[row - 1]:
        raise ReadingError(
            f"{fact} is a duplicate of data row {row}; keep one row per time (--repeated first, "
            "last or mean)",
            {"repeated": "first"},
        )
    raise ReadingError(
        f"{fact} is earlier than {before} in data row {row}; sort the rows by time (--unordered "
        "sort)",
        {"unordered": "sort"},
    )


def shown_time(time: np.generic) -> str:
    """A time without the zeros of its nanoseconds."""
    text = str(time)
    return text.rstrip("0").rstrip(".") if "T" in text and "." in text else text


def order_rows(
    where: str, times: np.ndarray, values: np.ndarray, unordered: str, repeated: str
) -> tuple[np.ndarray, np.ndarray, Sequence[str]]:
    """Sort rows and join those of one time as the options say; and notes on what was done."""
    notes = []
    if unordered == "sort" and (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        moved = int((order != np.arange(len(order))).sum())
        times, values = times[order], values[order]
        notes.append(f"{where}: {moved} of {len(times)} rows were put in the order of their times")
    starts = np.concatenate([[True], times[1:] != times[:-1]])
    if repeated != "error" and not starts.all() and not (times[1:] < times[:-1]).any():
        extra = int((~starts).sum())
        groups = np.cumsum(starts) - 1
        if repeated == "mean":
            values = np.array(pd.DataFrame(pd.DataFrame(values).groupby(groups).mean()))
        else:
            stops = np.append(np.flatnonzero(starts)[1:], len(times)) - 1
            values = values[starts if repeated == "first" else stops]
        times = times[starts]
        rule = "their mean" if repeated == "mean" else f"the {repeated} of them"
        rows = counted(extra, "row repeats", "rows repeat")
        notes.append(f"{where}: {rows} the time of another; {rule} is used")
    return times, values, notes
