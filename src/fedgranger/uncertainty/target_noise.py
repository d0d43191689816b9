r"""The noise of a measurement that has reached θ as a target before it is a regressor.

A client learns from the pair \((y_{t-1}, y_t)\) with \(y_t\) as its target, so θ already holds
\(D\varepsilon_t y_{t-1}^\top\), \(D = 2\eta_1 (CA)^\top\), when \(y_t\) becomes the regressor:
parameters and data are correlated (Ω of the paper). Writing \(\theta = \theta' + D\varepsilon_0
y_p^\top\) with \(\theta'\) and the previous measurement \(y_p\) independent of \(\varepsilon_0\),
a round is a cubic polynomial in \(\varepsilon_0\) whose coefficients are linear in
\((\theta', \hat A, y_p)\). Its second moments close on those of \((\theta', \hat A, y_p)\), so the
recursion is exact for Gaussian noise; docs/theory/propagation.md has the expansion.

All here is for the first step of a round: `TargetMoments`, then the terms made of them, which exist
only because of D.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedgranger.linalg.fused import fused_einsum, inner, times
from fedgranger.uncertainty.covariance_update import StepMoments
from fedgranger.uncertainty.inputs import NoiseCov, RowParams, RowWindow, noise_matrix, times_noise
from fedgranger.uncertainty.mean_recursion import DataCov, LastStep, RowMean, target_gain
from fedgranger.uncertainty.round_terms import Gains, Pairs, Products, StepTerms, apply_mean_map


class TargetMoments(NamedTuple):
    r"""Small quantities shared by the terms below; the rows are [ȳ₀; D V₀].

    Attributes:
        D: \(2\eta_1 w (CA)^\top\).
        DV: D V₀.
        K: N D V₀.
        data_rows: the rows times \(E[y_p y_p^\top]\).
        cov_rows: Cov(θ', y_p) times the rows, (p, 1 + p, d).
        theta_rows: \(E[\theta' y_p^\top]\) times the rows, (p, 1 + p, d).
        column_rows: the rows times \(E[\theta' y_p]\) along θ's columns, (p, 1 + p, d).
        theta_trace: \(E[\theta' V_0 y_p]\).
        error_data: [i, m] = \(E[e_i y_{p,m}]\), e with θ in it.
        noise_size: \(E[y_p^\top V_0 y_p]\).
        gram: D V₀ Dᵀ.
        data_gram: \(D V_0\, E[y_p y_p^\top]\, V_0 D^\top\).
        noise_gram: the same with the covariance of y_p alone.
        theta_gram: \(E[\theta' y_p^\top] \bar y_0\), a matrix like θ, times V₀ Dᵀ.
        error_gram: `error_data` times V₀ Dᵀ.
    """

    D: Float[Array, "p d"]
    DV: Float[Array, "p d"]
    K: Float[Array, "p d"]
    data_rows: Float[Array, "r d"]
    cov_rows: Float[Array, "p r d"]
    theta_rows: Float[Array, "p r d"]
    column_rows: Float[Array, "p r d"]
    theta_trace: Float[Array, " p"]
    error_data: Float[Array, "p d"]
    noise_size: Float[Array, ""]
    gram: Float[Array, "p p"]
    data_gram: Float[Array, "p p"]
    noise_gram: Float[Array, "p p"]
    theta_gram: Float[Array, "p p"]
    error_gram: Float[Array, "p p"]


def target_noise_cov(
    params: RowParams, last_step: LastStep, noise: NoiseCov
) -> Float[Array, "p d p d"]:
    r"""Covariance of \(D\varepsilon_0 y_p^\top\): what Cov(θ) has more than Cov(θ')."""
    D = target_gain(params, last_step.weight)
    Q = inner(times_noise(D, noise), D)
    data = jnp.outer(last_step.measurement, last_step.measurement) + noise_matrix(last_step.noise)
    return Q[:, None, :, None] * data[None, :, None, :]


def target_moments(
    params: RowParams, window: RowWindow, gain: Gains, mean: RowMean, error: Float[Array, " p"]
) -> TargetMoments:
    """Collect them; `error` is the mean of e with θ' in the place of θ."""
    y, g, V = window.measurements[0], window.causes[0], window.noise[0]
    theta, data_cov, last_step = mean.augmentation, mean.data_cov, mean.last_step
    N, kappa, previous = gain.N[0], gain.kappa[0], last_step.measurement
    D = target_gain(params, last_step.weight)
    DV = times_noise(D, V)
    rows = jnp.concatenate([y[None], DV])
    data_rows = jnp.outer(rows @ previous, previous) + times_noise(rows, last_step.noise)
    cov_rows = data_cov.times(rows)
    columns = data_cov.times_columns(rows)
    granger_data = (data_cov.causes @ g) * data_cov.granger_factor
    error_data = times(kappa, granger_data) - times(N, columns[:, 0] + data_rows[1:])
    error_data = error_data + jnp.outer(error, previous)
    theta_rows = cov_rows + theta[:, None] * (rows @ previous)[None, :, None]
    noise_size = previous @ times_noise(previous, V) + (V * last_step.noise).sum()
    lefts = (D, data_rows[1:], times_noise(DV, last_step.noise), theta_rows[:, 0], error_data)
    return TargetMoments(
        D,
        DV,
        times(N, DV),
        data_rows,
        cov_rows,
        theta_rows,
        columns + (theta @ rows.T)[..., None] * previous[None, None],
        data_cov.trace(V) + theta @ times_noise(previous, V),
        error_data,
        noise_size,
        *(jnp.concatenate(lefts) @ DV.T).reshape(len(lefts), len(N), -1),  # one product, not five
    )


def first_step_terms(
    params: RowParams,
    window: RowWindow,
    gain: Gains,
    mean: RowMean,
    target: TargetMoments,
    error: Float[Array, " p"],
) -> tuple[StepMoments, StepTerms, Products]:
    """What the noise of a round's first step adds: `step_noise_terms` of the moments, and more.

    `error` is the mean of e with θ' in the place of θ.
    """
    y, g, V = window.measurements[0], window.causes[0], window.noise[0]
    N, B, DV, K = gain.N[0], gain.B[0], target.DV, target.K
    theta, last_step = mean.augmentation, mean.last_step
    mapped, mapped_granger = _map_data_cov(window, gain, mean.data_cov, target)
    moments, shift = _first_moments(window, gain, target, theta, error, mapped[:, 1:])

    noisy_y = times_noise(y, last_step.noise)
    w = target.theta_trace + DV @ noisy_y
    on_K = mapped[:, 0] - times_noise(target.error_data, V) + jnp.outer(times(N, w), y)
    on_K = on_K + 0.5 * (y @ noisy_y + target.noise_size) * K
    on_K_granger = mapped_granger[:, 0] - jnp.outer(times(B, w), g)
    on_P = mapped_granger[:, 1:]

    # cubic part: (N D V Dᵀ Nᵀ) ⊗ (V E[y_p y_pᵀ] V)
    cubic = fused_einsum("ia,ab,kb->ik", N, target.gram, N)
    seen = times_noise(last_step.measurement, V)
    cubic_noise = V * last_step.noise * V if V.ndim == 1 else V @ last_step.noise @ V
    # 2γ Σ_t w_t E[e y_pᵀ] ȳ_t g_tᵀ
    to_granger = jnp.einsum(
        "ij,tj,tl,t->il", target.error_data, window.measurements, window.causes, gain.c
    )
    pairs, with_K = _error_pairs(params, window, gain, target)
    half, with_K = times(N, times_noise(theta, V)), with_K + times(N, times_noise(shift, V))
    pairs = (*pairs, (K, with_K))
    own = StepTerms(
        jnp.zeros_like(moments.error_state),
        jnp.zeros_like(moments.error_state),
        -fused_einsum("ia,kal->ikl", N, on_P),
        fused_einsum("iaj,ka->ikj", on_P, B),
        jnp.zeros_like(N),
    )
    products = Products(
        kron=((cubic, cubic_noise),),
        outer=((on_K, K), (K, on_K)),
        columns=((seen, cubic[:, :, None] * seen[None, None]),),
        crosswise=((half, half), *pairs, *((b, a) for a, b in pairs)),
        cross_outer=((K, on_K_granger),),
        cross_crosswise=((times(params.self_transition, DV), to_granger),),
    )
    return moments, own, products


def _map_data_cov(
    window: RowWindow, gain: Gains, data_cov: DataCov, target: TargetMoments
) -> tuple[Float[Array, "p r d"], Float[Array, "p r q"]]:
    """F̄ acting on Cov(x', y_p) and on D ε₀ y_pᵀ: [:, 0] goes with K, the others with P."""
    y, DV, data_DV = window.measurements[0], target.DV, target.data_rows[1:]
    arrived = target.column_rows[:, 1:].transpose(1, 0, 2)  # [k, i, l] = E[y_l (θ'V Dᵀ)_ik]
    with_K = -(target.cov_rows[:, :1] + data_DV[:, None])
    theta = jnp.concatenate([with_K, target.cov_rows[:, 1:] + arrived], axis=1)
    granger = data_cov.times_granger(jnp.concatenate([-y[None], DV]))
    return apply_mean_map(window, gain, theta, granger)


def _first_moments(
    window: RowWindow,
    gain: Gains,
    target: TargetMoments,
    theta: Float[Array, "p d"],
    error: Float[Array, " p"],
    mapped: Float[Array, "p p d"],
) -> tuple[StepMoments, Float[Array, "p d"]]:
    """The step's moments with the noise θ already holds, and what pairs with D crosswise."""
    y, V, N = window.measurements[0], window.noise[0], gain.N[0]
    D, DV, Q, size = target.D, target.DV, target.gram, target.noise_size
    data_y, data_DV = target.data_rows[0], target.data_rows[1:]  # E[y_p y_pᵀ] on ȳ₀ and on D V
    u_square = y @ data_y  # u = y_pᵀ ȳ₀
    theta_u = target.theta_rows[:, 0]
    noisy_theta = times_noise(theta, V)
    own_state = inner(noisy_theta, theta)

    # e = e' − K y_p
    correction = fused_einsum("ia,ka->ik", target.error_gram, N)
    square = jnp.outer(error, error) - correction - correction.T
    square = square - fused_einsum("ia,ab,kb->ik", N, target.data_gram, N)

    # quadratic part: θ' + D u takes the place of θ'; the cubic part has the same form
    shift = theta_u + data_DV + 0.5 * (u_square + size) * D
    between = target.theta_gram + target.theta_gram.T
    state_quadratic = own_state + between + (u_square + size) * Q + target.data_gram

    # centred ε εᵀ y_p acts through D as ε does through θ
    z = times_noise(target.column_rows[:, 1:] + Q[..., None] * data_y[None, None], V)
    trace = target.theta_trace + D @ times_noise(data_y, V)
    z = z + trace[:, None, None] * DV[None]
    z = z + times_noise(target.theta_rows[:, 1:].transpose(1, 0, 2), V)
    error_state = error[:, None, None] * noisy_theta[None] + mapped
    error_state = error_state - fused_einsum("ab,bkj->akj", N, z)
    state = own_state + size * Q + target.data_gram + target.noise_gram
    return StepMoments(square, error_state, state, state_quadratic), shift


def _error_pairs(
    params: RowParams, window: RowWindow, gain: Gains, target: TargetMoments
) -> tuple[Pairs, Float[Array, "p d"]]:
    """E[D ε₀ y_pᵀ · e ε₀ᵀ] with F̄ in front, Σ_r (D V)_il E[e y_pᵀ]_kj: pairs, and K's partner."""
    Ed, y, V = target.error_data, window.measurements, window.noise
    kept = (gain.decay * target.DV, Ed)
    if len(y) == 1:  # both gradients see the same E[y yᵀ], with K = N D V
        return (kept,), -(jnp.outer(Ed @ y[0], y[0]) + times_noise(Ed, V[0]))

    def second_moment(eta: Array, weights: Float[Array, " window"]) -> Float[Array, "p d"]:
        r"""`Ed` times \(2\eta \sum_t w_t E[y_t y_t^\top]\)."""
        seen = fused_einsum("rj,tj,t,tl->rl", Ed, y, weights, y)
        return 2 * eta * (seen + times_noise(Ed, jnp.tensordot(weights, V, 1)))

    local = second_moment(params.local_step_size, window.paired_weights)
    feedback = second_moment(params.feedback_step_size, window.observed_weights)
    others = (
        (-times(gain.local_gram, target.DV), local),
        (-times(gain.feedback_gram, target.DV), feedback),
    )
    return (kept, *others), jnp.zeros_like(Ed)
