"""Messages and checkpoints as bytes, and the checks every incoming one must pass.

    "FGM1" | digest of the rest (16 bytes) | length of the header (4) | header (JSON) | arrays

The digest finds damage on the way or on disk; who sent a message is the engine's business (mutual
TLS). Nothing is executed or guessed: a message has exactly the fields that `messages.CONTENTS`
lists for its kind, or it is refused with a sentence.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedgranger.errors import FedGrangerError
from fedgranger.messages import CONTENTS, LARGEST_NUMBER, OLDEST_PROTOCOL, PROTOCOL_VERSION

MAGIC = b"FGM1"
DIGEST_BYTES = 16
LARGEST_HEADER = 2**20
LARGEST_AXES = 4
LARGEST_DIGITS = 18
TYPES = {"f8": np.dtype("<f8"), "u1": np.dtype("u1"), "i8": np.dtype("<i8")}
KINDS = {"f8": "f", "u1": "ub", "i8": "i"}
Scalar = str | int | float | bool


class MessageError(FedGrangerError):
    """An incoming message is not valid."""


def demand(holds: bool, sentence: str) -> None:
    """Refuse a message of which something does not hold."""
    if not holds:
        raise MessageError(sentence)


class Packet(NamedTuple):
    """One message of a run, to or from a client.

    Attributes:
        kind: a key of `messages.CONTENTS`, which lists its values and arrays.
        answers: digest of the request that it answers; empty in a request.
    """

    kind: str
    run: str
    client: str
    values: Mapping[str, Scalar]
    arrays: Mapping[str, np.ndarray] = {}
    answers: str = ""


def encode(packet: Packet) -> bytes:
    """Turn a message into bytes, checked against its own content list."""
    _check_content(packet)
    header = {
        "protocol": PROTOCOL_VERSION,
        "oldest_protocol": OLDEST_PROTOCOL,
        "kind": packet.kind,
        "run": packet.run,
        "client": packet.client,
        "answers": packet.answers,
        "values": dict(packet.values),
    }
    return pack(header, packet.arrays)


def decode(payload: bytes) -> Packet:
    """Read a message.

    Raises:
        MessageError: it is damaged, of another version, or not what its kind should hold.
    """
    header, arrays = unpack(payload)
    _check_protocol(header.pop("protocol", None), header.pop("oldest_protocol", None))
    if set(header) != {"kind", "run", "client", "answers", "values"}:
        raise MessageError("the message's header does not have the fields it should")
    for name in ("kind", "run", "client", "answers"):
        if not isinstance(header[name], str):
            raise MessageError(f"the message's {name} is not a text")
    if not isinstance(header["values"], dict):
        raise MessageError("the message's values are not named")
    packet = Packet(arrays=arrays, **header)
    _check_content(packet)
    return packet


def _check_protocol(theirs: Any, oldest: Any) -> None:
    """Each side says what it speaks and how far back it understands; both must be content."""
    are_numbers = type(theirs) is int and type(oldest) is int
    if not are_numbers or theirs < OLDEST_PROTOCOL or oldest > PROTOCOL_VERSION:
        raise MessageError(
            f"the message has protocol {str(theirs)[:20]} (at least {str(oldest)[:20]}), this side "
            f"has {PROTOCOL_VERSION} (at least {OLDEST_PROTOCOL}); install the newer version of "
            "fedgranger at both"
        )


def digest(payload: bytes) -> str:
    """Name a request by its content, so that an answer can say what it answers."""
    return hashlib.blake2b(payload, digest_size=DIGEST_BYTES).hexdigest()


def pack(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Put a header and arrays into one string of bytes with a digest."""
    buffers, described = [], []
    for name, array in arrays.items():
        code = {"f": "f8", "b": "u1", "u": "u1", "i": "i8"}[array.dtype.kind]
        described.append([name, code, list(array.shape)])
        buffers.append(np.ascontiguousarray(array, dtype=TYPES[code]).tobytes())
    text = json.dumps({**header, "arrays": described}, allow_nan=False).encode()
    rest = b"".join([struct.pack("<I", len(text)), text, *buffers])
    return MAGIC + hashlib.blake2b(rest, digest_size=DIGEST_BYTES).digest() + rest


def unpack(
    payload: bytes, *, largest_header: int = LARGEST_HEADER
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Undo `pack`; of a party's own record a header of any length is read.

    Raises:
        MessageError: the bytes are not whole.
    """
    if not isinstance(payload, bytes) or len(payload) < len(MAGIC) + DIGEST_BYTES + 4:
        raise MessageError("the message is not a whole string of bytes")
    rest = payload[len(MAGIC) + DIGEST_BYTES :]
    expected = payload[len(MAGIC) : len(MAGIC) + DIGEST_BYTES]
    if (
        not payload.startswith(MAGIC)
        or hashlib.blake2b(rest, digest_size=DIGEST_BYTES).digest() != expected
    ):
        raise MessageError("the message was damaged: its digest does not fit")
    (size,) = struct.unpack_from("<I", rest)
    if size > min(len(rest) - 4, largest_header):
        raise MessageError("the message's header is longer than the message")
    try:
        header = json.loads(rest[4 : 4 + size], parse_int=_read_int)
        described = header.pop("arrays")
        arrays, place = {}, 4 + size
        for name, code, shape in described:
            fits = len(shape) <= LARGEST_AXES
            fits = fits and all(type(n) is int and 0 <= n <= len(rest) for n in shape)
            if not fits or name in arrays:
                raise MessageError("the message describes an impossible array")
            dtype, count = TYPES[code], math.prod(shape)
            if place + count * dtype.itemsize > len(rest):
                raise MessageError("the message is shorter than its arrays")
            arrays[name] = np.frombuffer(rest, dtype, count, place).reshape(shape)
            place += count * dtype.itemsize
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError("the message's header cannot be read") from None
    if place != len(rest):
        raise MessageError("the message is longer than its arrays")
    return header, arrays


def _read_int(text: str) -> int:
    if len(text) > LARGEST_DIGITS + 1:
        raise MessageError("the message holds a whole number that is too long")
    return int(text)


def _check_content(packet: Packet) -> None:
    content = CONTENTS.get(packet.kind)
    if content is None:
        raise MessageError(f"there is no kind of message '{packet.kind[:40]}'")
    if set(packet.values) != set(content.values) or set(packet.arrays) != set(content.arrays):
        raise MessageError(f"a message of kind '{packet.kind}' has other fields than it should")
    for name, kind in content.values.items():
        value = packet.values[name]
        if type(value) is not kind or (kind is float and not math.isfinite(float(value))):
            raise MessageError(f"'{packet.kind}': {name} is not a valid {kind.__name__}")
    for name, (code, axes) in content.arrays.items():
        array = packet.arrays[name]
        if array.dtype.kind not in KINDS[code] or array.ndim != len(axes.split()):
            raise MessageError(f"'{packet.kind}': {name} has the wrong type or shape")
        if code == "f8" and not (np.abs(array) <= LARGEST_NUMBER).all():  # also NaN
            raise MessageError(
                f"'{packet.kind}': {name} holds a number that is not finite or above "
                f"{LARGEST_NUMBER:g}"
            )
        if code == "u1" and (np.asarray(array) > 1).any():
            raise MessageError(f"'{packet.kind}': {name} holds a flag that is neither 0 nor 1")
