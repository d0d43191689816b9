r"""One row of the recursion: its constants, the data of a round, and the round's gains.

A row is one client m with its server row: \(x = (\theta, \hat A)\), θ of shape p × d and
\(\hat A = [\hat A_{mn}]\) of shape p × q. Randomness is the prior of x and the measurement noise:
\(y_t = \bar y_t + \varepsilon_t\), \(\varepsilon_t\) white and Gaussian with covariance \(V_t\);
the filtered states are given (assumption A1). Arrays may have a leading client axis.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedgranger.linalg.fused import fused_einsum

NoiseCov = Float[Array, " d"] | Float[Array, "d d"]
"""Covariance V of one measurement's noise: its diagonal, or all of it."""


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

    @property
    def step_sizes(self) -> tuple[float, float, float]:
        """η1, η2 and γ of one row as plain numbers."""
        sizes = (self.local_step_size, self.feedback_step_size, self.server_step_size)
        eta1, eta2, gamma = map(float, sizes)
        return eta1, eta2, gamma


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
    def is_active(self) -> Float[Array, "*batch"]:
        """1.0 when the window has any sample, so that ridge acts."""
        return (self.observed_weights.sum(axis=-1) > 0).astype(self.measurements.dtype)


class Row(NamedTuple):
    """One row with all its rounds, without padding.

    Attributes:
        params: its constants.
        windows: its rounds (leading axis).
        causes: for every column of Â, the index of its client among all.
    """

    params: RowParams
    windows: RowWindow
    causes: Int[np.ndarray, " total_dim"]


def row_window(
    measurements: Float[Array, "*batch window obs_dim"],
    causes: Float[Array, "*batch window total_dim"],
    local_targets: Float[Array, "*batch window state_dim"],
    noise: Float[Array, "*batch window obs_dim"] | Float[Array, "*batch window obs_dim obs_dim"],
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


def times_noise(values: Float[Array, "*batch d"], noise: NoiseCov) -> Float[Array, "*batch d"]:
    """Multiply the last axis by V."""
    if noise.ndim == 1:
        return values * noise.reshape((1,) * (values.ndim - 1) + noise.shape)
    return values @ noise


def noise_matrix(noise: NoiseCov) -> Float[Array, "d d"]:
    """V as a matrix."""
    return jnp.diag(noise) if noise.ndim == 1 else noise


class Gains(NamedTuple):
    r"""What a round multiplies, per step t.

    The update adds \((-N\varphi + \kappa\rho) y^\top\) to θ and \((B\varphi - c\rho) g^\top\) to
    Â, with \(\varphi = \theta y\), \(\rho = \hat A g\).

    `decay` and `granger_decay` are the factors by which ridge shrinks θ and Â (1: no ridge).
    `local_gram` and `feedback_gram` are \((CA)^\top CA\) and \(A^\top A\); `local_noise` and
    `feedback_noise` are \(2\eta \sum_t w_t V_t\) of the client's own and of the server's gradient.
    `attenuation` is \((1 - s)\delta_{ab} - \sum_t N_{t,ab} v_{t,j}\), for diagonal noise.
    """

    N: Float[Array, "window p p"]
    kappa: Float[Array, "window p p"]
    B: Float[Array, "window p p"]
    c: Float[Array, " window"]
    decay: Float[Array, ""]
    granger_decay: Float[Array, ""]
    local_gram: Float[Array, "p p"]
    feedback_gram: Float[Array, "p p"]
    local_noise: NoiseCov
    feedback_noise: NoiseCov
    attenuation: Float[Array, "p p d"] | None


def round_gains(params: RowParams, window: RowWindow) -> Gains:
    """Build them from the constants and the weights of the steps."""
    A, CA = params.self_transition, params.predicted_observation
    eta1, gamma = params.local_step_size, params.server_step_size
    paired = 2 * eta1 * window.paired_weights
    observed = 2 * params.feedback_step_size * window.observed_weights
    own, feedback = CA.T @ CA, A.T @ A
    decay = 1 - 2 * eta1 * params.augmentation_ridge * window.is_active
    local_noise = jnp.tensordot(paired, window.noise, 1)
    feedback_noise = jnp.tensordot(observed, window.noise, 1)
    attenuation = None
    if window.noise.ndim == 2:
        lost = (
            own[:, :, None] * local_noise[None, None]
            + feedback[:, :, None] * feedback_noise[None, None]
        )
        attenuation = decay * jnp.eye(len(A))[:, :, None] - lost
    return Gains(
        paired[:, None, None] * own[None] + observed[:, None, None] * feedback[None],
        observed[:, None, None] * A.T[None],
        2 * gamma * window.observed_weights[:, None, None] * A[None],
        2 * gamma * window.observed_weights,
        decay,
        1 - 2 * gamma * params.granger_ridge * window.is_active,
        own,
        feedback,
        local_noise,
        feedback_noise,
        attenuation,
    )


def attenuate(gain: Gains, values: Float[Array, "p r d"]) -> Float[Array, "p r d"]:
    r"""Apply \(X \mapsto (1 - s) X - \sum_t N_t X V_t\) to the first and the last axis.

    What ridge and the noise of the regressors leave of θ (errors in variables).
    """
    if gain.attenuation is not None:
        return fused_einsum("abj,brj->arj", gain.attenuation, values)
    lost = jnp.einsum("ab,brj,jl->arl", gain.local_gram, values, gain.local_noise)
    lost = lost + jnp.einsum("ab,brj,jl->arl", gain.feedback_gram, values, gain.feedback_noise)
    return gain.decay * values - lost


def apply_mean_map(
    window: RowWindow, gain: Gains, theta: Float[Array, "p r d"], granger: Float[Array, "p r q"]
) -> tuple[Float[Array, "p r d"], Float[Array, "p r q"]]:
    r"""Apply \(\bar F = E[F]\) to parameter matrices θ and Â, one per middle index."""
    y, g = window.measurements, window.causes
    phi = jnp.einsum("arj,tj->tar", theta, y)
    rho = jnp.einsum("arl,tl->tar", granger, g)
    alpha = fused_einsum("tab,tbr->tar", gain.kappa, rho) - fused_einsum(
        "tab,tbr->tar", gain.N, phi
    )
    beta = fused_einsum("tab,tbr->tar", gain.B, phi) - gain.c[:, None, None] * rho
    new_theta = attenuate(gain, theta) + fused_einsum("tar,tj->arj", alpha, y)
    new_granger = gain.granger_decay * granger + fused_einsum("tar,tl->arl", beta, g)
    return new_theta, new_granger
