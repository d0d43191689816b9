r"""What is done to a client's sensors before they are used, so that it can be done again.

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

from fedgranger.errors import ConfigError


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


def treat_columns(
    sensors: Sequence[str], values: np.ndarray, starts: np.ndarray, treatment: Treatment
) -> np.ndarray:
    """Apply a treatment to measurements, shape (time, sensor), NaN where missing.

    Args:
        sensors: names of the columns.
        values: changed in place.
        starts: rows that do not follow their predecessor.
        treatment: sensors it names that are not here are left alone.

    Returns:
        The same array.
    """
    place = {name: k for k, name in enumerate(sensors)}
    for name, code in zip(treatment.coded, treatment.codes, strict=True):
        if name in place:
            column = values[:, place[name]]
            column[column == code] = np.nan
    for name, direction in zip(treatment.differenced, treatment.directions, strict=True):
        if name not in place:
            continue
        column = values[:, place[name]]
        change = np.diff(column, prepend=np.nan)
        change[starts] = np.nan
        change[direction * change < 0] = np.nan
        column[:] = change
    return values


def chosen_sensors(
    option: str, value: str, known: Mapping[str, Sequence[str]], *, words: Sequence[str] = ()
) -> tuple[set[str], dict[str, set[str]]]:
    """Read a list such as "boiler.energy,pump.hours" that may also hold words such as "auto".

    Args:
        option: its name, for the error.
        value: the text; sensors are given as client.sensor, with one client also without it.
        known: every client's sensors.
        words: what may stand in the list beside sensors.

    Returns:
        The words found, and the sensors by client.

    Raises:
        ConfigError: an entry is neither.
    """
    labels: dict[str, tuple[str, str]] = {}
    for client, sensors in known.items():
        for sensor in sensors:
            labels[f"{client}.{sensor}"] = (client, sensor)
            if len(known) == 1:
                labels.setdefault(sensor, (client, sensor))
    named, found = set(), {client: set() for client in known}
    parts = value.split(",") if value.strip() else []
    while parts:
        for end in range(len(parts), 0, -1):  # a name may hold a comma: the longest match counts
            entry = ",".join(parts[:end]).strip()
            if entry in words or entry in labels:
                break
        else:
            raise _unknown(option, parts[0].strip(), labels, words)
        if entry in labels:
            client, sensor = labels[entry]
            found[client].add(sensor)
        else:
            named.add(entry)
        del parts[:end]
    return named, found


def _unknown(
    option: str, entry: str, labels: Mapping[str, tuple[str, str]], words: Sequence[str]
) -> ConfigError:
    from fedgranger.data.input_checks import nearest

    flag = option.replace("_", "-")
    allowed = "".join(f"'{word}', " for word in words) + ("or " if words else "")
    example = next(iter(labels), "client.sensor")
    return ConfigError(
        f"{option} (--{flag}) names '{entry}', which is no sensor{nearest(entry, labels)}; pass "
        f"{allowed}sensors such as {example}"
    )
