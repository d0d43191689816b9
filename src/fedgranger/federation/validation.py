"""What the server demands of an answer before it uses it.

`codec` has already refused damage, unknown fields and numbers that are not finite; here are the
demands that depend on what was asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedgranger.data.time_axis import MOST_STRETCHES
from fedgranger.federation.codec import MessageError, Packet, demand
from fedgranger.federation.edge_fields import SENSOR_BYTES, check_sensors, is_covariance
from fedgranger.federation.time_fields import read_time_range
from fedgranger.messages import LARGEST_NUMBER
from fedgranger.periods import MOST_PERIODS

Shape = tuple[int, int] | None
"""(time steps or edges, states) of the arrays in an answer, where that is known."""
ANSWERS = {
    "offer": "range",
    "begin": "hello",
    "join": "done",
    "train": "model",
    "step": "message",
    "upload": "states",
    "translate": "sensors",
    "finish": "done",
    "watch": "news",
    "follow": "done",
    "report": "monitor",
    "alarm": "done",
}
LARGEST_EPOCH = 2**40
LARGEST_ORDER = 1000
LARGEST_STATE = 64
LONGEST_PERIOD = 2**40
ENVELOPE_BYTES = 4096
"""More than any header with its few fields needs."""


def check_length(kind: str, shape: Shape, payload: bytes) -> None:
    """Refuse an answer that is longer than any to a request of this kind, before it is read."""
    if shape is None:
        square, stretches = 8 * LARGEST_STATE**2 + 8, 16 * MOST_STRETCHES
        arrays = {"offer": stretches, "watch": stretches, "begin": 2 * square, "train": square}
        largest = ENVELOPE_BYTES + arrays.get(kind, 0)
    else:
        steps, dim = shape
        texts = steps * SENSOR_BYTES if kind == "translate" else 0
        largest = ENVELOPE_BYTES + texts + steps * (2 * 8 * dim + 1)
    demand(len(payload) <= largest, f"it has {len(payload)} bytes, more than {largest}")


def check_sender(packet: Packet, run: str, client: str) -> None:
    """Refuse an answer that speaks for another client or run than the engine brought it for."""
    demand(packet.run == run and packet.client == client, "it speaks for another client or run")


def check_answer(kind: str, asked: Mapping[str, Any], shape: Shape, packet: Packet) -> None:
    """Refuse an answer that does not fit its request of this kind and with these values."""
    expected = ANSWERS[kind]
    if kind == "step" and asked["want_piece"] < 0:
        expected = "done"
    if packet.kind != expected:
        raise MessageError(f"it answered '{kind}' with '{packet.kind}'")
    if expected == "range":
        _check_range(packet)
    elif expected == "hello":
        _check_hello(packet)
    elif expected == "model":
        _check_model(shape, packet)
    elif expected == "message":
        _check_message(asked, shape, packet)
    elif expected == "states":
        demand(packet.values["piece"] == asked["piece"], "it sent another piece")
        _check_states("states", shape, packet)
    elif expected == "news":
        _check_axis(packet)
        threshold = float(packet.values["threshold"])
        demand(0 < threshold <= LARGEST_NUMBER, "its normal range does not end above 0")
    elif expected == "monitor":
        _check_monitor(asked, shape, packet)
    elif expected == "sensors" and shape is not None:
        check_sensors(packet, *shape)


def _check_range(packet: Packet) -> None:
    _check_axis(packet)
    values = packet.values
    try:
        rounds = json.loads(str(values["rounds"]))
    except (ValueError, RecursionError):
        rounds = None
    is_list = isinstance(rounds, list) and all(type(k) is int and k >= 0 for k in rounds)
    demand(is_list, "its list of rounds cannot be read")
    is_hash = re.fullmatch(r"[0-9a-f]{32}", str(values["data"])) is not None
    demand(is_hash, "its data hash is not 32 hexadecimal digits")


def _check_axis(packet: Packet) -> None:
    values, axis = packet.values, read_time_range(packet)
    demand(axis.time_kind in ("stamps", "numbers"), "its time axis is of no known kind")
    demand(axis.interval > 0, "its sampling interval is not above 0")
    demand(axis.first <= axis.last, "its last time stamp is before its first")
    steps = (axis.last - axis.first) / axis.interval + 1
    fits = axis.stretches[0][0] == 0 and abs(axis.stretches[-1][1] - steps) <= 1
    demand(fits, "its stretches of time are not those from its first to its last time stamp")
    demand(0 <= int(values["epoch"]) < LARGEST_EPOCH, "its epoch is out of range")
    is_version = re.fullmatch(r"[0-9A-Za-z.+-]{1,40}", str(values["version"])) is not None
    demand(is_version, "its version cannot be read")


def _check_hello(packet: Packet) -> None:
    p = len(packet.arrays["error_cov"])
    for name, words in (("error_cov", "error covariance"), ("added_cov", "noise covariance")):
        cov = packet.arrays[name]
        demand(1 <= p <= LARGEST_STATE and cov.shape == (p, p), "its matrix does not fit")
        demand(is_covariance(cov), f"its {words} is not symmetric positive semidefinite")
    demand(
        0 <= float(packet.values["clipped_share"]) <= 1,
        "its share of clipped states is not between 0 and 1",
    )
    order = int(packet.values["own_lags"])
    demand(1 <= order <= LARGEST_ORDER, "its number of own lags is out of range")
    share = float(packet.values["noise_share"])
    demand(0 <= share <= 1, "its share of noise is not between 0 and 1")
    periods = packet.arrays["periods"]
    fits = len(periods) <= MOST_PERIODS and len(np.unique(periods)) == len(periods)
    fits = fits and all(2 <= steps <= LONGEST_PERIOD for steps in periods.tolist())
    demand(fits, "its periods are not a few whole numbers of steps")


def _check_model(shape: Shape, packet: Packet) -> None:
    found = packet.arrays["self_transition"].shape
    demand(found == shape, f"its self_transition has shape {found}, not {shape}")
    demand(float(packet.arrays["state_gain"]) >= 0, "its state gain is negative")


def _check_message(asked: Mapping[str, Any], shape: Shape, packet: Packet) -> None:
    values, arrays = packet.values, packet.arrays
    fits = values["round"] == asked["round"] and values["piece"] == asked["want_piece"]
    demand(fits, "it sent another round or piece")
    demand(float(values["change"]) >= 0 and float(values["size"]) >= 0, "its report is negative")
    _check_states("augmented_states", shape, packet)
    filtered = arrays["filtered_states"]
    if asked["want_filtered"]:
        _check_states("filtered_states", shape, packet)
        missing = arrays["is_observed"] == 0
        same = np.array_equal(filtered[missing], arrays["augmented_states"][missing])
        demand(same, "it corrects states without a measurement")
    else:
        demand(len(filtered) == 0, "it sent states that were not asked for")


def _check_monitor(asked: Mapping[str, Any], shape: Shape, packet: Packet) -> None:
    demand(packet.values["piece"] == asked["piece"], "it sent another piece")
    _check_states("states", shape, packet)
    surprise, missing = packet.arrays["surprise"], packet.arrays["is_observed"] == 0
    demand(len(surprise) == len(missing), "its numbers of surprise do not fit its states")
    demand(bool((surprise >= 0).all()), "one of its numbers of surprise is negative")
    is_empty = not packet.arrays["states"][missing].any() and not surprise[missing].any()
    demand(is_empty, "it reports on steps that it did not observe")


def _check_states(name: str, shape: Shape, packet: Packet) -> None:
    found, flags = packet.arrays[name].shape, packet.arrays["is_observed"]
    demand(found == shape, f"its {name} have shape {found}, not {shape}")
    demand(len(flags) == found[0], "its flags do not fit its states")
