"""Sensors that strayed from their usual level, alarm or not: at a site, or all in one process.

An alarm needs surprise from one step to the next; what shifts slowly and stays raises none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedgranger.client.own_normal import OwnNormal
from fedgranger.client.usual_levels import LEVEL_STEPS
from fedgranger.data.client_data import ClientData, segment_starts
from fedgranger.data.panel import Panel
from fedgranger.rca.evidence import clock_text
from fedgranger.rca.new_data import require_normal, training_interval
from fedgranger.results import Result

SHOWN = 5


class Excursion(NamedTuple):
    """A sensor that strayed from its usual level.

    Attributes:
        client: its name.
        sensor: its name.
        size: median distance from the training mean in its standard deviations; negative below.
        first: time of the first step.
        last: time of the last one.
        is_utc: times are UTC, because the data named a zone.
    """

    client: str
    sensor: str
    size: float
    first: Any
    last: Any
    is_utc: bool

    @property
    def sentence(self) -> str:
        """What happened and when; without its full stop."""
        side = "above" if self.size > 0 else "below"
        when = " to ".join(time_texts(self.first, self.last, is_utc=self.is_utc))
        return f"{self.name} lay {abs(self.size):.3g} s.d. {side} its usual level from {when}"

    @property
    def name(self) -> str:
        """Of client and sensor."""
        return f"{self.client}.{self.sensor}"

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for `rca.json`."""
        return {
            "client": self.client,
            "sensor": self.sensor,
            "size": self.size,
            "first": plain_time(self.first, is_utc=self.is_utc),
            "last": plain_time(self.last, is_utc=self.is_utc),
            "text": self.sentence,
        }

    def covers(self, time: Any) -> bool:
        """Whether the sensor was away from its usual level at that time."""
        return bool(self.first <= time <= self.last)


class Levels(NamedTuple):
    """What a look at the sensors' levels found.

    Attributes:
        found: the excursions, largest first.
        num_judged: sensors whose level could be judged.
        num_sensors: all of them.
    """

    found: list[Excursion]
    num_judged: int
    num_sensors: int

    def sentences(self, *, is_calm: bool, rest: str = " in rca.json") -> list[str]:
        """Sentences for an engineer; `is_calm` when no alarm was raised and no window asked for.

        `rest` says where those are that are not named.
        """
        quiet = "No alarm: no client surprised its model from one step to the next"
        if not self.num_judged:
            begin = f"{quiet}. But the" if is_calm else "The"
            why = "too few steps, here or in the training data"
            return [f"{begin} level of no sensor could be judged: {why}."]
        if not self.found:
            extent = (
                f"{self.num_judged} of {self.num_sensors} sensors, means of {LEVEL_STEPS} steps"
            )
            begin = f"{quiet}, and no" if is_calm else "No"
            return [f"{begin} sensor strayed from its usual level (looked at: {extent})."]
        first, *others = [f"{one.sentence}." for one in self.found[:SHOWN]]
        more = len(self.found) - SHOWN
        last = [f"{more} more{rest}."] if more > 0 else []
        return [f"{quiet}. But {first}" if is_calm else first, *others, *last]


def time_texts(first: Any, last: Any, *, is_utc: bool) -> tuple[str, str]:
    """Two times in order; the day and the zone are said once.

    Example:
        >>> day = np.array(["2026-03-05T07:02", "2026-03-05T09:00"], "datetime64[s]")
        >>> time_texts(*day, is_utc=True)
        ('2026-03-05 07:02:00', '09:00:00 UTC')
    """
    if not isinstance(first, np.datetime64):
        return f"{first:g}", f"{last:g}"
    begin, end = clock_text(first, is_utc=False), clock_text(last, is_utc=is_utc)
    day = begin.split(" ", maxsplit=1)[0]
    return begin, end.removeprefix(f"{day} ")


def plain_time(time: Any, *, is_utc: bool) -> Any:
    """A time for JSON: a number, or a stamp that ends in Z where it is UTC."""
    if not isinstance(time, np.datetime64):
        return time.item()
    return str(time.astype("datetime64[s]")) + ("Z" if is_utc else "")


def find_excursions(result: Result, panel: Panel) -> Levels:
    """Look at the level of every sensor of new data, which stays with its client.

    Raises:
        DataError: a sensor is absent.
        RunError: the run does not know what is normal.
    """
    normals, _ = require_normal(result)
    starts = segment_starts(panel.time, training_interval(result))
    parts = [
        levels_of(normal, panel[name], panel.time, starts, is_utc=bool(panel.time_zone))
        for name, normal in normals.items()
    ]
    num_judged = sum(part.num_judged for part in parts)
    return Levels(_largest_first(parts), num_judged, sum(part.num_sensors for part in parts))


def levels_of(
    normal: OwnNormal, client: ClientData, time: np.ndarray, starts: np.ndarray, *, is_utc: bool
) -> Levels:
    """What one client finds about its own sensors."""
    stretches, num_judged = normal.unusual_levels(client, time, starts)
    sensors = normal.monitor.sensors
    found = [
        Excursion(client.name, sensors[k], size, time[first], time[last], is_utc)
        for k, size, first, last in stretches
    ]
    found.sort(key=lambda one: -abs(one.size))
    return Levels(found, num_judged, len(sensors))


def joined(parts: Sequence[Levels]) -> Levels:
    """Looks at several windows as one; each of them looked at all sensors."""
    fewest = min(part.num_judged for part in parts)
    return Levels(_largest_first(parts), fewest, parts[0].num_sensors)


def _largest_first(parts: Sequence[Levels]) -> list[Excursion]:
    return sorted((one for part in parts for one in part.found), key=lambda one: -abs(one.size))
