"""What the server demands of an answer before it uses it.

`codec` has already refused damage, unknown fields and numbers that are not finite; here are the
demands that depend on what was asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from fedgranger.data.time_axis import MOST_STRETCHES
from fedgranger.federation.codec import MessageError, Packet
from fedgranger.messages import LARGEST_NUMBER
from fedgranger.periods import MOST_PERIODS

ANSWERS = {
    "offer": "range",
    "begin": "hello",
    "join": "done",
    "train": "model",
    "step": "message",
    "upload": "states",
    "finish": "done",
    "watch": "news",
    "follow": "done",
    "report": "monitor",
    "alarm": "done",
}
NUMBER = re.compile(r"-?\d{1,25}(/\d{1,15})?")
LARGEST_EPOCH = 2**40
LARGEST_ORDER = 1000
LARGEST_STATE = 64
LONGEST_PERIOD = 2**40
LARGEST_STEP = 2**40
ENVELOPE_BYTES = 4096
"""More than any header with its few fields needs."""


def largest_answer(kind: str, shape: tuple[int, int] | None) -> int:
    """The most bytes that an answer to a request can have.

    Args:
        kind: of the request.
        shape: (time steps, states) of the arrays in the answer, where that is known.
    """
    if shape is None:
        square = 8 * LARGEST_STATE**2 + 8
        stretches = 16 * MOST_STRETCHES
        arrays = {"offer": stretches, "watch": stretches, "begin": square, "train": square}
        return ENVELOPE_BYTES + arrays.get(kind, 0)
    steps, dim = shape
    return ENVELOPE_BYTES + steps * (2 * 8 * dim + 1)


def check_sender(packet: Packet, run: str, client: str) -> None:
    """Refuse an answer that speaks for another client or run than the engine brought it for."""
    _demand(packet.run == run and packet.client == client, "it speaks for another client or run")


def check_answer(
    kind: str, asked: Mapping[str, Any], shape: tuple[int, int] | None, packet: Packet
) -> None:
    """Refuse an answer that does not fit its request.

    Args:
        kind: of the request.
        asked: the request's values.
        shape: (time steps, states) of the arrays in the answer, where that is known.
        packet: the answer.

    Raises:
        MessageError: with what does not fit.
    """
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
        _demand(packet.values["piece"] == asked["piece"], "it sent another piece")
        _check_shape("states", shape, packet)
        _check_flags(packet, "states")
    elif expected == "news":
        _check_axis(packet)
        threshold = float(packet.values["threshold"])
        _demand(0 < threshold <= LARGEST_NUMBER, "its normal range does not end above 0")
    elif expected == "monitor":
        _check_monitor(asked, shape, packet)


def _check_range(packet: Packet) -> None:
    _check_axis(packet)
    values = packet.values
    try:
        rounds = json.loads(str(values["rounds"]))
    except (ValueError, RecursionError):
        rounds = None
    is_list = isinstance(rounds, list) and all(type(k) is int and k >= 0 for k in rounds)
    _demand(is_list, "its list of rounds cannot be read")
    is_hash = re.fullmatch(r"[0-9a-f]{32}", str(values["data"])) is not None
    _demand(is_hash, "its data hash is not 32 hexadecimal digits")


def _check_axis(packet: Packet) -> None:
    values = packet.values
    for name in ("first", "last", "interval"):
        read_fraction(values[name])
    _demand(values["time_kind"] in ("stamps", "numbers"), "its time axis is of no known kind")
    _demand(read_fraction(values["interval"]) > 0, "its sampling interval is not above 0")
    first, last = read_fraction(values["first"]), read_fraction(values["last"])
    _demand(first <= last, "its last time stamp is before its first")
    stretches = read_stretches(packet.arrays["stretches"])
    steps = (last - first) / read_fraction(values["interval"]) + 1
    fits = stretches[0][0] == 0 and abs(stretches[-1][1] - steps) <= 1
    _demand(fits, "its stretches of time are not those from its first to its last time stamp")
    _demand(0 <= int(values["epoch"]) < LARGEST_EPOCH, "its epoch is out of range")
    is_version = re.fullmatch(r"[0-9A-Za-z.+-]{1,40}", str(values["version"])) is not None
    _demand(is_version, "its version cannot be read")


def read_stretches(array: np.ndarray) -> tuple[tuple[int, int], ...]:
    """First step and step after the last of every stretch of time, in order.

    Raises:
        MessageError: they are no stretches.
    """
    count = len(array)
    fits = array.ndim == 2 and array.shape == (count, 2) and 1 <= count <= MOST_STRETCHES
    _demand(fits, "its stretches of time are not a table of two columns")
    ends = array.reshape(-1)
    is_small = bool((ends >= 0).all() and (ends <= LARGEST_STEP).all())  # differences are exact
    _demand(is_small and bool((np.diff(ends) > 0).all()), "its stretches of time are not in order")
    return tuple((start, stop) for start, stop in array.tolist())


def _check_hello(packet: Packet) -> None:
    E = packet.arrays["error_cov"]
    p = len(E)
    _demand(1 <= p <= LARGEST_STATE and E.shape == (p, p), "its matrix does not fit")
    scale = float(np.abs(E).max())
    is_cov = bool(np.abs(E - E.T).max() <= 1e-9 * scale)
    is_cov = is_cov and bool(np.linalg.eigvalsh(E)[0] >= -1e-9 * scale)
    _demand(is_cov, "its error covariance is not symmetric positive semidefinite")
    order = int(packet.values["own_lags"])
    _demand(1 <= order <= LARGEST_ORDER, "its number of own lags is out of range")
    periods = packet.arrays["periods"]
    fits = len(periods) <= MOST_PERIODS and len(np.unique(periods)) == len(periods)
    fits = fits and all(2 <= steps <= LONGEST_PERIOD for steps in periods.tolist())
    _demand(fits, "its periods are not a few whole numbers of steps")


def _check_model(shape: tuple[int, int] | None, packet: Packet) -> None:
    found = packet.arrays["self_transition"].shape
    _demand(found == shape, f"its self_transition has shape {found}, not {shape}")
    _demand(float(packet.arrays["state_gain"]) >= 0, "its state gain is negative")


def _check_message(asked: Mapping[str, Any], shape: tuple[int, int] | None, packet: Packet) -> None:
    values, arrays = packet.values, packet.arrays
    fits = values["round"] == asked["round"] and values["piece"] == asked["want_piece"]
    _demand(fits, "it sent another round or piece")
    _demand(float(values["change"]) >= 0 and float(values["size"]) >= 0, "its report is negative")
    _check_shape("augmented_states", shape, packet)
    _check_flags(packet, "augmented_states")
    filtered = arrays["filtered_states"]
    if asked["want_filtered"]:
        _check_shape("filtered_states", shape, packet)
        missing = arrays["is_observed"] == 0
        same = np.array_equal(filtered[missing], arrays["augmented_states"][missing])
        _demand(same, "it corrects states without a measurement")
    else:
        _demand(len(filtered) == 0, "it sent states that were not asked for")


def _check_monitor(asked: Mapping[str, Any], shape: tuple[int, int] | None, packet: Packet) -> None:
    _demand(packet.values["piece"] == asked["piece"], "it sent another piece")
    _check_shape("states", shape, packet)
    _check_flags(packet, "states")
    surprise, missing = packet.arrays["surprise"], packet.arrays["is_observed"] == 0
    _demand(len(surprise) == len(missing), "its numbers of surprise do not fit its states")
    _demand(bool((surprise >= 0).all()), "one of its numbers of surprise is negative")
    is_empty = not packet.arrays["states"][missing].any() and not surprise[missing].any()
    _demand(is_empty, "it reports on steps that it did not observe")


def _check_shape(name: str, shape: tuple[int, int] | None, packet: Packet) -> None:
    found = packet.arrays[name].shape
    _demand(found == shape, f"its {name} have shape {found}, not {shape}")


def _check_flags(packet: Packet, name: str) -> None:
    flags = packet.arrays["is_observed"]
    _demand(len(flags) == len(packet.arrays[name]), "its flags do not fit its states")


def _demand(holds: bool, sentence: str) -> None:
    if not holds:
        raise MessageError(sentence)


def read_fraction(value: object) -> Fraction:
    """Read an exact number, within bounds."""
    text = str(value)
    if not NUMBER.fullmatch(text):
        raise MessageError("a number of its time axis cannot be read")
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise MessageError("a number of its time axis cannot be read") from None
