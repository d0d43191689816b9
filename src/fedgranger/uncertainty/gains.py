r"""What a round multiplies: its gains, and the part of F that keeps θ's shape."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedgranger.linalg.fused import fused_einsum
from fedgranger.uncertainty.inputs import RowParams, RowWindow

__all__ = ["Gains", "gains", "mix"]


class Gains(NamedTuple):
    r"""What a round multiplies, per step t.

    The update adds \((-N\varphi + \kappa\rho) y^\top\) to θ and \((B\varphi - c\rho) g^\top\) to
    Â, with \(\varphi = \theta y\), \(\rho = \hat A g\).

    `keep` and `keep_granger` are what ridge leaves of θ and Â. `paired_noise` and
    `observed_noise` are \(2\eta \sum_t w_t V_t\) of the client's own and of the server's gradient;
    `mixing` is \((1 - s)\delta_{ab} - \sum_t N_{t,ab} v_{t,j}\), for diagonal noise.
    """

    N: Float[Array, "window p p"]
    kappa: Float[Array, "window p p"]
    B: Float[Array, "window p p"]
    c: Float[Array, " window"]
    keep: Float[Array, ""]
    keep_granger: Float[Array, ""]
    paired_gram: Float[Array, "p p"]
    observed_gram: Float[Array, "p p"]
    paired_noise: Array
    observed_noise: Array
    mixing: Float[Array, "p p d"] | None


def gains(params: RowParams, window: RowWindow) -> Gains:
    """Build them from the constants and the weights of the steps."""
    A, CA = params.self_transition, params.predicted_observation
    eta1, eta2, gamma = (
        params.local_step_size,
        params.feedback_step_size,
        params.server_step_size,
    )
    paired = 2 * eta1 * window.paired_weights
    observed = 2 * eta2 * window.observed_weights
    active = window.is_active
    own, feedback = CA.T @ CA, A.T @ A
    keep = 1 - 2 * eta1 * params.augmentation_ridge * active
    paired_noise = jnp.tensordot(paired, window.noise, 1)
    observed_noise = jnp.tensordot(observed, window.noise, 1)
    mixing = None
    if window.noise.ndim == 2:
        lost = (
            own[:, :, None] * paired_noise[None, None]
            + feedback[:, :, None] * observed_noise[None, None]
        )
        mixing = keep * jnp.eye(len(A))[:, :, None] - lost
    return Gains(
        paired[:, None, None] * own[None] + observed[:, None, None] * feedback[None],
        observed[:, None, None] * A.T[None],
        2 * gamma * window.observed_weights[:, None, None] * A[None],
        2 * gamma * window.observed_weights,
        keep,
        1 - 2 * gamma * params.granger_ridge * active,
        own,
        feedback,
        paired_noise,
        observed_noise,
        mixing,
    )


def mix(gain: Gains, values: Float[Array, "p r d"]) -> Float[Array, "p r d"]:
    r"""Apply \(X \mapsto (1 - s) X - \sum_t N_t X V_t\) to the first and the last axis."""
    if gain.mixing is not None:
        return fused_einsum("abj,brj->arj", gain.mixing, values)
    lost = jnp.einsum("ab,brj,jl->arl", gain.paired_gram, values, gain.paired_noise)
    lost = lost + jnp.einsum("ab,brj,jl->arl", gain.observed_gram, values, gain.observed_noise)
    return gain.keep * values - lost
