r"""Means of (θ, Â) of one row, and their covariance with the row's last measurement, by round.

They move by themselves: nothing here depends on a covariance of the parameters. With \(\theta'\)
as in `target_noise`, and the last measurement y of noise covariance V,

$$\mathrm{Cov}(\theta'_{ij}, y_m) = e_i V_{jm} + \sum_r a_{r,im} b_{r,j} + K_{ij} c_m, \qquad
  \mathrm{Cov}(\hat A_{kl}, y_m) = a_{km} g_l$$

are tensors of p·d·d and p·q·d numbers that are never formed: only their products with a few vectors
are needed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedgranger.linalg.fused import fused_einsum, times
from fedgranger.uncertainty.inputs import NoiseCov, RowParams, RowWindow, times_noise
from fedgranger.uncertainty.round_terms import Gains, attenuate, round_gains

NUM_FACTORS = 3


class LastStep(NamedTuple):
    """The last step of the previous round.

    Attributes:
        weight: its share in the client's gradient (0: it had no next measurement as a target).
        measurement: mean of its measurement y_p.
        noise: covariance of y_p.
    """

    weight: Float[Array, ""]
    measurement: Float[Array, " d"]
    noise: NoiseCov


class DataCov(NamedTuple):
    """Cov(θ', y) and Cov(Â, y) with the last measurement: the factors of the module's text."""

    error: Float[Array, " p"]
    noise: NoiseCov
    factors: Float[Array, "r p d"]
    columns: Float[Array, "r d"]
    matrix: Float[Array, "p d"]
    vector: Float[Array, " d"]
    granger_factor: Float[Array, "p d"]
    causes: Float[Array, " q"]

    def times(self, rows: Float[Array, "w d"]) -> Float[Array, "p w d"]:
        """[i, w, j] = Σ_m Cov(θ'_ij, y_m) rows_wm."""
        noisy = times_noise(rows, self.noise)
        along = jnp.einsum("rim,wm->riw", self.factors, rows)
        out = self.error[:, None, None] * noisy[None]
        out = out + fused_einsum("riw,rj->iwj", along, self.columns)
        return out + self.matrix[:, None] * (rows @ self.vector)[None, :, None]

    def times_columns(self, rows: Float[Array, "w d"]) -> Float[Array, "p w d"]:
        """[i, w, m] = Σ_j rows_wj Cov(θ'_ij, y_m)."""
        noisy = times_noise(rows, self.noise)
        along = rows @ self.columns.T
        out = self.error[:, None, None] * noisy[None]
        out = out + fused_einsum("rim,wr->iwm", self.factors, along)
        return out + (self.matrix @ rows.T)[..., None] * self.vector[None, None]

    def trace(self, noise: NoiseCov) -> Float[Array, " p"]:
        """[i] = Σ_jm Cov(θ'_ij, y_m) V_jm."""
        total = (noise * self.noise).sum()
        along = (times_noise(self.columns, noise)[:, None] * self.factors).sum(axis=(0, 2))
        return self.error * total + along + times_noise(self.matrix, noise) @ self.vector

    def times_granger(self, rows: Float[Array, "w d"]) -> Float[Array, "p w q"]:
        """[k, w, l] = Σ_m Cov(Â_kl, y_m) rows_wm."""
        return (self.granger_factor @ rows.T)[:, :, None] * self.causes[None, None]


class RowMean(NamedTuple):
    """Means before a round, the last step before it, and the covariance with its measurement."""

    augmentation: Float[Array, "p d"]
    granger: Float[Array, "p q"]
    last_step: LastStep
    data_cov: DataCov


def initial_mean(
    augmentation: Float[Array, "p d"], granger: Float[Array, "p q"], *, full_noise: bool = False
) -> RowMean:
    """Start from a prior's mean; there was no measurement before."""
    (p, d), q = augmentation.shape, granger.shape[1]
    noise, vector, matrix = jnp.zeros((d, d) if full_noise else d), jnp.zeros(d), jnp.zeros((p, d))
    factors, columns = jnp.zeros((NUM_FACTORS, p, d)), jnp.zeros((NUM_FACTORS, d))
    data_cov = DataCov(jnp.zeros(p), noise, factors, columns, matrix, vector, matrix, jnp.zeros(q))
    return RowMean(augmentation, granger, LastStep(jnp.zeros(()), vector, noise), data_cov)


def target_gain(params: RowParams, weight: Float[Array, ""]) -> Float[Array, "p d"]:
    r"""\(D = 2\eta_1 w (CA)^\top\): how the target of a step enters θ."""
    return 2 * params.local_step_size * weight * params.predicted_observation.T


def last_step_of(window: RowWindow) -> LastStep:
    """What the next round has to know of this one's data."""
    return LastStep(window.paired_weights[-1], window.measurements[-1], window.noise[-1])


def mean_errors(
    params: RowParams,
    window: RowWindow,
    gain: Gains,
    theta: Float[Array, "p d"],
    granger: Float[Array, "p q"],
) -> Float[Array, "window p"]:
    """Mean of e_t = 2η1 (CA)ᵀu − 2η2 Aᵀr per step, weighted, with θ' in the place of θ."""
    phi, rho = window.measurements @ theta.T, window.causes @ granger.T
    target = 2 * params.local_step_size * window.paired_weights[:, None] * window.local_targets
    feedback = fused_einsum("tab,tb->ta", gain.kappa, rho)
    return target + feedback - fused_einsum("tab,tb->ta", gain.N, phi)


def next_means(
    params: RowParams,
    theta: Float[Array, "p d"],
    granger: Float[Array, "p q"],
    last_step: LastStep,
    window: RowWindow,
) -> tuple[Float[Array, "p d"], Float[Array, "p q"]]:
    """Means of θ and Â after a round; they move at second order in the noise too."""
    y, g = window.measurements, window.causes
    gain = round_gains(params, window)
    errors = mean_errors(params, window, gain, theta, granger)
    previous = last_step.measurement
    DV = times_noise(target_gain(params, last_step.weight), window.noise[0])
    K = times(gain.N[0], DV)

    kept = attenuate(gain, theta[:, None])[:, 0] + errors.T @ y
    new_theta = kept - (previous @ y[0]) * K - jnp.outer(K @ previous, y[0])
    pull = fused_einsum("tab,tb->ta", gain.B, y @ theta.T) - gain.c[:, None] * (g @ granger.T)
    from_target = jnp.outer(times(gain.B[0], DV @ previous), g[0])
    return new_theta, gain.granger_decay * granger + pull.T @ g + from_target


def next_data_cov(
    params: RowParams,
    theta: Float[Array, "p d"],
    granger: Float[Array, "p q"],
    last_step: LastStep,
    window: RowWindow,
) -> DataCov:
    """Cov(θ', y) and Cov(Â, y) after a round, y its last measurement."""
    gain = round_gains(params, window)
    errors = mean_errors(params, window, gain, theta, granger)
    y, g, V = window.measurements[-1], window.causes[-1], window.noise[-1]
    noisy = times_noise(theta, V)
    own, own_granger = -times(gain.N[-1], noisy), times(gain.B[-1], noisy)
    if len(window.measurements) > 1:
        DV = times_noise(target_gain(params, window.paired_weights[-2]), V)
        zero = jnp.zeros_like(DV)
        factors = jnp.stack([own, DV, zero])
        columns = jnp.stack([y, window.measurements[-2], y])
        return DataCov(errors[-1], V, factors, columns, zero, y, own_granger, g)
    previous = last_step.measurement
    DV = times_noise(target_gain(params, last_step.weight), V)
    K = times(gain.N[0], DV)
    seen = (previous @ y) * y + times_noise(previous, V)  # E[y yᵀ] y_p
    return DataCov(
        errors[0] - K @ previous,
        V,
        jnp.stack([own, gain.decay * DV, -K]),
        jnp.stack([y, previous, seen]),
        K,
        -times_noise(previous, V),
        own_granger + (y @ previous) * times(gain.B[0], DV),
        g,
    )
