"""Sizes of what crosses the wire."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from fedgranger.federation.ledger import hello_bytes, message_bytes, state_bytes
from fedgranger.messages import (
    ClientHello,
    ClientMessage,
    ServerMessage,
    StateHello,
    StateMessage,
)


def payload(message):
    return sum(leaf.nbytes for leaf in jax.tree.leaves(message))


@pytest.mark.parametrize("p", [1, 2, 5])
def test_message_bytes_vs_arrays_of_one_step(p):
    up = ClientMessage(jnp.zeros((1, p)), jnp.zeros((1, p)), jnp.zeros(1, dtype=bool))
    down = ServerMessage(jnp.zeros((1, p)))
    assert message_bytes(p) == (payload(up), payload(down))


@pytest.mark.parametrize("p", [1, 2, 5])
def test_hello_bytes_vs_arrays(p):
    hello = ClientHello(jnp.zeros((p, p)), jnp.zeros(()))
    for count in (0, 2):
        periods = jnp.zeros(count, dtype=jnp.int64)
        told = StateHello(
            jnp.zeros((p, p)),
            jnp.asarray(1),
            periods,
            jnp.asarray(True),
            jnp.asarray(1.0),
            jnp.zeros((p, p)),
            jnp.asarray(0.0),
        )
        assert hello_bytes(p, count) == (payload(hello), payload(told))


@pytest.mark.parametrize("p", [1, 2, 5])
def test_state_bytes_vs_arrays_of_one_step(p):
    message = StateMessage(jnp.zeros((1, p)), jnp.zeros(1, dtype=bool))
    assert state_bytes(p) == payload(message)
    many = StateMessage(jnp.zeros((30, p)), jnp.zeros(30, dtype=bool))
    assert payload(many) == 30 * state_bytes(p)


def test_window_costs_as_many_bytes_per_step():
    up = ClientMessage(jnp.zeros((30, 2)), jnp.zeros((30, 2)), jnp.zeros(30, dtype=bool))
    assert payload(up) == 30 * message_bytes(2)[0]


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
