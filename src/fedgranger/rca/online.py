"""Analyse new data as they arrive, batch by batch, with what the run saved at training."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedgranger.client.monitor import monitor_message
from fedgranger.data.panel import ClientData, Panel, segment_starts, sensor_columns
from fedgranger.errors import DataError
from fedgranger.rca.evidence import (
    CHECKED_STEPS,
    Evidence,
    check_clients,
    check_interval,
    combine,
    require_normal,
    training_interval,
    without_season,
)
from fedgranger.rca.ranking import Ranking, rank
from fedgranger.rca.scorers import HORIZON
from fedgranger.results import Result

__all__ = ["Alarm", "OnlineAnalysis", "strength_matrix"]


class Alarm(NamedTuple):
    """An anomaly that is under way: the step it was noticed at and the ranking so far."""

    step: int
    ranking: Ranking


def strength_matrix(result: Result, clients: tuple[str, ...]) -> np.ndarray:
    """[m, n] = strength of n's influence on m: tested edges only, or FedGC's own without tests."""
    edges = result.edges()
    strengths = edges["strength"]
    if result.inference is not None:
        strengths = strengths.where(edges["is_edge"].fillna(False).astype(bool), 0.0)
    place = {name: k for k, name in enumerate(clients)}
    out = np.zeros((len(clients), len(clients)))
    for cause, effect, strength in zip(edges["cause"], edges["effect"], strengths, strict=True):
        if cause in place and effect in place:
            out[place[effect], place[cause]] = strength
    return out


class OnlineAnalysis:
    """Feeds on consecutive batches; ranks the clients while an anomaly is under way.

    An alarm begins when some client's smoothed surprise leaves its range, and ends when no client
    was out of range for `quiet` steps. Batches may be of any length: the result does not depend on
    how the data are cut.

    Example:
        >>> import fedgranger as fg
        >>> panel, _ = fg.simulate(2, 600, seed=3)
        >>> analysis = OnlineAnalysis(fg.fit(panel, fg.RunConfig(state_dim=2)))
        >>> analysis.feed(panel.slice(0, 300))  # training data: calm
        []
    """

    def __init__(self, result: Result, *, scorer: str = "unexplained", quiet: int = 50) -> None:
        self._monitors, self._reference = require_normal(result)
        self._result = result
        self._edges = result.edges()
        self._strengths = strength_matrix(result, self._reference.names)
        self._scorer, self._quiet = scorer, quiet
        self._last: Panel | None = None
        self._times: np.ndarray | None = None
        self._parts: list[Evidence] = []
        self._seen, self._calm = 0, 0
        self._alarm_step: int | None = None
        self._memory = np.ones(len(self._reference.names))
        self._before = self._memory
        self._ranking: Ranking | None = None

    @property
    def alarm_step(self) -> int | None:
        """Step of the alarm that is under way, counted from the first batch."""
        return self._alarm_step

    def feed(self, panel: Panel) -> list[Alarm]:
        """Take the next steps; return the alarms that were under way at any of them.

        The first step follows the last one of the batch before, unless the time axis jumps.

        Raises:
            DataError: a client or sensor is absent, the batch is not later than the last one, or
                the data come at other intervals than those of training.
        """
        check_clients(self._monitors, panel)
        if panel.num_steps == 0:
            return []
        parts = [panel.time] if self._times is None else [self._times, panel.time]
        self._times = np.concatenate(parts)[-max(panel.num_steps, CHECKED_STEPS) :]
        check_interval(self._result, self._times)
        evidence, found = self._examine(without_season(self._result, panel)), []
        smoothed = evidence.smoothed(self._memory)
        before = np.concatenate([self._memory[None], smoothed[:-1]])
        for step, is_out in enumerate(np.any(smoothed > evidence.threshold, axis=1).tolist()):
            if self._alarm_step is None and is_out:
                self._alarm_step, self._calm = self._seen + step, 0
                self._before = before[step]
            if self._alarm_step is None:
                continue
            self._calm = 0 if is_out else self._calm + 1
            if len(self._parts) < HORIZON:  # later steps show where it has spread
                self._parts.append(evidence.steps(slice(step, step + 1)))
                self._ranking = None
            if self._calm >= self._quiet:
                found.append(self._alarm(self._alarm_step))
                self._alarm_step, self._ranking = None, None
                self._parts.clear()
        self._memory = smoothed[-1]
        self._seen += len(evidence)
        if self._alarm_step is not None:
            found.append(self._alarm(self._alarm_step))
        return found

    def _alarm(self, step: int) -> Alarm:
        """The alarm's ranking, computed anew only while steps are added that count."""
        if self._ranking is None:
            self._ranking = rank(
                self._joined(),
                self._strengths,
                edges=self._edges,
                scorer=self._scorer,
                name=f"alarm at step {step}",
                start=self._before,
            )
        return Alarm(step, self._ranking)

    def _joined(self) -> Evidence:
        parts = self._parts
        return Evidence(
            parts[0].clients,
            np.concatenate([part.surprise for part in parts]),
            np.concatenate([part.own for part in parts]),
            np.concatenate([part.cross for part in parts]),
            np.concatenate([part.deviation for part in parts]),
            np.concatenate([part.without for part in parts]),
            parts[0].threshold,
        )

    def _examine(self, panel: Panel) -> Evidence:
        """Evidence of the batch; the last two steps of the batch before are its past."""
        used = Panel(
            tuple(_only(panel[name], monitor.sensors) for name, monitor in self._monitors.items()),
            panel.time,
        )
        extended = used if self._last is None else _joined_panels(self._last, used)
        starts = segment_starts(extended.time, training_interval(self._result))
        messages = {
            name: monitor_message(monitor, extended[name], starts)
            for name, monitor in self._monitors.items()
        }
        thresholds = {name: monitor.threshold for name, monitor in self._monitors.items()}
        evidence = combine(self._reference, messages, thresholds, starts)
        # two steps: the change at the last one needs the one before
        self._last = extended.slice(max(0, extended.num_steps - 2), extended.num_steps)
        return evidence.steps(slice(extended.num_steps - used.num_steps, None))


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
