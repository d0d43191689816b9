"""What the clients' messages show about some steps of new data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedgranger.client.monitor import MEMORY, monitor_message
from fedgranger.client.season import apply_season
from fedgranger.data.panel import Panel, segment_starts, step_lengths
from fedgranger.errors import DataError, RunError
from fedgranger.inference.reference import Reference, examine_states
from fedgranger.linalg.smoothing import smooth
from fedgranger.messages import MonitorMessage
from fedgranger.normal_operation import Monitor
from fedgranger.results import Result

__all__ = [
    "Evidence",
    "check_clients",
    "check_interval",
    "combine",
    "gather",
    "require_normal",
    "training_interval",
    "without_season",
]

INTERVAL_TOLERANCE = 0.05
"""By how much the sampling interval of new data may differ from that of training."""
CHECKED_STEPS = 20
"""The interval of fewer steps is not checked."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Per step and client; NaN where a step or its predecessor is missing.

    Attributes:
        clients: names, in the order of the columns.
        surprise: the clients' own, 1 on average in normal operation.
        own: energy of the error that a client's own states leave, the same unit.
        cross: energy of the error that all possible causes leave, in units of its usual one.
        deviation: distance of the states from their mean, over its threshold (the paper's d/τ).
        without: [t, m, n], energy left at m when n's contribution is taken out.
        threshold: upper end of each client's normal range of smoothed surprise.
    """

    clients: tuple[str, ...]
    surprise: np.ndarray
    own: np.ndarray
    cross: np.ndarray
    deviation: np.ndarray
    without: np.ndarray
    threshold: np.ndarray

    def steps(self, chosen: slice | np.ndarray) -> Evidence:
        """The chosen steps only."""
        return Evidence(
            self.clients,
            self.surprise[chosen],
            self.own[chosen],
            self.cross[chosen],
            self.deviation[chosen],
            self.without[chosen],
            self.threshold,
        )

    def smoothed(self, start: np.ndarray | float = 1.0) -> np.ndarray:
        """Smoothed surprise per step and client, to be compared with `threshold`."""
        return smooth(self.surprise, start, MEMORY)

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.surprise)


def require_normal(result: Result) -> tuple[dict[str, Monitor], Reference]:
    """What a run learned about normal operation.

    Raises:
        RunError: the run has none.
    """
    if not result.monitors or result.reference is None:
        reason = result.manifest.get("normal", {}).get("reason")
        raise RunError(
            "this run has no model of normal operation"
            + (f" ({reason})" if reason else "; fit again with this version, in one process")
        )
    return result.monitors, result.reference


def gather(result: Result, panel: Panel) -> Evidence:
    """Let every client report on new data, and combine the reports as the server would.

    Args:
        result: a run, for what it learned about normal operation.
        panel: new data with the same clients and sensors.

    Raises:
        DataError: a client or sensor is absent, or the data come at other intervals than those of
            training.
        RunError: the run does not know what is normal.
    """
    monitors, reference = require_normal(result)
    check_clients(monitors, panel)
    check_interval(result, panel.time)
    panel = without_season(result, panel)
    starts = segment_starts(panel.time, training_interval(result))
    messages = {
        name: monitor_message(monitor, panel[name], starts) for name, monitor in monitors.items()
    }
    thresholds = {name: monitor.threshold for name, monitor in monitors.items()}
    return combine(reference, messages, thresholds, starts)


def without_season(result: Result, panel: Panel) -> Panel:
    """New data as each client of the run sees them: what repeated in training is taken out.

    Raises:
        DataError: a sensor is absent, or the time axis is of another kind than in training.
    """
    clients = tuple(
        apply_season(result.seasons[client.name], client, panel.time)
        if client.name in result.seasons
        else client
        for client in panel
    )
    return replace(panel, clients=clients)


def training_interval(result: Result) -> float | None:
    """Ticks per step of the data that a run learned from; None in runs of older versions."""
    return result.manifest.get("normal", {}).get("interval")


def check_interval(result: Result, time: np.ndarray) -> None:
    """Refuse data at other intervals than those of training, whose dynamics are per step.

    Few steps show too little: half of them may lie after gaps.
    """
    interval = training_interval(result)
    if interval is None or len(time) < CHECKED_STEPS:
        return
    found = float(np.median(step_lengths(time)))
    if abs(found / interval - 1) > INTERVAL_TOLERANCE:
        raise DataError(
            f"the new data come every {_duration(found, time)}, those that the run learned from "
            f"came every {_duration(interval, time)}; resample the new data to that interval"
        )


def _duration(length: float, time: np.ndarray) -> str:
    return f"{length / 1e9:g} s" if time.dtype.kind == "M" else f"{length:g}"


def check_clients(monitors: Mapping[str, Monitor], panel: Panel) -> None:
    """Refuse data that lack a client of the run."""
    absent = [name for name in monitors if name not in panel.names]
    if absent:
        raise DataError(
            f"the new data lack client '{absent[0]}' (they have {', '.join(panel.names)}); give "
            f"all {len(monitors)} clients of the run"
        )


def combine(
    reference: Reference,
    messages: Mapping[str, MonitorMessage],
    thresholds: Mapping[str, float],
    starts: np.ndarray,
) -> Evidence:
    """The server's part: needs the messages and each client's threshold, one number."""
    ordered = [messages[name] for name in reference.names]
    states = np.concatenate([np.asarray(message.states) for message in ordered], axis=1)
    observed = np.stack([np.asarray(message.is_observed) for message in ordered], axis=1)
    found = examine_states(reference, states, observed, starts)
    surprise = np.stack([np.asarray(message.surprise) for message in ordered], axis=1)
    limit = np.array([thresholds[name] for name in reference.names])
    return Evidence(reference.names, surprise, *found, limit)
