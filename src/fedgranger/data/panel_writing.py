"""Write a `Panel` as files, one per client, that are read again to the same bits."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as arrow_parquet

from fedgranger.data.client_data import ClientData
from fedgranger.data.panel import Panel
from fedgranger.disk import write_atomically
from fedgranger.errors import DataError
from fedgranger.option_fields import check_choice

UNSAFE_NAME = re.compile(r'^$|^[.]|[\x00-\x1f/\\:*?"<>|]|[. ]$')


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
        write_atomically(path, functools.partial(_write_client, client, panel.time, format))
        paths.append(path)
    return paths


def _write_client(client: ClientData, time: np.ndarray, format: str, path: Path) -> None:
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
