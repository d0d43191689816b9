r"""Means of (θ, Â) of one row, round by round.

They move by themselves: nothing here depends on a covariance of the parameters.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedgranger.linalg.fused import fused_einsum, times
from fedgranger.uncertainty.carry import Carry, late_gain
from fedgranger.uncertainty.carryover import next_data_cov
from fedgranger.uncertainty.data_cov import DataCov, no_data_cov
from fedgranger.uncertainty.gains import Gains, gains, mix
from fedgranger.uncertainty.inputs import RowParams, RowWindow, times_noise

__all__ = ["RowMean", "data_cov_after", "last_step", "mean_errors", "mean_step", "move", "start"]


class RowMean(NamedTuple):
    """Means before a round, the last step of the round before, and its covariance with them."""

    augmentation: Float[Array, "p d"]
    granger: Float[Array, "p q"]
    carry: Carry
    data_cov: DataCov


def start(
    augmentation: Float[Array, "p d"], granger: Float[Array, "p q"], *, full_noise: bool = False
) -> RowMean:
    """Start from a prior's mean."""
    (p, d), q = augmentation.shape, granger.shape[1]
    data_cov = no_data_cov(p, d, q, full_noise=full_noise)
    carry = Carry(jnp.zeros(()), jnp.zeros(d), data_cov.noise)
    return RowMean(augmentation, granger, carry, data_cov)


def mean_step(params: RowParams, mean: RowMean, window: RowWindow) -> RowMean:
    """Advance the means by one round."""
    before = mean.augmentation, mean.granger, mean.carry
    after = move(params, *before, window)
    return RowMean(*after, last_step(window), data_cov_after(params, *before, window))


def move(
    params: RowParams,
    theta: Float[Array, "p d"],
    granger: Float[Array, "p q"],
    carry: Carry,
    window: RowWindow,
) -> tuple[Float[Array, "p d"], Float[Array, "p q"]]:
    """Means of θ and Â after a round; they move at second order in the noise too."""
    y, g = window.measurements, window.causes
    gain = gains(params, window)
    errors = mean_errors(params, window, gain, theta, granger)
    previous = carry.measurement
    DV = times_noise(late_gain(params, carry.weight), window.noise[0])
    K = times(gain.N[0], DV)

    kept = mix(gain, theta[:, None])[:, 0] + errors.T @ y
    new_theta = kept - (previous @ y[0]) * K - jnp.outer(K @ previous, y[0])
    pull = fused_einsum("tab,tb->ta", gain.B, y @ theta.T) - gain.c[:, None] * (g @ granger.T)
    late = jnp.outer(times(gain.B[0], DV @ previous), g[0])
    return new_theta, gain.keep_granger * granger + pull.T @ g + late


def last_step(window: RowWindow) -> Carry:
    """What the next round has to know of this one's data."""
    return Carry(window.paired_weights[-1], window.measurements[-1], window.noise[-1])


def data_cov_after(
    params: RowParams,
    theta: Float[Array, "p d"],
    granger: Float[Array, "p q"],
    carry: Carry,
    window: RowWindow,
) -> DataCov:
    """Covariance of the parameters after a round with its last measurement."""
    gain = gains(params, window)
    errors = mean_errors(params, window, gain, theta, granger)
    return next_data_cov(params, window, gain, carry, theta, errors)


def mean_errors(
    params: RowParams, window: RowWindow, gain: Gains, theta: Array, granger: Array
) -> Float[Array, "window p"]:
    """Mean of e_t = 2η1 (CA)ᵀu − 2η2 Aᵀr per step, weighted, without the carried part."""
    phi, rho = window.measurements @ theta.T, window.causes @ granger.T
    target = 2 * params.local_step_size * window.paired_weights[:, None] * window.local_targets
    fed = fused_einsum("tab,tb->ta", gain.kappa, rho)
    return target + fed - fused_einsum("tab,tb->ta", gain.N, phi)
