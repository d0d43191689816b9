"""What a client answers, as fields of messages: the same over any engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedgranger._version import __version__
from fedgranger.client.client_side import ClientSide
from fedgranger.client.learner import ClientMemory, Learner
from fedgranger.data.time_axis import TimeRange
from fedgranger.errors import UnstableRecursionError
from fedgranger.federation.edge_fields import sensor_fields
from fedgranger.federation.time_fields import axis_fields
from fedgranger.messages import (
    CONTENTS,
    LARGEST_NUMBER,
    ClientHello,
    MonitorMessage,
    ShownSensor,
    StateHello,
)

Answer = tuple[str, dict[str, Any], dict[str, np.ndarray]]
"""Kind, values and arrays of a message; `messages.CONTENTS` lists them."""
DONE: Answer = ("done", {}, {})


def time_range(kind: str, axis: TimeRange, clock: float, epoch: int, **own: Any) -> Answer:
    """A client's time axis, clock and version: `range`, or `news` of its new data."""
    values, arrays = axis_fields(axis)
    return kind, {**values, "clock": clock, "version": __version__, "epoch": epoch, **own}, arrays


def hello(prepared: ClientSide) -> Answer:
    """What the tests need to know of a client's states."""
    return _fields_of("hello", prepared.hello)


def model(prepared: ClientSide) -> Answer:
    """What FedGC's rounds need to know of a client before the first."""
    if prepared.for_rounds is None:
        raise RuntimeError("the run has no rounds of FedGC")
    return _fields_of("model", prepared.for_rounds.hello)


def _fields_of(kind: str, message: StateHello | ClientHello) -> Answer:
    """Every field that `CONTENTS` lists for this kind, in its type."""
    content = CONTENTS[kind]
    values = {name: of(getattr(message, name)) for name, of in content.values.items()}
    return kind, values, {name: np.asarray(getattr(message, name)) for name in content.arrays}


def round_message(
    learner: Learner, memory: ClientMemory, round_index: int, piece: int, *, want_filtered: bool
) -> Answer:
    """Filtered and corrected states of one piece of a round, and how the last pass went."""
    arrays = dict(learner.send(memory, round_index, piece))
    if not want_filtered:
        arrays["filtered_states"] = arrays["filtered_states"][:0]
    report = learner.report(memory, round_index)
    change, size = report or (0.0, 0.0)
    if not (np.abs(arrays["augmented_states"]) <= LARGEST_NUMBER).all():  # also NaN
        raise UnstableRecursionError(
            f"client '{learner.name}': its parameters diverged; use smaller step sizes or 'auto'"
        )
    values = {"has_report": report is not None, "change": change, "size": size}
    return "message", {"round": round_index, "piece": piece, **values}, arrays


def states(prepared: ClientSide, piece: int, message_steps: int) -> Answer:
    """One piece of the least-squares states."""
    rows = slice(piece * message_steps, (piece + 1) * message_steps)
    arrays = {"states": prepared.states[rows], "is_observed": prepared.is_observed[rows]}
    return "states", {"piece": piece}, arrays


def sensors(shown: Sequence[ShownSensor | None], dim: int) -> Answer:
    """The sensors behind edges, as far as they are sent."""
    return "sensors", *sensor_fields(shown, dim)


def monitor(message: MonitorMessage, piece: int) -> Answer:
    """A report on new steps; surprise that is not known is sent as 0, which the flags state."""
    surprise = np.asarray(message.surprise)
    arrays = {
        "states": np.asarray(message.states),
        "surprise": np.where(np.isnan(surprise), 0.0, surprise),
        "is_observed": np.asarray(message.is_observed),
    }
    return "monitor", {"piece": piece}, arrays
