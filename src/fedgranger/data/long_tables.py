"""Tables with one row per sample (sensor, time, value), as historians export them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from fedgranger.data.input_checks import decoded, is_text
from fedgranger.data.time_stamps import shown_time
from fedgranger.errors import DataError, ReadingError
from fedgranger.text import counted

MOST_COLUMNS = 6
"""A table with more columns has its sensors side by side."""


def looks_long(column: pa.ChunkedArray, time: pa.ChunkedArray, names: Sequence[str]) -> bool:
    """Whether a text column names each row's sensor: few names, and times that come again."""
    column = decoded(column)
    if len(names) > MOST_COLUMNS or not is_text(column.type):
        return False
    num_rows, tags = len(column), column.unique()
    return 2 <= len(tags) <= num_rows / 2 and len(time.unique()) <= 0.75 * num_rows


def pivot(
    where: str, tags: Sequence[object], time: np.ndarray, values: np.ndarray, repeated: str
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, list[str]]:
    """Put the sensors side by side: names, times in order, values, and a note.

    A sensor without a row at a time has no sample there (NaN).

    Raises:
        DataError: a sensor has no name, or two samples at one time that no option joins.
    """
    if any(tag is None for tag in tags):
        row = next(k for k, tag in enumerate(tags) if tag is None)
        raise DataError(f"{where}, data row {row + 1}: the sensor has no name; fill it in")
    frame = pd.DataFrame({"tag": [str(tag) for tag in tags], "time": time, "value": values})
    again = frame.duplicated(["tag", "time"]).to_numpy()
    if again.any() and repeated == "error":
        row = int(np.argmax(again))
        tag, when = frame["tag"].iloc[row], time[row]
        raise ReadingError(
            f"{where}, data row {row + 1}: sensor '{tag}' has two samples at {shown_time(when)}; "
            "keep one of them (--repeated first, last or mean)",
            {"repeated": "first"},
        )
    rule = "first" if repeated == "error" else repeated
    wide = frame.pivot_table(
        index="time", columns="tag", values="value", aggfunc=rule, sort=True, dropna=False
    )
    names = tuple(str(name) for name in wide.columns)
    axis = wide.index.to_numpy()
    axis = axis.astype("datetime64[ns]") if axis.dtype.kind == "M" else axis
    notes = [
        f"{where}: {len(frame)} samples of {counted(len(names), 'sensor')} at {len(axis)} times"
    ]
    if again.any():
        samples = counted(int(again.sum()), "sample repeats", "samples repeat")
        notes.append(f"{where}: {samples} another of the same sensor and time; the {rule} is used")
    return names, axis, np.array(wide, dtype=np.float64), notes
