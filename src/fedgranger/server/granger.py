r"""The server's cross-client blocks (Section 3.1 of the paper), one row m at a time.

Block [m, n] is the influence **of n on m**. The server predicts client m's next state from all
filtered states and compares it with what the augmented state expects:

$$r = A_{mm}(h_a - h_c) - \sum_{n \ne m} \hat A_{mn} h_n, \qquad L_s = \|r\|^2$$
$$\hat A^+ = (1 - 2\gamma\lambda_A)\hat A + 2\gamma\, r g^\top, \qquad
  \nabla_{h_a} L_s = 2 A_{mm}^\top r$$

Nothing here imports client code: a row sees only what `messages` lists.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fedgranger.messages import ClientMessage, ServerMessage


class ServerParams(eqx.Module):
    """Constants of one row: A_mm, γ, λ_A and which columns may be non-zero (0/1)."""

    self_transition: Float[Array, "*batch state_dim state_dim"]
    step_size: Float[Array, "*batch"]
    ridge: Float[Array, "*batch"]
    coupling: Float[Array, "*batch total_dim"]


class ServerState(NamedTuple):
    """Row m of Â over the stacked states of all clients; zero in m's own columns."""

    granger_row: Float[Array, "state_dim total_dim"]


class ServerInfo(NamedTuple):
    """Mean squared server residual ‖r‖² of the window, and how many steps it had."""

    server_loss: Float[Array, ""]
    num_steps: Float[Array, ""]


def step(
    params: ServerParams,
    state: ServerState,
    message: ClientMessage,
    all_states: Float[Array, "window total_dim"],
) -> tuple[ServerState, ServerMessage, ServerInfo]:
    """Update row m and compute the reply to client m, whose message this is."""
    A, gamma, A_hat = params.self_transition, params.step_size, state.granger_row
    observed = message.is_observed.astype(A.dtype)
    num_observed = observed.sum()
    share = observed / jnp.maximum(num_observed, 1.0)

    correction = (message.augmented_states - message.filtered_states) @ A.T
    r = observed[:, None] * (correction - all_states @ A_hat.T)
    gradients = 2 * r @ A
    shrink = jnp.where(num_observed > 0, 2 * gamma * params.ridge, 0.0)
    update = (share[:, None] * r).T @ all_states * params.coupling[None, :]
    new_row = (1 - shrink) * A_hat + 2 * gamma * update

    loss = (share * (r * r).sum(axis=1)).sum()
    return ServerState(new_row), ServerMessage(gradients), ServerInfo(loss, num_observed)


def answer(
    params: ServerParams, state: ServerState, messages: ClientMessage
) -> tuple[ServerState, ServerMessage, ServerInfo]:
    """Update every row and answer every client (leading client axis everywhere)."""
    stacked = stack_states(messages.filtered_states)
    return jax.vmap(step, in_axes=(0, 0, 0, None))(params, state, messages, stacked)


def stack_states(
    states: Float[Array, "client *steps state_dim"],
) -> Float[Array, "*steps total_dim"]:
    """Concatenate the clients' states per time step."""
    num_clients, *steps, state_dim = states.shape
    return jnp.moveaxis(states, 0, -2).reshape(*steps, num_clients * state_dim)
