r"""The correction of one client's states by a recurrent network, and how it learns.

$$h_a^t = h_c^t + \text{LSTM}_\theta(y^{t-L+1}, \ldots, y^t)$$

takes the place of \(h_c + \theta y\) (`augment`; the paper's appendix on nonlinear models). θ
descends the client's one-step prediction loss, through its own transition f and observation g, and
the server's loss through the gradient that the server sends back:

$$L_m = \|y^{t+1} - g(f(h_a^t))\|^2, \qquad
  \nabla_\theta = \overline{\nabla_\theta L_m} + \overline{(\partial h_a / \partial\theta)^\top
  \nabla_{h_a} L_s}$$

both averaged over the steps for which the data are there, the second by a vector-Jacobian product:
the server never sees θ, and y never leaves. Where y is missing, h_a is h_c.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedgranger.recurrent import NetworkShape, Trained, read_sequences, update

Prediction = Callable[[Float[Array, " state_dim"]], Float[Array, " obs_dim"]]
"""g(f(h)): the next measurement that a local model expects of a state."""


class SequenceWindow(eqx.Module):
    """One client's private inputs for one round, cut into sequences.

    Attributes:
        measurements: y in the model's units, zero where missing.
        next_measurements: y⁺.
        filtered_states: h_c.
        is_observed: y is there.
        has_next: y and y⁺ are there and y⁺ follows y.
        is_start: y does not follow the step before.
    """

    measurements: Float[Array, "sequence step obs_dim"]
    next_measurements: Float[Array, "sequence step obs_dim"]
    filtered_states: Float[Array, "sequence step state_dim"]
    is_observed: Bool[Array, "sequence step"]
    has_next: Bool[Array, "sequence step"]
    is_start: Bool[Array, "sequence step"]


def augmented_states(
    shape: NetworkShape, weights: Float[Array, " weight"], window: SequenceWindow
) -> Float[Array, "sequence step state_dim"]:
    """h_a at every step."""
    correction = read_sequences(shape, weights, window.measurements, window.is_start)
    return window.filtered_states + jnp.where(window.is_observed[..., None], correction, 0.0)


def local_loss(
    predict: Prediction, states: Float[Array, "sequence step state_dim"], window: SequenceWindow
) -> Float[Array, ""]:
    """Mean squared error of the next measurements that these states predict."""
    u = window.next_measurements - jax.vmap(jax.vmap(predict))(states)
    squares = jnp.where(window.has_next, (u * u).sum(axis=2), 0.0)
    return squares.sum() / jnp.maximum(window.has_next.sum(), 1).astype(squares.dtype)


def weights_gradient(
    shape: NetworkShape,
    predict: Prediction,
    weights: Float[Array, " weight"],
    window: SequenceWindow,
    gradients: Float[Array, "sequence step state_dim"],
) -> tuple[Float[Array, " weight"], Float[Array, ""]]:
    """Derivative of both losses by θ, and the local loss; `gradients` came from the server."""
    h_a, pull_back = jax.vjp(lambda w: augmented_states(shape, w, window), weights)
    loss, of_states = jax.value_and_grad(lambda h: local_loss(predict, h, window))(h_a)
    num_observed = jnp.maximum(window.is_observed.sum(), 1).astype(h_a.dtype)
    feedback = jnp.where(window.is_observed[..., None], gradients, 0.0) / num_observed
    return pull_back(of_states + feedback)[0], loss


def step(
    shape: NetworkShape,
    predict: Prediction,
    learning_rate: float,
    trained: Trained,
    window: SequenceWindow,
    gradients: Float[Array, "sequence step state_dim"],
) -> tuple[Trained, Float[Array, ""]]:
    """One step of Adam on a round's window; a window without measurements changes nothing."""
    gradient, loss = weights_gradient(shape, predict, trained.weights, window, gradients)
    after = update(trained, gradient, learning_rate)
    has_data = window.is_observed.any()
    kept = jax.tree.map(lambda new, old: jnp.where(has_data, new, old), after, trained)
    return Trained(*kept), loss
