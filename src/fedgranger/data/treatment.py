r"""One client's table, and what is done to its sensors, so that it can be done again.

Two things: a code for missing samples is masked, and a sensor that counts or wanders is replaced by
its change per row,

$$d_t = x_t - x_{t-1},$$

which is missing where either sample is, in the first row after a gap, and where a counter was
reset. The treatment is chosen once, on training data, and applied alike to new data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Treatment(NamedTuple):
    """The treatment of one client's sensors.

    Attributes:
        differenced: sensors whose change per row is used.
        directions: of each: 1 for a counter that rises, -1 for one that falls (a step the other
            way is a reset and has no change), 0 otherwise.
        coded: sensors in which a number stands for a missing sample.
        codes: that number, for each.
    """

    differenced: tuple[str, ...] = ()
    directions: tuple[int, ...] = ()
    coded: tuple[str, ...] = ()
    codes: tuple[float, ...] = ()

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for the manifest."""
        return {
            "differenced": dict(zip(self.differenced, self.directions, strict=True)),
            "codes": dict(zip(self.coded, self.codes, strict=True)),
        }


NO_TREATMENT = Treatment()


class ClientTable(NamedTuple):
    """One client as read.

    Attributes:
        name: the client.
        sensors: names of the columns.
        values: (time, sensor), NaN where a sample is missing.
        time: strictly increasing; None when the rows are the time axis.
        zone: of the time stamps, by themselves or by the options; "" without one.
        is_alone: it is read at its own site, where options name a sensor without the client.
        treatment: what was done to the sensors.
        units: of sensors whose unit the file states beside their names.
    """

    name: str
    sensors: tuple[str, ...]
    values: np.ndarray
    time: np.ndarray | None
    zone: str = ""
    is_alone: bool = False
    treatment: Treatment = NO_TREATMENT
    units: Mapping[str, str] = {}

    def label(self, sensor: str) -> str:
        """How options name a sensor of this client."""
        return sensor if self.is_alone else f"{self.name}.{sensor}"


def treat_columns(
    sensors: Sequence[str], values: np.ndarray, starts: np.ndarray, treatment: Treatment
) -> None:
    """Apply a treatment in place to measurements, shape (time, sensor), NaN where missing.

    `starts` are rows that do not follow their predecessor. Sensors that the treatment names and
    that are not here are left alone.
    """
    place = {name: k for k, name in enumerate(sensors)}
    for name, code in zip(treatment.coded, treatment.codes, strict=True):
        if name in place:
            column = values[:, place[name]]
            column[column == code] = np.nan
    for name, direction in zip(treatment.differenced, treatment.directions, strict=True):
        if name in place:
            column = values[:, place[name]]
            change = np.diff(column, prepend=np.nan)
            change[starts] = np.nan
            change[direction * change < 0] = np.nan
            column[:] = change
