"""Edges along a client's own states, and the sensors behind them, as fields of messages.

Both sides write, check and read them here; what another party sent is checked before it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple
from unicodedata import category

import numpy as np

from fedgranger.federation.agreed_options import is_client_name
from fedgranger.federation.codec import MessageError, Packet, demand
from fedgranger.messages import LARGEST_NUMBER, SHOWN_SENSORS, EdgeMessage, Sensor, ShownSensor

LONGEST_NAME = 200
LARGEST_SCALE = 1e30
MOST_EDGES = 1000
MOST_STEPS = 100
MOST_BLOCKS = 1000
SMALLEST_VARIANCE = 1e-60
LARGEST_SHARE = 1000.0
"""Shares of variance are at most 1; estimated ones may lie beside it."""
SENSOR_BYTES = 14 * (1 + SHOWN_SENSORS) * (LONGEST_NAME + 30)
"""More than the text about one edge's sensors needs; JSON in JSON takes up to 14 bytes a letter."""
LONGEST_TEXT = 2**19
"""Of all sensors in one answer: a header that is twice as long is refused."""
NO_EDGE, NO_SENSOR = "it describes an edge that cannot be one", "its sensor cannot be one"


class OtherSide(NamedTuple):
    """What a client receives of the other side of an edge.

    Attributes:
        client: its name.
        variance_share: of the effect's forecast error that the cause's shocks make up.
        r2_gained: share of the effect's prediction error that the cause's past takes off.
        sensor: its sensor that shows the edge best; None: it is not shared.
    """

    client: str
    variance_share: float
    r2_gained: float | None
    sensor: Sensor | None


class SideOfEdges(NamedTuple):
    """The edges of which a client is the cause, or the effect.

    Attributes:
        side: "cause" or "effect".
        others: the other side of every edge.
        message: what the edges do, along the client's states.
        blocks: how many blocks of time the errors come from.
        confidence: of the bands.
    """

    side: str
    others: tuple[OtherSide, ...]
    message: EdgeMessage
    blocks: int
    confidence: float


def side_fields(own: SideOfEdges) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Values and arrays of a `translate`."""
    values = {
        "side": own.side,
        "edges": json.dumps(own.others, allow_nan=False),
        "blocks": own.blocks,
        "confidence": own.confidence,
    }
    return values, own.message._asdict()


def read_side(packet: Packet) -> SideOfEdges:
    """Undo `side_fields`."""
    values = packet.values
    others = tuple(
        OtherSide(client, share, gained, None if sensor is None else Sensor(*sensor))
        for client, share, gained, sensor in json.loads(str(values["edges"]))
    )
    blocks, confidence = int(values["blocks"]), float(values["confidence"])
    message = EdgeMessage(**packet.arrays)
    return SideOfEdges(str(values["side"]), others, message, blocks, confidence)


def check_side(packet: Packet, client: str, dim: int) -> None:
    """Demand that a `translate` is about edges of a client with so many states.

    Raises:
        MessageError: it is not.
    """
    values, arrays = packet.values, packet.arrays
    demand(values["side"] in ("cause", "effect"), "it asks for a side that no edge has")
    demand(2 <= int(values["blocks"]) <= MOST_BLOCKS, "its number of blocks is out of range")
    demand(0 < float(values["confidence"]) < 1, "its confidence is not between 0 and 1")
    rows = _read_list(values["edges"], "its edges cannot be read")
    demand(1 <= len(rows) <= MOST_EDGES, "its number of edges is out of range")
    for row in rows:
        _check_other(row)
    names = {row[0] for row in rows}
    is_plain = len(names) == len(rows) and client not in names
    demand(is_plain, "it names an edge twice, or to itself")
    count, steps = len(rows), arrays["courses"].shape[1]
    demand(1 <= steps <= MOST_STEPS, "its courses are too long")
    for name, shape in (
        ("cov", (dim, dim)),
        ("directions", (count, dim)),
        ("courses", (count, steps, dim)),
        ("course_covs", (count, steps, dim, dim)),
    ):
        found = arrays[name].shape
        demand(found == shape, f"its {name} have shape {found}, not {shape}")
    cov = arrays["cov"]
    is_cov = float(np.abs(cov).max()) >= SMALLEST_VARIANCE and is_covariance(cov)
    demand(is_cov, "its covariance of states cannot be one")


def is_covariance(cov: np.ndarray) -> bool:
    """Whether it is symmetric and positive semidefinite, up to rounding."""
    scale = float(np.abs(cov).max())
    is_symmetric = bool(np.abs(cov - cov.T).max() <= 1e-9 * scale)
    return is_symmetric and bool(np.linalg.eigvalsh(cov)[0] >= -1e-9 * scale)


def sensor_fields(
    shown: Sequence[ShownSensor | None], dim: int
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Values and arrays of `sensors`; None: nothing is sent of that edge."""
    texts = [None if one is None else (one.sensor, one.behind) for one in shown]
    rows = np.stack([np.zeros(dim) if one is None else one.row for one in shown])
    return {"sensors": json.dumps(texts, allow_nan=False)}, {"rows": rows}


