"""What crosses the wire: fields, sizes and the table of kinds are those that are declared."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import pytest

from fedgranger import messages
from fedgranger.federation.ledger import payload_bytes
from fedgranger.messages import (
    CONTENTS,
    ClientHello,
    ClientMessage,
    MonitorMessage,
    ServerMessage,
    StateHello,
    StateMessage,
)

TYPES = {
    "model": ClientHello,
    "message": ClientMessage,
    "step": ServerMessage,
    "hello": StateHello,
    "states": StateMessage,
    "monitor": MonitorMessage,
}


def payload(message):
    return sum(leaf.nbytes for leaf in jax.tree.leaves(message))


@pytest.mark.parametrize("p", [1, 2, 5])
def test_payload_bytes_vs_arrays(p):
    states, flags, square = jnp.zeros((30, p)), jnp.zeros(30, dtype=bool), jnp.zeros((p, p))
    for kind, sent in {
        "message": ClientMessage(states, states, flags),
        "step": ServerMessage(states),
        "states": StateMessage(states, flags),
        "monitor": MonitorMessage(states, jnp.zeros(30), flags),
    }.items():
        assert payload_bytes(kind, time=30, client_state=p) == payload(sent)
        assert payload_bytes(kind, time=1, client_state=p) * 30 == payload(sent)
    hello = ClientHello(square, jnp.zeros(()))
    assert payload_bytes("model", client_state=p) == payload(hello)
    for count in (0, 2):
        number, flag, periods = jnp.asarray(1.0), jnp.asarray(True), jnp.zeros(count, jnp.int64)
        known = StateHello(square, jnp.asarray(1), periods, flag, number, square, number)
        values = CONTENTS["hello"].values
        assert payload_bytes("hello", values, client_state=p, period=count) == payload(known)


def test_nothing_else_is_sent():
    """The fields are the whole message: a new one must be a decision, here and in the docs."""
    sent = {
        cls: [field.name for field in dataclasses.fields(cls)]
        for cls in (ClientHello, ClientMessage, ServerMessage, StateHello, StateMessage)
    }
    assert sent == {
        ClientHello: ["self_transition", "state_gain"],
        ClientMessage: ["filtered_states", "augmented_states", "is_observed"],
        ServerMessage: ["gradients"],
        StateHello: [
            *("error_cov", "own_lags", "periods", "is_declared", "noise_share"),
            *("added_cov", "clipped_share"),
        ],
        StateMessage: ["states", "is_observed"],
    }


@pytest.mark.parametrize("kind", TYPES)
def test_the_declared_fields_are_those_of_the_types(kind):
    """But for which round or piece it is, and how a pass went."""
    fields = {field.name for field in dataclasses.fields(TYPES[kind])}
    content = CONTENTS[kind]
    place = {"epoch", "round", "piece", "has_report", "change", "size"}
    asked = {"learn_piece", "learn_pieces", "want_piece", "want_filtered"}
    assert fields == {*content.arrays, *content.values} - place - asked


def test_the_table_has_every_kind_once():
    listed = re.findall(r"^\| `(\w+)` \| (?:up|down) \|", messages.__doc__, re.MULTILINE)
    assert sorted(listed) == sorted(CONTENTS)
