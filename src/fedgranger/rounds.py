"""One federated round: clients send, the server answers, both sides step.

`step` is pure and complete: the in-process runtime scans over it, and a federation engine runs
the same three parts (`send`, `answer`, `learn`) at their own sites.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax

from fedgranger.client import augment
from fedgranger.client.augment import AugmentInfo, AugmentParams, AugmentState, ClientWindow
from fedgranger.messages import ClientMessage, ServerMessage
from fedgranger.server.granger import ServerInfo, ServerParams, ServerState, answer


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
