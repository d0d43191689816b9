"""Clients that report on new data batch by batch, all of them in one process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedgranger.client.own_normal import CHECKED_STEPS, PAST_STEPS, check_interval
from fedgranger.data.client_data import ClientData, segment_starts, sensor_columns
from fedgranger.data.panel import Panel
from fedgranger.errors import DataError
from fedgranger.rca.alarms import Alarm, Alarms, knowledge_of
from fedgranger.rca.new_data import (
    check_clients,
    panel_for,
    reports_of,
    require_normal,
    thresholds_of,
    training_interval,
)
from fedgranger.rca.ranking import with_sensors
from fedgranger.rca.scorers import HORIZON
from fedgranger.results import Result


class OnlineAnalysis:
    """Feeds on consecutive batches; ranks the clients while an anomaly is under way.

    The clients' part and the server's (`alarms.Alarms`) in one process. Batches may be of any
    length: the result does not depend on how the data are cut.

    Example:
        >>> import fedgranger as fg
        >>> panel, _ = fg.simulate(2, 600, seed=3)
        >>> analysis = OnlineAnalysis(fg.fit(panel, fg.RunConfig(state_dim=2)))
        >>> analysis.feed(panel.slice(0, 300))  # training data: calm
        []
    """

    def __init__(
        self, result: Result, *, scorer: str = "unexplained", calm_steps: int = 50
    ) -> None:
        self._result = result
        self._normals, _ = require_normal(result)
        self._interval = training_interval(result)
        thresholds = thresholds_of(self._normals)
        self._alarms = Alarms(
            knowledge_of(result), thresholds, scorer=scorer, calm_steps=calm_steps
        )
        self._last: Panel | None = None
        self._times: np.ndarray | None = None
        self._seen = self._kept_from = 0
        self._energy: dict[str, np.ndarray] = {}

    @property
    def alarm_step(self) -> int | None:
        """Step of the alarm that is under way, counted from the first batch."""
        return self._alarms.alarm_step

    def feed(self, data: Any, **reading: Any) -> list[Alarm]:
        """Take the next steps; return the alarms that were under way at any of them.

        The first step follows the last one of the batch before, unless the time axis jumps. Only
        counters of clients that come at different intervals lack their change in the first row of
        a batch that is no panel.

        Args:
            data: whatever `fit` takes, of two rows or more where it is no panel.
            reading: `clients` and options of `Panel.read`, for data that are no panel; those of the
                run's own data need not be repeated.

        Raises:
            DataError: a client or sensor is absent, the batch is not later than the last one, or
                the data come at other intervals than those of training.
        """
        panel = panel_for(self._result, data, reading)
        check_clients(self._normals, panel.names)
        if panel.num_steps == 0:
            return []
        parts = [panel.time] if self._times is None else [self._times, panel.time]
        self._times = np.concatenate(parts)[-max(panel.num_steps, CHECKED_STEPS) :]
        check_interval(self._interval, self._times)
        clients = (
            _only(panel[name], normal.monitor.sensors) for name, normal in self._normals.items()
        )
        new = whole = Panel(tuple(clients), panel.time)
        if self._last is not None:  # the last steps of the batch before are its past
            whole = _joined_panels(self._last, new)
        past = whole.num_steps - new.num_steps
        starts = segment_starts(whole.time, self._interval)
        messages = reports_of(self._normals, whole, starts, past)
        self._last = whole.slice(max(0, whole.num_steps - PAST_STEPS), whole.num_steps)
        self._keep_energy(whole, starts, past)
        found = [
            alarm._replace(ranking=with_sensors(alarm.ranking, self._sensors(alarm)))
            for alarm in self._alarms.feed(
                messages, starts[past:], new.time, is_utc=bool(panel.time_zone)
            )
        ]
        self._seen += new.num_steps
        return found

    def _keep_energy(self, whole: Panel, starts: np.ndarray, past: int) -> None:
        """Energies by sensor since the alarm that is under way, or of the new steps."""
        new = {
            name: normal.sensor_surprise(whole[name], whole.time, starts, past)
            for name, normal in self._normals.items()
        }
        if self._alarms.alarm_step is None:
            self._energy, self._kept_from = new, self._seen
            return
        for name, part in new.items():
            if len(self._energy[name]) < HORIZON + self._alarms.alarm_step - self._kept_from:
                self._energy[name] = np.concatenate([self._energy[name], part])

    def _sensors(self, alarm: Alarm) -> dict[str, list[tuple[str, float]]]:
        first = alarm.step - self._kept_from
        steps = slice(first, first + min(alarm.num_steps, HORIZON))
        return {
            name: normal.most_surprising(self._energy[name][steps])
            for name, normal in self._normals.items()
        }


def _only(client: ClientData, sensors: tuple[str, ...]) -> ClientData:
    """The client with these sensors, in this order."""
    columns = sensor_columns(client, sensors)
    return replace(
        client,
        sensors=sensors,
        values=client.values[:, columns],
        observed=client.observed[:, columns],
    )


def _joined_panels(last: Panel, panel: Panel) -> Panel:
    """The last steps of one batch and the next batch."""
    if not panel.time[0] > last.time[-1]:
        raise DataError(
            f"the batch begins at time {panel.time[0]}, not after the one before, which ended at "
            f"{last.time[-1]}; feed batches in order"
        )
    clients = [
        replace(
            old,
            values=np.concatenate([old.values, panel[old.name].values]),
            observed=np.concatenate([old.observed, panel[old.name].observed]),
        )
        for old in last
    ]
    return Panel(tuple(clients), np.concatenate([last.time, panel.time]))
