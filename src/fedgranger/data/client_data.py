"""One client's measurements with their mask, and what its time steps say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedgranger.data.treatment import NO_TREATMENT, Treatment
from fedgranger.errors import DataError

GAP_FACTOR = 1.5
"""A step longer than this many median sampling intervals starts a new segment."""


@dataclass(frozen=True, eq=False)
class ClientData:
    """The sensors of one client.

    Attributes:
        name: the client's id.
        sensors: one name per column.
        values: float64, shape (time, sensor); 0 where not observed.
        observed: bool, same shape; False marks a missing sample.
        treatment: what was done to the measurements; new data must be treated alike.
        units: of sensors whose unit the file states beside their names.
    """

    name: str
    sensors: tuple[str, ...]
    values: np.ndarray
    observed: np.ndarray
    treatment: Treatment = NO_TREATMENT
    units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check shapes and types once, so that the inside need not."""
        if self.values.dtype != np.float64:
            raise DataError(
                f"client '{self.name}': values are {self.values.dtype}, float64 is needed; "
                "convert them with .astype('float64')"
            )
        if self.values.ndim != 2 or self.values.shape[1] != len(self.sensors):
            raise DataError(
                f"client '{self.name}': values have shape {self.values.shape}, "
                f"(time, {len(self.sensors)}) is needed for {len(self.sensors)} sensor names"
            )
        if len(set(self.sensors)) != len(self.sensors):
            raise DataError(
                f"client '{self.name}': sensor names are not unique: {', '.join(self.sensors)}; "
                "rename one of them"
            )
        if self.observed.shape != self.values.shape or self.observed.dtype != np.bool_:
            raise DataError(
                f"client '{self.name}': the mask has shape {self.observed.shape} and type "
                f"{self.observed.dtype}, a bool array of shape {self.values.shape} is needed"
            )

    @property
    def num_sensors(self) -> int:
        """Number of sensors, d_m."""
        return len(self.sensors)

    @property
    def row_observed(self) -> np.ndarray:
        """Bool per time step: every sensor of this client was observed."""
        return np.logical_and.reduce(self.observed, axis=1)


def from_array(name: str, array: np.ndarray, sensors: Sequence[str] | None) -> ClientData:
    """A client of one (time, sensor) array; NaN marks a missing sample."""
    values = np.asarray(array)
    if values.ndim != 2:
        raise DataError(f"client '{name}': the array has {values.ndim} axes; give (time, sensor)")
    if values.dtype.kind not in "iuf":
        raise DataError(
            f"client '{name}': the array is {values.dtype}, float64 is needed; "
            "convert it with .astype('float64')"
        )
    if values.dtype.kind in "iu":
        values = values.astype(np.float64)
    if np.isinf(values).any():
        row, column = np.argwhere(np.isinf(values))[0]
        raise DataError(
            f"client '{name}': the value at row {row + 1}, column {column + 1} is "
            "infinite; replace it by NaN if it is missing"
        )
    if sensors is None:
        sensors = [f"s{j + 1}" for j in range(values.shape[1])]
    observed = ~np.isnan(values)
    return ClientData(name, tuple(map(str, sensors)), np.where(observed, values, 0.0), observed)


def sensor_columns(client: ClientData, sensors: tuple[str, ...]) -> list[int]:
    """Positions of the training data's sensors among the new data's.

    Raises:
        DataError: one of them is absent.
    """
    missing = [name for name in sensors if name not in client.sensors]
    if missing:
        raise DataError(
            f"client '{client.name}': the new data lack sensor '{missing[0]}' (they have "
            f"{', '.join(client.sensors)}); give all {len(sensors)} sensors of the training data"
        )
    return [client.sensors.index(name) for name in sensors]


def segment_starts(time: np.ndarray, interval: float | None = None) -> np.ndarray:
    """Steps of a time axis that do not follow their predecessor; see `Panel.segment_starts`.

    The sampling interval is in the units of `step_lengths`; their median by default.
    """
    starts = np.zeros(len(time), dtype=np.bool_)
    starts[:1] = True
    if len(time) > 2 or interval is not None:
        steps = step_lengths(time)
        starts[1:] |= steps > GAP_FACTOR * (np.median(steps) if interval is None else interval)
    return starts


def step_lengths(time: np.ndarray) -> np.ndarray:
    """From each step to the next, in units of the axis or, of time stamps, in nanoseconds."""
    axis = time.astype("datetime64[ns]") if time.dtype.kind == "M" else time
    return np.diff(axis).astype(np.float64)
