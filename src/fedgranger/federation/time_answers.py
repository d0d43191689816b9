"""What the clients say of their time axes, and the common axis that they are told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedgranger.data.time_axis import TimeGrid, TimeRange
from fedgranger.errors import DataError
from fedgranger.federation.agreed_options import FederationOptions
from fedgranger.federation.codec import Packet
from fedgranger.federation.exchanges import Answers, Request, request_all
from fedgranger.federation.validation import read_fraction, read_stretches


def check_clocks(ranges: Answers, options: FederationOptions, now: float) -> None:
    """Refuse time stamps of a clock that is far from the server's.

    Raises:
        DataError: naming the client.
    """
    for name, packet in ranges.items():
        offset = float(packet.values["clock"]) - now
        is_stamped = packet.values["time_kind"] == "stamps"
        if is_stamped and options.clock_seconds and abs(offset) > options.clock_seconds:
            raise DataError(
                f"client '{name}': its clock is {offset:+.0f} s from the server's, more than "
                f"clock_seconds = {options.clock_seconds:g}; synchronise the clocks, or raise it "
                "if the time stamps come from elsewhere"
            )


def read_time_range(packet: Packet) -> TimeRange:
    """The time axis of an answer that was checked."""
    values = packet.values
    first, last, interval = (read_fraction(values[key]) for key in ("first", "last", "interval"))
    stretches = read_stretches(packet.arrays["stretches"])
    return TimeRange(str(values["time_kind"]), first, last, interval, stretches)


def request_on_grid(
    names: tuple[str, ...], kind: str, grid: TimeGrid, values: Mapping[str, Any]
) -> Request:
    """The same question to every client, with the common time axis."""
    axis = {
        "time_kind": grid.time_kind,
        "first": str(grid.first),
        "interval": str(grid.interval),
    }
    stretches = {"stretches": np.array(grid.stretches, dtype=np.int64)}
    request = request_all(names, kind, {**values, **axis})
    return request._replace(arrays=dict.fromkeys(names, stretches))
