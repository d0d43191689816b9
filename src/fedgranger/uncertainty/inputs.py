r"""What the covariance recursion of one row is driven by.

A row is one client m with its server row: \(x = (\theta, \hat A)\), θ of shape p × d and
\(\hat A = [\hat A_{mn}]\) of shape p × q. Randomness is the prior of x and the measurement noise:
\(y_t = \bar y_t + \varepsilon_t\), \(\varepsilon_t\) white and Gaussian with covariance \(V_t\);
the filtered states are given (assumption A1). Arrays may carry a leading client axis.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

__all__ = ["RowParams", "RowWindow", "row_window", "times_noise"]


class RowParams(eqx.Module):
    """Constants of a row: A, CA, η1, η2, γ, λ_θ, λ_A, and which columns may be non-zero (0/1)."""

    self_transition: Float[Array, "*batch state_dim state_dim"]
    predicted_observation: Float[Array, "*batch obs_dim state_dim"]
    local_step_size: Float[Array, "*batch"]
    feedback_step_size: Float[Array, "*batch"]
    server_step_size: Float[Array, "*batch"]
    augmentation_ridge: Float[Array, "*batch"]
    granger_ridge: Float[Array, "*batch"]
    coupling: Float[Array, "*batch total_dim"]


class RowWindow(eqx.Module):
    r"""Means, noise and weights of the time steps of one round.

    Attributes:
        measurements: \(\bar y_t\), zero where missing.
        causes: \(g_t\), the states the row listens to, zero elsewhere.
        local_targets: \((CA)^\top \bar\nu_t\) with \(\nu_t = y_{t+1} - CA h_{c,t}\).
        noise: \(V_t\), diagonal (window, d) or full (window, d, d); zero where missing.
        paired_weights: share of step t in the client's gradient (0 without y⁺).
        observed_weights: share of step t in the server's gradient (0 without y).
    """

    measurements: Float[Array, "*batch window obs_dim"]
    causes: Float[Array, "*batch window total_dim"]
    local_targets: Float[Array, "*batch window state_dim"]
    noise: Float[Array, "*batch window obs_dim"] | Float[Array, "*batch window obs_dim obs_dim"]
    paired_weights: Float[Array, "*batch window"]
    observed_weights: Float[Array, "*batch window"]

    @property
    def is_active(self) -> Array:
        """1.0 when the window has any sample, so that ridge acts."""
        return (self.observed_weights.sum(axis=-1) > 0).astype(self.measurements.dtype)


def row_window(
    measurements: Float[Array, "*batch window obs_dim"],
    causes: Float[Array, "*batch window total_dim"],
    local_targets: Float[Array, "*batch window state_dim"],
    noise: Array,
    has_next: Bool[Array, "*batch window"],
    is_observed: Bool[Array, "*batch window"],
    coupling: Float[Array, "*batch total_dim"],
) -> RowWindow:
    """Turn flags into weights as the learner does, and mask what is not there."""
    observed = is_observed.astype(measurements.dtype)
    paired = has_next.astype(measurements.dtype)
    full = noise.ndim == measurements.ndim + 1
    masked = noise * (observed[..., None, None] if full else observed[..., None])
    return RowWindow(
        measurements,
        causes * coupling[..., None, :],
        local_targets,
        masked,
        paired / jnp.maximum(paired.sum(axis=-1, keepdims=True), 1.0),
        observed / jnp.maximum(observed.sum(axis=-1, keepdims=True), 1.0),
    )


def times_noise(values: Array, noise: Array) -> Array:
    """Multiply the last axis by V: elementwise when V is diagonal, a product otherwise."""
    if noise.ndim == 1:
        return values * noise.reshape((1,) * (values.ndim - 1) + noise.shape)
    return values @ noise
