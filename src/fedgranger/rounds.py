"""One federated round: clients send, the server answers, both sides step.

`step` is pure and complete: the in-process runtime scans over it, and a federation engine runs
the same three parts (`send`, `answer`, `learn`) at their own sites.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from fedgranger.client import augment
from fedgranger.client.augment import AugmentInfo, AugmentParams, AugmentState, ClientWindow
from fedgranger.convergence import Progress, correction_size, row_size, update
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


def measure(
    progress: Progress,
    before: RoundState,
    after: RoundState,
    second_moments: Float[np.ndarray, "client obs_dim obs_dim"],
) -> Progress:
    """Compare the parameters at the ends of two passes.

    Args:
        progress: what the last call returned.
        before: parameters when the pass began.
        after: parameters when it ended.
        second_moments: E[y yᵀ] per client, zero-padded.
    """
    theta = np.asarray(after.clients.augmentation)
    theta_change = theta - np.asarray(before.clients.augmentation)
    A_hat = np.asarray(after.server.granger_row)
    A_change = A_hat - np.asarray(before.server.granger_row)
    return update(
        progress,
        np.stack([correction_size(theta_change, second_moments), row_size(A_change)]),
        np.stack([correction_size(theta, second_moments), row_size(A_hat)]),
    )
