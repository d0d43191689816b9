r"""The server's rows as recurrent networks, and their Jacobians: the time-varying Granger blocks.

Row m predicts client m's next state from the filtered states of all clients, its own part through
A_mm as in the linear method (`granger`):

$$\hat h_{m,s}^{t+1} = A_{mm} h_{m,c}^t + H_m(h_c^{t-L+1}, \ldots, h_c^t), \qquad
  L_s = \|A_{mm} h_{m,a}^t - \hat h_{m,s}^{t+1}\|^2
      + \omega \|h_{m,c}^{t+1} - \hat h_{m,s}^{t+1}\|^2$$

H_m is an LSTM with a linear layer. The first term is the paper's; its derivative by h_a goes back
to the client, \(2 A_{mm}^\top r\) with \(r = A_{mm}(h_a - h_c) - H_m\), as in the linear method.

Note:
    The second term is ours. The paper's loss alone lets H_m follow only what client m's own
    correction contains, which client m's own sensors predict already: its blocks rank edges hardly
    better than chance, as those of the linear method (docs/neural-training.md has the numbers;
    \(\omega = 0\) is the paper's loss). The next state is in the messages anyway.

    H_m sees client m's own states too: without them a neighbour that moves with m would stand for
    what m's own past does.

The Granger block is \(J_{mn}^t = \partial H_m / \partial h_n^t\), at the memory that the network
has at t; on the diagonal A_mm is added.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from fedgranger.recurrent import (
    Memory,
    NetworkShape,
    Trained,
    empty_memory,
    network_of,
    read_sequences,
    read_step,
    update,
)
from fedgranger.server.granger import stack_states


class NeuralParams(eqx.Module):
    """Constants of one row: A_mm, ω and which columns its network may see (0/1)."""

    self_transition: Float[Array, "*batch state_dim state_dim"]
    next_state_weight: Float[Array, "*batch"]
    coupling: Float[Array, "*batch total_dim"]


class SequenceMessages(eqx.Module):
    """All clients' messages of one round, cut into sequences.

    Attributes:
        filtered_states: h_c; with leading client axis, padded to the largest state.
        augmented_states: h_a.
        next_states: h_c one step on.
        is_observed: the measurement was there.
        has_next: the next state is there, has a measurement and follows.
    """

    filtered_states: Float[Array, "*batch sequence step state_dim"]
    augmented_states: Float[Array, "*batch sequence step state_dim"]
    next_states: Float[Array, "*batch sequence step state_dim"]
    is_observed: Bool[Array, "*batch sequence step"]
    has_next: Bool[Array, "*batch sequence step"]


def row_loss(
    shape: NetworkShape,
    params: NeuralParams,
    weights: Float[Array, " weight"],
    augmented_states: Float[Array, "sequence step state_dim"],
    message: SequenceMessages,
    all_states: Float[Array, "sequence step total_dim"],
    is_start: Bool[Array, "sequence step"],
) -> Float[Array, ""]:
    """Sum of L_s of one row over the steps of a round; h_a is an argument of its own."""
    A = params.self_transition
    seen = all_states * params.coupling[None, None, :]
    influence = read_sequences(shape, weights, seen, is_start)
    own = message.filtered_states @ A.T
    r = augmented_states @ A.T - own - influence
    error = message.next_states - own - influence
    paper = jnp.where(message.is_observed, (r * r).sum(axis=2), 0.0)
    ahead = jnp.where(message.has_next, (error * error).sum(axis=2), 0.0)
    return paper.sum() + params.next_state_weight * ahead.sum()


def step(
    shape: NetworkShape,
    learning_rate: float,
    params: NeuralParams,
    trained: Trained,
    message: SequenceMessages,
    all_states: Float[Array, "sequence step total_dim"],
    is_start: Bool[Array, "sequence step"],
) -> tuple[Trained, Float[Array, "sequence step state_dim"], Float[Array, ""]]:
    """Update row m; its reply to client m, per time step, and its mean loss before the update.

    A round without measurements changes nothing.
    """

    def mean_loss(weights: Array, augmented: Array) -> Array:
        loss = row_loss(shape, params, weights, augmented, message, all_states, is_start)
        return loss / num_steps

    num_steps = jnp.maximum(message.is_observed.sum(), 1).astype(all_states.dtype)
    loss, (by_weights, by_states) = jax.value_and_grad(mean_loss, argnums=(0, 1))(
        trained.weights, message.augmented_states
    )
    after = update(trained, by_weights, learning_rate)
    has_data = (message.is_observed | message.has_next).any()
    kept = jax.tree.map(lambda new, old: jnp.where(has_data, new, old), after, trained)
    return Trained(*kept), num_steps * by_states, loss


def answer(
    shape: NetworkShape,
    learning_rate: float,
    params: NeuralParams,
    trained: Trained,
    messages: SequenceMessages,
    is_start: Bool[Array, "sequence step"],
) -> tuple[Trained, Float[Array, "client sequence step state_dim"], Float[Array, " client"]]:
    """Update every row and answer every client (leading client axis everywhere)."""
    states = stack_states(messages.filtered_states)

    def one(params: NeuralParams, trained: Trained, message: SequenceMessages) -> tuple:
        return step(shape, learning_rate, params, trained, message, states, is_start)

    return jax.vmap(one)(params, trained, messages)


def jacobians(
    shape: NetworkShape,
    params: NeuralParams,
    weights: Float[Array, "client weight"],
    all_states: Float[Array, "sequence step total_dim"],
    is_start: Bool[Array, "sequence step"],
) -> Float[Array, "client sequence step state_dim total_dim"]:
    """∂H_m/∂h^t of every row at every time step, without A_mm."""

    def of_row(coupling: Array, weights: Array) -> Array:
        network = network_of(shape, weights)

        def advance(memory: Memory, now: tuple[Array, Array]) -> tuple[Memory, Array]:
            states, is_start = now

            def output(states: Array) -> tuple[Array, Memory]:
                after, out = read_step(network, memory, states * coupling, is_start)
                return out, after

            block, after = jax.jacrev(output, has_aux=True)(states)
            return after, block

        def of_sequence(states: Array, is_start: Array) -> Array:
            return lax.scan(advance, empty_memory(shape), (states, is_start))[1]

        return jax.vmap(of_sequence)(all_states, is_start)

    return jax.vmap(of_row)(params.coupling, weights)
