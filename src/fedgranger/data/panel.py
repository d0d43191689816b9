"""`Panel`: the measurements of all clients on one common time axis."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd

from fedgranger.data.client_data import ClientData, from_array, segment_starts
from fedgranger.data.findings import Finding
from fedgranger.data.reading_options import PanelOptions, ReadingOptions
from fedgranger.data.reading_progress import Report, followed
from fedgranger.errors import DataError
from fedgranger.fit_keywords import ReadingKeywords


@dataclass(frozen=True, eq=False, repr=False)
class Panel:
    """Named clients, named sensors, a common time axis and a mask for missing samples.

    Attributes:
        clients: the clients, in the order given (results never depend on that order).
        time: shape (time,), strictly increasing numbers or time stamps.
        notes: sentences on what was done to the data while reading (rows lost in the
            alignment, sensors dropped or differenced, samples masked). Nothing is done silently.
        findings: what is odd about single sensors; None when they were not examined.
        time_zone: of the clock that the data were written with, such as Europe/Berlin; empty when
            they named none. `time` is in UTC either way.
        reading: options that it took to read the data, and whether "files" or "frames" (`of`).

    Example:
        >>> import numpy as np
        >>> panel = Panel.from_arrays({"a": np.eye(3), "b": np.ones((3, 2)) * [[1], [2], [3]]})
        >>> panel.names, panel.num_steps
        (('a', 'b'), 3)
    """

    clients: tuple[ClientData, ...]
    time: np.ndarray
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] | None = None
    time_zone: str = ""
    reading: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the clients are distinct and share the time axis."""
        names = self.names
        if len(set(names)) != len(names):
            raise DataError(f"client names are not unique: {', '.join(names)}; rename one of them")
        for name in names:
            if " -> " in name:
                raise DataError(
                    f"client '{name}': ' -> ' stands between the two clients of an edge; rename it"
                )
        for client in self.clients:
            if len(client.values) != len(self.time):
                raise DataError(
                    f"client '{client.name}': {len(client.values)} rows for "
                    f"{len(self.time)} time steps; align the clients first"
                )
        if self.time.ndim != 1 or self.time.dtype.kind not in "iufM":
            raise DataError(
                f"the time axis is {self.time.dtype} of shape {self.time.shape}; give one number "
                "or numpy datetime64 per time step"
            )
        if len(self.time) > 1 and not bool(np.all(self.time[1:] > self.time[:-1])):
            raise DataError("the time axis is not strictly increasing; sort it and drop duplicates")

    def __repr__(self) -> str:
        """Clients with their numbers of sensors, and the period."""
        sizes = ", ".join(f"{client.name} ({client.num_sensors})" for client in self.clients)
        ends = self.time_index[[0, -1]] if self.num_steps else []
        shown = [str(end).replace(" ", "T") for end in ends]
        ends = f", {shown[0]} to {shown[1]}" if shown else ""
        return f"Panel of {self.num_steps} steps{ends}: {sizes}"

    @property
    def names(self) -> tuple[str, ...]:
        """Client names in panel order."""
        return tuple(client.name for client in self.clients)

    @property
    def num_steps(self) -> int:
        """Number of common time steps T."""
        return len(self.time)

    @property
    def time_index(self) -> pd.Index:
        """The time axis as an index for tables, in the zone that the data were written with."""
        return self.indexed(self.time)

    def indexed(self, time: np.ndarray) -> pd.Index:
        """Any times of this axis as an index like `time_index`."""
        index = pd.Index(time, name="time")
        if not isinstance(index, pd.DatetimeIndex) or not self.time_zone:
            return index
        return index.tz_localize("UTC").tz_convert(self.time_zone)

    @property
    def segment_starts(self) -> np.ndarray:
        """Bool per time step: the step does not follow its predecessor.

        The first step always starts a segment; later ones do where the time axis jumps by more
        than `GAP_FACTOR` median intervals. Pairs (t, t+1) across a start are never used.
        """
        return segment_starts(self.time)

    def __getitem__(self, name: str) -> ClientData:
        """Return the client of that name."""
        for client in self.clients:
            if client.name == name:
                return client
        raise DataError(f"no client '{name}'; the panel has {', '.join(self.names)}")

    def __iter__(self) -> Iterator[ClientData]:
        """Iterate over the clients in panel order."""
        return iter(self.clients)

    def __len__(self) -> int:
        """Return the number of clients M."""
        return len(self.clients)

    def select(self, names: Sequence[str]) -> Panel:
        """Return a panel with these clients, in this order."""
        return replace(self, clients=tuple(self[name] for name in names))

    def slice(self, start: int, stop: int) -> Panel:
        """Return the time steps `start:stop` of every client."""
        clients = tuple(
            replace(c, values=c.values[start:stop], observed=c.observed[start:stop]) for c in self
        )
        return replace(self, clients=clients, time=self.time[start:stop])

    def data_hash(self) -> str:
        """SHA-256 over names, shapes, time, values and masks; the same for any client order."""
        digest = hashlib.sha256()
        digest.update(f"{self.time.dtype}{self.time.shape}".encode())
        digest.update(np.ascontiguousarray(self.time).view(np.uint8).data)
        for client in sorted(self.clients, key=lambda c: c.name):
            digest.update(repr((client.name, client.sensors, client.values.shape)).encode())
            digest.update(np.ascontiguousarray(client.values).view(np.uint8).data)
            digest.update(np.packbits(client.observed).data)
        return digest.hexdigest()

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, np.ndarray],
        *,
        sensors: Mapping[str, Sequence[str]] | None = None,
        time: np.ndarray | None = None,
    ) -> Panel:
        """Build a panel from one (time, sensor) array per client; NaN marks a missing sample."""
        named = sensors or {}
        clients = tuple(from_array(name, one, named.get(name)) for name, one in arrays.items())
        if not clients:
            raise DataError("no clients were given; at least two are needed")
        axis = np.arange(len(clients[0].values)) if time is None else np.asarray(time)
        if axis.dtype.kind == "M":  # one unit, so that the same data have the same hash
            axis = axis.astype("datetime64[ns]")
        return cls(clients, axis)

    @classmethod
    def from_frames(
        cls,
        data: Mapping[str, Any] | Any,
        *,
        clients: Mapping[str, Iterable[str]] | None = None,
        **options: Unpack[ReadingKeywords],
    ) -> Panel:
        """Build a panel from a data frame per client, or from one wide frame.

        Args:
            data: frames by client, or one frame; their time index or column is the time axis, by
                which clients are aligned.
            clients: which columns of one wide frame are whose.
            options: those of `read`.

        Example:
            >>> import pandas as pd
            >>> hours = pd.date_range("2026-03-01", periods=3, freq="h", tz="Europe/Berlin")
            >>> frame = pd.DataFrame({"a": [1.0, 3.0, 2.0], "b": [2.0, 2.0, 5.0]}, index=hours)
            >>> panel = Panel.from_frames(frame, clients={"boiler": ["a"], "turbine": ["b"]})
            >>> panel.names, str(panel.time_index[0])
            (('boiler', 'turbine'), '2026-03-01 00:00:00+01:00')
        """
        from fedgranger.data.frames import frames_panel

        return frames_panel(data, clients, PanelOptions.from_mapping(options))

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        partition: str | Path | None = None,
        report: Report | None = None,
        **options: Any,
    ) -> Panel:
        """Read a folder with one file per client, or one table and a partition.

        Files are .csv, .tsv, .txt (also as .gz), .xlsx or .parquet.

        Args:
            path: the folder, or the table when `partition` or `map` is given.
            partition: JSON or TOML file that maps each client to its columns of the table.
            report: called with (what, done, total) while large files are read.
            options: how the files are written and what is done about missing, constant and odd
                sensors: `PanelOptions`, listed in docs/options.md; the same words as on the
                command line.
        """
        from fedgranger.data.panel_files import read_panel

        if partition is not None:
            options["partition"] = str(Path(partition))
        with followed(report, Path(path)):
            return read_panel(Path(path), PanelOptions.from_mapping(options))

    def prepared(
        self,
        *,
        missing: str = "error",
        constant: str = "error",
        difference: str | Iterable[str] = "auto",
        leave_out: str | Iterable[str] = "",
        suspect: str = "error",
    ) -> Panel:
        """Check and treat measurements that were not read from files; see `read`.

        Missing samples are masked already, so `missing` is about codes such as -9999.
        """
        from fedgranger.data.finishing import prepare_panel

        options: dict[str, Any] = {"missing": missing, "constant": constant, "suspect": suspect}
        options |= {"difference": difference, "leave_out": leave_out}
        return prepare_panel(self, ReadingOptions.from_mapping(options))

    def write(self, folder: str | Path, *, format: str = "csv") -> list[Path]:
        """Write one CSV or Parquet file per client with a `time` column; return the paths."""
        from fedgranger.data.panel_writing import write_panel

        return write_panel(self, Path(folder), format)
