"""New data of a site on the watched time steps, and what the site makes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedgranger.client.own_normal import PAST_STEPS, treat
from fedgranger.client.private_monitor import StampedRows, protect_report
from fedgranger.data.client_data import ClientData, segment_starts
from fedgranger.data.time_axis import LocalSeries, TimeGrid, TimeRange, on_grid
from fedgranger.federation import answers
from fedgranger.federation.answers import Answer
from fedgranger.federation.requests import RefusalError
from fedgranger.federation.watch_records import KeptNormal, just_before, rows_between
from fedgranger.privacy.release import SecretNoise
from fedgranger.rca.excursions import Levels, levels_of

MOST_STEPS = 200
"""Of an alarm; later steps show where it has spread."""
AlarmText = dict[str, Any]
"""An alarm as `requests.read_alarm` gives it."""


class Session(NamedTuple):
    """The new data on the common time axis."""

    run: str
    epoch: int
    steps: int
    grid: TimeGrid
    data: ClientData
    time: np.ndarray
    starts: np.ndarray
    normal: KeptNormal

    def levels(self) -> Levels:
        """What the site finds about the levels of its own sensors."""
        own, is_utc = self.normal.own, self.grid.time_kind == "stamps"
        return levels_of(own, self.data, self.time, self.starts, is_utc=is_utc)

    def with_past(self, first: int, stop: int) -> tuple[ClientData, np.ndarray, np.ndarray, int]:
        """Data, time and starts of steps, after so many before them as they need; how many."""
        begin = max(0, first - PAST_STEPS)
        rows, data = slice(begin, stop), self.data
        part = replace(data, values=data.values[rows], observed=data.observed[rows])
        return part, self.time[rows], self.starts[rows], first - begin


def on_common_axis(
    series: LocalSeries, axis: TimeRange, normal: KeptNormal, grid: TimeGrid
) -> ClientData:
    """The new data on the watched steps; what comes more often is treated at its own rate first.

    So it was in training: a counter's change there is one per row of the client's own. Rows before
    the watched steps are left out, as they are when these are asked for again: the same numbers.
    """
    if grid.interval >= 2 * axis.interval:
        series = rows_between(series, just_before(grid.first, grid.interval), None)
        starts = segment_starts(series.time)
        client = treat(normal.own.monitor, series.client, starts)
        series = series._replace(client=client)
    return on_grid(series, grid)


def own_sensors(session: Session, alarm: AlarmText) -> list[tuple[str, float]]:
    """This site's most surprising sensors over the steps of an alarm, at most `MOST_STEPS`.

    Nothing where the alarm lies outside the steps that are watched.
    """
    first, stop = alarm["step"], min(alarm["step"] + alarm["num_steps"], session.grid.num_steps)
    stop = min(stop, first + MOST_STEPS)
    if not 0 <= first < stop:
        return []
    own = session.normal.own
    return own.most_surprising(own.sensor_surprise(*session.with_past(first, stop)))


def report(session: Session, piece: int, secret: SecretNoise) -> Answer:
    """One piece of the axis; the steps before it are its past."""
    first = piece * session.steps
    stop = min(first + session.steps, session.grid.num_steps)
    if not 0 <= first < stop:
        raise RefusalError("invalid", f"there is no piece {piece}")
    normal = session.normal
    message = normal.own.report(*session.with_past(first, stop))
    if normal.noise is not None:
        steps = StampedRows(session.time[first:stop], session.data.values[first:stop])
        message = protect_report(message, steps, normal.noise, secret, normal.identity)
    return answers.monitor(message, piece)
