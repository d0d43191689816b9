r"""What the noise of a round adds to a covariance of (θ, Â), whatever that covariance is.

It is the \(\mathcal N\) of \(\Sigma^+ = \mathcal L(\Sigma) + \mathcal N\) and depends on the means
alone. In three steps, which `recursion` compiles by themselves: `round_moments`, `noise_factors`,
`noise_terms`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from fedgranger.linalg.fused import fused_einsum
from fedgranger.uncertainty.covariance_update import (
    Projections,
    StepMoments,
    attenuate_cov,
    mean_map_terms,
    project,
    second_order_cov,
    step_noise_terms,
)
from fedgranger.uncertainty.inputs import RowParams, RowWindow, noise_matrix, times_noise
from fedgranger.uncertainty.mean_recursion import LastStep, RowMean, mean_errors, target_gain
from fedgranger.uncertainty.round_terms import (
    DenseTerms,
    Gains,
    Products,
    RowCov,
    StepTerms,
    add_dense_terms,
    multiply,
    round_gains,
    sum_terms,
)
from fedgranger.uncertainty.target_noise import (
    TargetMoments,
    first_step_terms,
    target_moments,
    target_noise_cov,
)


class RoundMoments(NamedTuple):
    """What a round's factors are made of: gains, mean errors, moments of the first target."""

    gain: Gains
    errors: Float[Array, "window p"]
    target: TargetMoments


class NoiseFactors(NamedTuple):
    """What is multiplied to get the terms of a round.

    Attributes:
        first: moments that decide what the noise of the first step does.
        terms: other short factors (leading step axis).
        products: those of the first step.
        more: those of the noise that θ already held, when that is simple (one step, diagonal
            noise), or of all later steps (leading step axis).
    """

    first: StepMoments
    terms: StepTerms
    products: Products
    more: Products


class NoiseTerms(NamedTuple):
    """What the noise of a round adds.

    Attributes:
        gain: the round's gains.
        steps: what its steps add in short factors (leading step axis).
        dense: everything else.
    """

    gain: Gains
    steps: StepTerms
    dense: DenseTerms


def round_moments(params: RowParams, mean: RowMean, window: RowWindow) -> RoundMoments:
    """Compute what the factors are made of."""
    gain = round_gains(params, window)
    errors = mean_errors(params, window, gain, mean.augmentation, mean.granger)
    return RoundMoments(gain, errors, target_moments(params, window, gain, mean, errors[0]))


def noise_factors(
    params: RowParams, mean: RowMean, window: RowWindow, moments: RoundMoments
) -> NoiseFactors:
    """Compute what is multiplied to get the terms of a round."""
    gain, errors, target = moments
    first, own, products = first_step_terms(params, window, gain, mean, target, errors[0])
    if gain.attenuation is not None and len(gain.N) == 1:
        held, more = _target_noise_terms(window, gain, gain.attenuation, mean.last_step, target)
        terms = jax.tree.map(lambda part: part[None], sum_terms(own, held))
        return NoiseFactors(first, terms, products, more)

    held = _held_cov(params, mean, window)
    projected = project(gain, window, held)

    def later(t: Array) -> tuple[StepTerms, Products]:
        return _later_step(params, window, mean, moments, held, projected, t)

    terms, more = jax.vmap(later)(jnp.arange(1, len(window.measurements)))
    steps = jax.tree.map(lambda one, others: jnp.concatenate([one[None], others]), own, terms)
    terms = sum_terms(mean_map_terms(gain, window, projected), steps)
    return NoiseFactors(first, terms, products, more)


def noise_terms(
    params: RowParams, mean: RowMean, window: RowWindow, gain: Gains, factors: NoiseFactors
) -> NoiseTerms:
    """Multiply."""
    y, g = window.measurements, window.causes
    first = step_noise_terms(y[0], g[0], gain.N[0], gain.B[0], factors.first)
    steps = jax.tree.map(lambda all_, one: all_.at[0].add(one), factors.terms, first)
    (p, d), q = mean.augmentation.shape, g.shape[1]
    shape = (p, d, q)
    if gain.attenuation is not None and len(gain.N) == 1:
        return NoiseTerms(gain, steps, multiply(shape, factors.products, factors.more))

    held = _held_cov(params, mean, window)

    def later(total: Array, inputs: tuple[Array, Array, Products]) -> tuple[Array, None]:
        N, V, products = inputs
        second_order = second_order_cov(N, V, held.augmentation)
        return total + second_order + multiply(shape, products).augmentation, None

    start = add_dense_terms(attenuate_cov(gain, held), multiply(shape, factors.products))
    inputs = (gain.N[1:], window.noise[1:], factors.more)
    total = lax.scan(later, start.augmentation, inputs)[0]
    return NoiseTerms(gain, steps, DenseTerms(total, start.cross))