def no_sensors(packet: Packet, count: int, dim: int) -> Packet:
    """The answer of a client that sends nothing, in the place of another one of it."""
    values, arrays = sensor_fields([None] * count, dim)
    return packet._replace(kind="sensors", values=values, arrays=arrays)


def read_sensors(packet: Packet) -> list[ShownSensor | None]:
    """Undo `sensor_fields`."""
    texts = json.loads(str(packet.values["sensors"]))
    return [
        None if text is None else ShownSensor(Sensor(*text[0]), row, tuple(map(tuple, text[1])))
        for text, row in zip(texts, packet.arrays["rows"], strict=True)
    ]


def check_sensors(packet: Packet, count: int, dim: int) -> None:
    """Demand that a `sensors` is about so many edges of a client with so many states.

    Raises:
        MessageError: it is not.
    """
    texts = _read_list(packet.values["sensors"], "its sensors cannot be read")
    rows = packet.arrays["rows"]
    demand(len(texts) == count, f"it names sensors of {len(texts)} edges, not {count}")
    demand(rows.shape == (count, dim), f"its rows have shape {rows.shape}, not {(count, dim)}")
    for text, row in zip(texts, rows, strict=True):
        demand(text is not None or not row.any(), "it reports a sensor without a name")
        if text is not None:
            _check_shown(text)


def is_showable(shown: ShownSensor) -> bool:
    """Whether others would take it: names that can be printed, and numbers."""
    values, arrays = sensor_fields([shown], len(shown.row))
    try:
        check_sensors(Packet("sensors", "", "", values, arrays), 1, len(shown.row))
    except (MessageError, ValueError):  # ValueError: NaN
        return False
    return bool((np.abs(shown.row) <= LARGEST_NUMBER).all())  # also NaN


def _check_shown(text: Any) -> None:
    demand(isinstance(text, list) and len(text) == 2 and isinstance(text[1], list), NO_SENSOR)
    sensor, behind = text
    _check_sensor(sensor)
    demand(len(behind) <= SHOWN_SENSORS, NO_SENSOR)
    for one in behind:
        demand(isinstance(one, list) and len(one) == 2 and _is_name(one[0]), NO_SENSOR)
        demand(_is_number(one[1]) and abs(one[1]) <= 1.001, NO_SENSOR)


def _check_other(row: Any) -> None:
    demand(isinstance(row, list) and len(row) == 4, NO_EDGE)
    client, share, gained, sensor = row
    demand(is_client_name(client), NO_EDGE)
    demand(_is_share(share) and (gained is None or _is_share(gained)), NO_EDGE)
    if sensor is not None:
        _check_sensor(sensor)


def _check_sensor(found: Any) -> None:
    demand(isinstance(found, list) and len(found) == 3, NO_SENSOR)
    name, is_change, scale = found
    demand(_is_name(name) and type(is_change) is bool and _is_number(scale), NO_SENSOR)
    demand(1 / LARGEST_SCALE <= scale <= LARGEST_SCALE, NO_SENSOR)


def _is_name(name: Any) -> bool:
    """Whether it can be shown: any letters and spaces, nothing that moves a cursor or a text."""
    return (
        isinstance(name, str)
        and 1 <= len(name) <= LONGEST_NAME
        and all(letter.isprintable() or category(letter) == "Zs" for letter in name)
    )


def _is_number(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


def _is_share(value: Any) -> bool:
    return _is_number(value) and abs(value) <= LARGEST_SHARE


def _read_list(text: Any, sentence: str) -> list[Any]:
    try:
        found = json.loads(str(text), parse_int=float)  # of any length
    except (ValueError, RecursionError):
        raise MessageError(sentence) from None
    if not isinstance(found, list):
        raise MessageError(sentence)
    return found
