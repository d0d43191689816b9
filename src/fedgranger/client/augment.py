r"""The learned correction θ of one client (Section 3.1 of the paper).

The local model cannot know what other clients do to this one. θ adds what the client's own
measurements reveal of it: \(h_a = h_c + \theta y\). It descends the client's one-step prediction
loss \(L_m = \|u\|^2\), \(u = y^+ - CA(h_c + \theta y)\), and the server's loss through the
gradient that the server sends back:

$$\theta^+ = (1 - 2\eta_1\lambda_\theta)\theta + 2\eta_1 (CA)^\top u\, y^\top
             - \eta_2 (\nabla_{h_a} L_s) y^\top$$

Gradients are averaged over the steps of a window for which the data are there; a window without
any leaves θ as it is.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedgranger.messages import ClientMessage, ServerMessage


class AugmentParams(eqx.Module):
    """Constants of one client's learner: (CA)ᵀCA, η1, η2, λ_θ."""

    prediction_gram: Float[Array, "*batch state_dim state_dim"]
    local_step_size: Float[Array, "*batch"]
    feedback_step_size: Float[Array, "*batch"]
    ridge: Float[Array, "*batch"]


class AugmentState(NamedTuple):
    """θ."""

    augmentation: Float[Array, "state_dim obs_dim"]


class AugmentInfo(NamedTuple):
    """Mean squared one-step prediction error ‖u‖² of the window, and how many steps it had."""

    local_loss: Float[Array, ""]
    num_steps: Float[Array, ""]


class ClientWindow(eqx.Module):
    r"""One client's private inputs for one round; everything that does not depend on θ.

    Attributes:
        measurements: y in the model's units, zero where missing.
        filtered_states: h_c.
        local_targets: \((CA)^\top \nu\) with \(\nu = y^+ - CA h_c\), zero without y⁺.
        local_energies: \(\|\nu\|^2\), zero without y⁺.
        is_observed: y is there.
        has_next: y and y⁺ are there and y⁺ follows y.
    """

    measurements: Float[Array, "*batch window obs_dim"]
    filtered_states: Float[Array, "*batch window state_dim"]
    local_targets: Float[Array, "*batch window state_dim"]
    local_energies: Float[Array, "*batch window"]
    is_observed: Bool[Array, "*batch window"]
    has_next: Bool[Array, "*batch window"]


def send(state: AugmentState, window: ClientWindow) -> ClientMessage:
    """Compute the message up."""
    theta, y, h_c = state.augmentation, window.measurements, window.filtered_states
    return ClientMessage(h_c, h_c + y @ theta.T, window.is_observed)


def step(
    params: AugmentParams, state: AugmentState, window: ClientWindow, reply: ServerMessage
) -> tuple[AugmentState, AugmentInfo]:
    """Update θ from the window's own data and the server's reply."""
    theta, y = state.augmentation, window.measurements
    S, eta1, eta2 = params.prediction_gram, params.local_step_size, params.feedback_step_size
    observed = window.is_observed.astype(y.dtype)
    paired = window.has_next.astype(y.dtype)
    num_observed, num_paired = observed.sum(), paired.sum()
    observed = observed / jnp.maximum(num_observed, 1.0)
    paired = paired / jnp.maximum(num_paired, 1.0)

    phi = y @ theta.T
    pull = window.local_targets - phi @ S  # (CA)ᵀu per step
    e = 2 * eta1 * paired[:, None] * pull - eta2 * observed[:, None] * reply.gradients
    shrink = jnp.where(num_observed > 0, 2 * eta1 * params.ridge, 0.0)
    new_theta = (1 - shrink) * theta + e.T @ y

    energies = window.local_energies - ((window.local_targets + pull) * phi).sum(axis=1)
    return AugmentState(new_theta), AugmentInfo((paired * energies).sum(), num_paired)
