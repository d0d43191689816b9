"""Time axes in messages: exact numbers as text, stretches as an array; read within bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from fedgranger.data.common_axis import agree, unused_notes
from fedgranger.data.time_axis import MOST_STRETCHES, Stretches, TimeGrid, TimeRange
from fedgranger.errors import DataError
from fedgranger.federation.agreed_options import FederationOptions
from fedgranger.federation.codec import MessageError, Packet

NUMBER = re.compile(r"-?\d{1,25}(/\d{1,15})?")
LARGEST_STEP = 2**40


def axis_fields(axis: TimeRange | TimeGrid) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A client's time axis, or the common one, as values and arrays of a message."""
    values = {name: str(getattr(axis, name)) for name in axis._fields if name != "stretches"}
    return values, {"stretches": np.array(axis.stretches, dtype=np.int64)}


def read_time_range(packet: Packet) -> TimeRange:
    """Undo `axis_fields` of a client's axis, or refuse what cannot be read."""
    values = packet.values
    first, last, interval = (read_fraction(values[key]) for key in ("first", "last", "interval"))
    stretches = read_stretches(packet.arrays["stretches"])
    return TimeRange(str(values["time_kind"]), first, last, interval, stretches)


def read_fraction(value: object) -> Fraction:
    """Read an exact number, within bounds."""
    text = str(value)
    try:
        if NUMBER.fullmatch(text):
            return Fraction(text)
    except ZeroDivisionError:
        pass
    raise MessageError("a number of its time axis cannot be read")


def read_stretches(array: np.ndarray) -> Stretches:
    """First step and step after the last of every stretch of time, in order."""
    if array.shape != (len(array), 2) or not 1 <= len(array) <= MOST_STRETCHES:
        raise MessageError("its stretches of time are not a table of two columns")
    ends = array.reshape(-1)
    is_small = bool((ends >= 0).all() and (ends <= LARGEST_STEP).all())  # differences are exact
    if not is_small or not (np.diff(ends) > 0).all():
        raise MessageError("its stretches of time are not in order")
    return tuple((start, stop) for start, stop in array.tolist())


def agreed_start(
    ranges: Mapping[str, Packet], options: FederationOptions, now: float
) -> tuple[TimeGrid, int, list[str]]:
    """The common axis of all clients, whose clocks are checked, and an epoch none of them knows.

    The notes say what the axis leaves out.
    """
    _check_clocks(ranges, options, now)
    own = {name: read_time_range(packet) for name, packet in ranges.items()}
    grid, epoch = agree(own), 1 + max(int(packet.values["epoch"]) for packet in ranges.values())
    return grid, epoch, unused_notes(own, grid)


def _check_clocks(ranges: Mapping[str, Packet], options: FederationOptions, now: float) -> None:
    """Refuse time stamps of a clock that is far from the server's, naming the client."""
    for name, packet in ranges.items():
        offset = float(packet.values["clock"]) - now
        is_stamped = packet.values["time_kind"] == "stamps"
        if is_stamped and options.clock_seconds and abs(offset) > options.clock_seconds:
            raise DataError(
                f"client '{name}': its clock is {offset:+.0f} s from the server's, more than "
                f"clock_seconds = {options.clock_seconds:g}; synchronise the clocks, or raise it "
                "if the time stamps come from elsewhere"
            )
