"""What a client keeps of its normal operation, and how it reports on new data.

New data go through the same hands as those of training, in the same order: codes are masked and
counters differenced, then what repeats is taken out, then the monitor looks. All of it stays at
the client; a report holds states, one number of surprise per step and a flag.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from fedgranger.client.client_side import ClientSide
from fedgranger.client.monitor import fit_monitor, monitor_message, treat
from fedgranger.client.season import apply_season
from fedgranger.data.panel import ClientData, step_lengths
from fedgranger.errors import DataError
from fedgranger.messages import MonitorMessage
from fedgranger.normal_operation import Monitor, Season

PAST_STEPS = 2
"""A report on a step needs the one before, and the change at that one needs one more."""
INTERVAL_TOLERANCE = 0.05
"""By how much the sampling interval of new data may differ from that of training."""
CHECKED_STEPS = 20
"""The interval of fewer steps is not checked: half of them may lie after gaps."""


class OwnNormal(NamedTuple):
    """What a client knows of its own normal operation.

    Attributes:
        monitor: judges new samples.
        season: what repeats; None in runs that took nothing out.
        interval: ticks per step of the training data; None in runs of older versions.
    """

    monitor: Monitor
    season: Season | None
    interval: float | None

    def report(
        self, client: ClientData, time: np.ndarray, starts: np.ndarray, skip: int = 0
    ) -> MonitorMessage:
        """States and surprise of new samples.

        Args:
            client: the new measurements; sensors are found by name.
            time: their time axis.
            starts: steps that do not follow their predecessor.
            skip: so many first steps are only the past of the others (`PAST_STEPS`).

        Raises:
            DataError: a sensor is absent, the data were treated in another way, or the time axis
                is of another kind.
        """
        with threadpool_limits(1):  # the same sums at every site
            client = treat(self.monitor, client, starts)
            if self.season is not None:
                client = apply_season(self.season, client, time)
            return monitor_message(self.monitor, client, starts, skip)


def learn_own_normal(side: ClientSide) -> OwnNormal:
    """Learn it from the training data.

    Raises:
        DataError: there are too few complete pairs of samples.
    """
    with threadpool_limits(1):
        monitor = fit_monitor(side.data, side.starts, side.model)
    return OwnNormal(monitor, side.season, side.interval)


def is_same_interval(found: float, interval: float | None) -> bool:
    """Whether new data come as often as those of training, whose dynamics are per step."""
    return interval is None or abs(found / interval - 1) <= INTERVAL_TOLERANCE


def check_interval(interval: float | None, time: np.ndarray) -> None:
    """Refuse data at other intervals than those of training.

    Raises:
        DataError: with both intervals.
    """
    if interval is None or len(time) < CHECKED_STEPS:
        return
    found = float(np.median(step_lengths(time)))
    if not is_same_interval(found, interval):
        raise DataError(
            f"the new data come every {_duration(found, time)}, those that the run learned from "
            f"came every {_duration(interval, time)}; resample the new data to that interval"
        )


def _duration(length: float, time: np.ndarray) -> str:
    return f"{length / 1e9:g} s" if time.dtype.kind == "M" else f"{length:g}"
