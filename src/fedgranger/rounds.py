"""One federated round: clients send, the server answers, both sides step.

`step` is pure and complete: the in-process runtime scans over it, and a federation engine runs
the same three parts (`send`, `answer`, `learn`) at their own sites.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float

from fedgranger.client import augment
from fedgranger.client.augment import AugmentInfo, AugmentParams, AugmentState, ClientWindow
from fedgranger.messages import ClientMessage, ServerMessage
from fedgranger.server import granger
from fedgranger.server.granger import ServerInfo, ServerParams, ServerState

__all__ = ["RoundInfo", "RoundParams", "RoundState", "answer", "learn", "send", "step"]


class RoundParams(eqx.Module):
    """Constants of all clients and of all server rows; every leaf has a leading client axis."""

    clients: AugmentParams
    server: ServerParams


class RoundState(NamedTuple):
    """What the next round needs; every leaf has a leading client axis."""

    clients: AugmentState
    server: ServerState


class RoundInfo(NamedTuple):
    """Losses of the round, per client."""

    clients: AugmentInfo
    server: ServerInfo


def send(state: AugmentState, windows: ClientWindow) -> ClientMessage:
    """All clients compute their messages (leading client axis)."""
    return jax.vmap(augment.send)(state, windows)


def answer(
    params: ServerParams, state: ServerState, messages: ClientMessage
) -> tuple[ServerState, ServerMessage, ServerInfo]:
    """The server updates every row and answers every client."""
    stacked = stack_states(messages.filtered_states)
    return jax.vmap(granger.step, in_axes=(0, 0, 0, None))(params, state, messages, stacked)


def learn(
    params: AugmentParams, state: AugmentState, windows: ClientWindow, replies: ServerMessage
) -> tuple[AugmentState, AugmentInfo]:
    """All clients update θ."""
    return jax.vmap(augment.step)(params, state, windows, replies)


def step(
    params: RoundParams, state: RoundState, windows: ClientWindow
) -> tuple[RoundState, RoundInfo]:
    """Run one round over a window of W time steps (W = 1 is the paper's loop)."""
    messages = send(state.clients, windows)
    server_state, replies, server_info = answer(params.server, state.server, messages)
    client_state, client_info = learn(params.clients, state.clients, windows, replies)
    return RoundState(client_state, server_state), RoundInfo(client_info, server_info)


def stack_states(
    states: Float[Array, "client window state_dim"],
) -> Float[Array, "window total_dim"]:
    """Concatenate the clients' states per time step."""
    num_clients, window, state_dim = states.shape
    return states.transpose(1, 0, 2).reshape(window, num_clients * state_dim)
