"""Bytes in, a message or a refusal out: nothing else, whatever the bytes."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgranger.federation import codec
from fedgranger.federation.codec import MessageError, Packet, decode, encode, pack, unpack
from fedgranger.messages import CONTENTS, PROTOCOL_VERSION

SAMPLES = {str: "x", int: 3, float: 1.5, bool: True}


def packet(kind, answers="", **changes):
    content = CONTENTS[kind]
    arrays = {
        name: np.ones((2,) * len(axes.split()), dtype=codec.TYPES[code])
        for name, (code, axes) in content.arrays.items()
    }
    values = {name: SAMPLES[kind_] for name, kind_ in content.values.items()}
    return Packet(kind, "run", "a", {**values, **changes}, arrays, answers)


@pytest.mark.parametrize("kind", CONTENTS)
def test_every_kind_survives_the_way(kind):
    sent = packet(kind, "abc")
    found = decode(encode(sent))
    assert found._replace(arrays={}) == sent._replace(arrays={})
    for name, array in sent.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)


def test_numbers_survive_to_the_last_bit():
    values = np.array([[np.pi, -0.0], [5e-324, 1e9]])
    sent = packet("states")._replace(arrays={"states": values, "is_observed": np.ones(2, "u1")})
    assert decode(encode(sent)).arrays["states"].tobytes() == values.tobytes()
    assert decode(encode(packet("message", change=0.1 + 0.2))).values["change"] == 0.1 + 0.2


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (packet("done")._replace(kind="shell"), "no kind of message 'shell'"),
        (packet("done")._replace(values={"extra": 1}), "other fields"),
        (packet("states")._replace(arrays={}), "other fields"),
        (packet("states", piece=True), "piece is not a valid int"),
        (packet("message", change=float("nan")), "change is not a valid float"),
        (
            packet("states")._replace(
                arrays={"states": np.array([[np.inf]]), "is_observed": np.ones(1, "u1")}
            ),
            "not finite",
        ),
        (
            packet("states")._replace(
                arrays={"states": np.array([[1e10]]), "is_observed": np.ones(1, "u1")}
            ),
            "above 1e",
        ),
        (
            packet("states")._replace(
                arrays={"states": np.ones((1, 1)), "is_observed": np.array([2], "u1")}
            ),
            "neither 0 nor 1",
        ),
        (
            packet("states")._replace(
                arrays={"states": np.ones(3), "is_observed": np.ones(1, "u1")}
            ),
            "wrong type or shape",
        ),
    ],
)
def test_content_that_is_not_listed_is_refused_on_both_sides(bad, sentence):
    with pytest.raises(MessageError, match=sentence):
        encode(bad)
    header = {
        "protocol": 2,
        "oldest_protocol": 2,
        **{k: getattr(bad, k) for k in ("kind", "run", "client", "answers")},
    }
    values = {k: (None if v != v else v) for k, v in bad.values.items()}
    with pytest.raises(MessageError):
        decode(pack({**header, "values": values}, bad.arrays))


@pytest.mark.parametrize(
    ("protocol", "oldest"), [(1, 1), (99, 98), (2, 3), (None, None), ("2", "2"), (True, True)]
)
def test_protocols_that_do_not_meet_are_refused_with_the_remedy(protocol, oldest):
    header, arrays = unpack(encode(packet("done")))
    header |= {"protocol": protocol, "oldest_protocol": oldest}
    with pytest.raises(MessageError, match="install the newer version of fedgranger at both"):
        decode(pack(header, arrays))


def test_a_newer_side_that_still_speaks_our_protocol_is_understood():
    header, arrays = unpack(encode(packet("done")))
    assert decode(pack({**header, "protocol": PROTOCOL_VERSION + 1}, arrays)).kind == "done"


def seal(rest):
    import hashlib

    return codec.MAGIC + hashlib.blake2b(rest, digest_size=16).digest() + rest


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"null",
        b"[]",
        b'{"arrays": 3}',
        b'{"arrays": [["a", "f8", [-1]]]}',
        b'{"arrays": [["a", "f8", [1e3]]]}',
        b'{"arrays": [["a", "O", [1]]]}',
        b'{"arrays": [["a", "f8", [99999999999999]]]}',
        b'{"arrays": [["a", "f8", [0]], ["a", "f8", [0]]]}',
        b'{"arrays": [["a", "f8"]]}',
        b'{"arrays": [["a", "f8", [0, 1000000000000000000]]]}',
        b'{"arrays": [["a", "f8", [1, 1, 1, 1, 1]]]}',
        b'{"arrays": [["a", "f8", [true]]]}',
        b'{"arrays": [["a", "f8", [' + b", ".join([b"9" * 4000] * 200) + b"]]]}",
        b'{"arrays": [], "kind": ' + b"9" * 30 + b"}",
        b"[" * 50_000,
        b"\xff\xfe",
        json.dumps({"arrays": [], "protocol": 2, "kind": 3}).encode(),
    ],
)
def test_sealed_nonsense_is_refused(header):
    """A party could compute the digest of anything."""
    with pytest.raises(MessageError):
        decode(seal(struct.pack("<I", len(header)) + header))


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ("[1, 1, 1, 1, 1]", "impossible array"),
        ("[0, 1000000000000]", "impossible array"),
        ("[true]", "impossible array"),
        ("[-1, -1]", "impossible array"),
        ("[" + "9" * 20 + "]", "too long"),
    ],
)
def test_impossible_shapes_are_refused_by_themselves(shape, sentence):
    """Eight bytes follow, so that nothing else is wrong."""
    header = f'{{"arrays": [["a", "f8", {shape}]]}}'.encode()
    count = 0 if "0, " in shape else 8
    with pytest.raises(MessageError, match=sentence):
        unpack(seal(struct.pack("<I", len(header)) + header + bytes(count)))


# Of 2000 examples 1500 are slow: they are drawn at random, and take seven seconds
FEW = settings(max_examples=500, deadline=None)
MANY = settings(max_examples=1500, deadline=None)


@FEW
@given(st.data())
def test_mutated_messages_are_refused(data):
    check_mutated(data)


@pytest.mark.slow  # 1500 examples
@MANY
@given(st.data())
def test_many_mutated_messages_are_refused(data):
    check_mutated(data)


def check_mutated(data):
    kind = data.draw(st.sampled_from(sorted(CONTENTS)))
    payload = bytearray(encode(packet(kind, "ab")))
    change = data.draw(st.sampled_from(["flip", "cut", "insert", "swap"]))
    place = data.draw(st.integers(0, len(payload) - 1))
    if change == "flip":
        payload[place] ^= data.draw(st.integers(1, 255))
    elif change == "cut":
        del payload[place:]
    elif change == "insert":
        payload[place:place] = data.draw(st.binary(min_size=1, max_size=9))
    else:
        other = encode(packet(data.draw(st.sampled_from(sorted(CONTENTS))), "cd"))
        payload = payload[:place] + other[place:]
        if bytes(payload) == other or bytes(payload) == encode(packet(kind, "ab")):
            return
    with pytest.raises(MessageError):
        decode(bytes(payload))


@FEW
@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_refused(content, is_sealed):
    check_bytes(content, is_sealed)


@pytest.mark.slow  # 1500 examples
@MANY
@given(st.binary(max_size=400), st.booleans())
def test_many_bytes_are_refused(content, is_sealed):
    check_bytes(content, is_sealed)


def check_bytes(content, is_sealed):
    with pytest.raises(MessageError):
        decode(seal(content) if is_sealed else content)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@FEW
@given(st.sampled_from(sorted(CONTENTS)), st.data())
def test_sealed_headers_with_other_values_give_a_message_or_a_refusal(kind, data):
    check_header(kind, data)


@pytest.mark.slow  # 1500 examples
@MANY
@given(st.sampled_from(sorted(CONTENTS)), st.data())
def test_many_sealed_headers_give_a_message_or_a_refusal(kind, data):
    check_header(kind, data)


def check_header(kind, data):
    """Fields of the right name and any value: what passes holds the listed types."""
    header, arrays = unpack(encode(packet(kind)))
    where = data.draw(st.sampled_from([*header, *(("values", name) for name in header["values"])]))
    if isinstance(where, tuple):
        header["values"][where[1]] = data.draw(json_values)
    else:
        header[where] = data.draw(json_values)
    try:
        payload = pack(header, arrays)
    except ValueError:  # NaN cannot be written
        return
    try:
        found = decode(payload)
    except MessageError:
        return
    for name, type_ in CONTENTS[found.kind].values.items():
        assert type(found.values[name]) is type_