def _target_noise_terms(
    window: RowWindow,
    gain: Gains,
    attenuation: Float[Array, "p p d"],
    last_step: LastStep,
    target: TargetMoments,
) -> tuple[StepTerms, Products]:
    r"""Return \(\bar F\,\mathrm{Cov}(D\varepsilon_0 y_p^\top)\,\bar F^\top\).

    For windows of one step and diagonal noise; otherwise `mean_map_terms` does it.
    """
    y, g, N, B = window.measurements[0], window.causes[0], gain.N[0], gain.B[0]
    Q, data_y, F = target.gram, target.data_rows[0], attenuation
    u_square = y @ data_y
    on_y = -fused_einsum("iaj,ak->ikj", F, fused_einsum("ab,kb->ak", Q, N)) * data_y[None, None]
    on_y = on_y + 0.5 * u_square * fused_einsum("ia,ab,kb->ik", N, Q, N)[:, :, None] * y[None, None]
    on_g = fused_einsum("iaj,ak->ikj", F, fused_einsum("ab,kb->ak", Q, B)) * data_y[None, None]
    on_g = on_g - u_square * fused_einsum("ia,ab,kb->ik", N, Q, B)[:, :, None] * y[None, None]
    FQ = fused_einsum("iaj,ab->bij", F, Q)
    square = 0.5 * u_square * fused_einsum("ia,ab,kb->ik", B, Q, B)
    p, q = len(N), g.shape[0]
    granger_on_g = square[:, :, None] * g[None, None]
    terms = StepTerms(on_y, on_g, jnp.zeros((p, p, q)), granger_on_g, jnp.zeros((p, p)))
    # the part of E[y_p y_pᵀ] that is noise stays on the diagonal
    diagonal = fused_einsum("bij,kbj->ikj", FQ, F) * last_step.noise[None, None]
    # F = (1 - s) δ - N v_j on the left
    previous = last_step.measurement
    kept, lost = gain.decay * FQ, -fused_einsum("ib,bkl->ikl", N, FQ)
    columns = (
        (previous, kept * previous[None, None]),
        (window.noise[0] * previous, lost * previous[None, None]),
    )
    return terms, Products(columns=columns, diagonal=(diagonal,))


def _held_cov(params: RowParams, mean: RowMean, window: RowWindow) -> RowCov:
    """Covariance of the noise that θ holds when a round begins."""
    p, q = mean.granger.shape
    augmentation = target_noise_cov(params, mean.last_step, window.noise[0])
    cross = jnp.zeros((*mean.augmentation.shape, p, q))
    return RowCov(augmentation, cross, jnp.zeros((1, p, q, p, q)))


def _later_step(
    params: RowParams,
    window: RowWindow,
    mean: RowMean,
    moments: RoundMoments,
    held: RowCov,
    projected: Projections,
    t: Array,
) -> tuple[StepTerms, Products]:
    """What the noise of step t ≥ 1 of a window adds, but for `second_order_cov`.

    Its measurement is the target of the step before (inside the same round), which adds
    D ε_t y_{t-1}ᵀ to θ; for t = 1 that meets the noise that θ held when the round began.
    """
    gain, errors, target = moments
    y, theta, previous = window.measurements, mean.augmentation, mean.last_step.measurement
    V, before, N = window.noise[t], window.noise[t - 1], gain.N[t]
    D = target_gain(params, window.paired_weights[t - 1])
    DV, e = times_noise(D, V), errors[t]
    is_second = (t == 1).astype(y.dtype)
    noisy_theta = times_noise(theta, V)

    state = jnp.einsum("ijkl,jl->ik", held.augmentation, noise_matrix(V)) + noisy_theta @ theta.T
    error_state = times_noise(projected.theta_alpha[t].transpose(1, 0, 2), V)
    error_state = (
        error_state
        + e[:, None, None] * noisy_theta[None]
        + (DV @ theta.T)[:, :, None] * y[t - 1][None, None]
        + is_second * (DV @ previous)[:, None, None] * target.DV[None]
    )
    square = projected.alpha_alpha[t, :, t] + jnp.outer(e, e)
    own = StepMoments(square, error_state, state, state)
    terms = step_noise_terms(y[t], window.causes[t], N, gain.B[t], own)
    half, E = N @ noisy_theta, DV @ D.T
    partner = jnp.outer(e, y[t - 1]) - is_second * (previous @ y[t]) * (N @ target.DV)
    return terms, Products(
        kron=((E, before), (E, jnp.outer(y[t - 1], y[t - 1]))),
        crosswise=((half, half), (DV, partner), (partner, DV)),
    )
