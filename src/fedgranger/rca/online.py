"""Analyse new data as they arrive, batch by batch, with what the run saved at training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedgranger.client.own_normal import CHECKED_STEPS, PAST_STEPS, check_interval
from fedgranger.data.panel import ClientData, Panel, segment_starts, sensor_columns
from fedgranger.errors import DataError
from fedgranger.rca.alarms import Alarm, Alarms
from fedgranger.rca.evidence import Evidence
from fedgranger.rca.knowledge import knowledge_of
from fedgranger.rca.new_data import check_clients, require_normal, training_interval
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

    def __init__(self, result: Result, *, scorer: str = "unexplained", quiet: int = 50) -> None:
        self._normals, _ = require_normal(result)
        self._interval = training_interval(result)
        self._alarms = Alarms(
            knowledge_of(result),
            {name: normal.monitor.threshold for name, normal in self._normals.items()},
            scorer=scorer,
            quiet=quiet,
        )
        self._last: Panel | None = None
        self._times: np.ndarray | None = None

    @property
    def alarm_step(self) -> int | None:
        """Step of the alarm that is under way, counted from the first batch."""
        return self._alarms.alarm_step

    def feed(self, panel: Panel) -> list[Alarm]:
        """Take the next steps; return the alarms that were under way at any of them.

        The first step follows the last one of the batch before, unless the time axis jumps.

        Raises:
            DataError: a client or sensor is absent, the batch is not later than the last one, or
                the data come at other intervals than those of training.
        """
        check_clients(self._normals, panel)
        if panel.num_steps == 0:
            return []
        parts = [panel.time] if self._times is None else [self._times, panel.time]
        self._times = np.concatenate(parts)[-max(panel.num_steps, CHECKED_STEPS) :]
        check_interval(self._interval, self._times)
        return self._alarms.follow(self._examine(panel))

    def _examine(self, panel: Panel) -> Evidence:
        """Evidence of the batch; the last steps of the batch before are its past."""
        used = Panel(
            tuple(
                _only(panel[name], normal.monitor.sensors) for name, normal in self._normals.items()
            ),
            panel.time,
        )
        extended = used if self._last is None else _joined_panels(self._last, used)
        starts = segment_starts(extended.time, self._interval)
        past = extended.num_steps - used.num_steps
        messages = {
            name: normal.report(extended[name], extended.time, starts, past)
            for name, normal in self._normals.items()
        }
        self._last = extended.slice(max(0, extended.num_steps - PAST_STEPS), extended.num_steps)
        return self._alarms.examine(messages, starts[past:])


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
