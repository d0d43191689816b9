r"""The noise of a measurement that has reached θ before the measurement is used.

A client learns from the pair \((y_{t-1}, y_t)\) with \(y_t\) as its target, so θ already holds
\(D\varepsilon_t y_{t-1}^\top\), \(D = 2\eta_1 (CA)^\top\), when \(y_t\) becomes the regressor:
parameters and data are correlated (Ω of the paper). Writing \(\theta = \theta' + D\varepsilon_0
y_p^\top\) with \(\theta'\) and the previous measurement \(y_p\) independent of \(\varepsilon_0\),
a round is a cubic polynomial in \(\varepsilon_0\) whose coefficients are linear in
\((\theta', \hat A, y_p)\). Its second moments close on those of \((\theta', \hat A, y_p)\), so the
recursion is exact for Gaussian noise; docs/theory/propagation.md has the expansion.

Here are the terms that exist only because of D: the rest is `spread`.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedgranger.linalg.fused import fused_einsum, inner, times
from fedgranger.uncertainty.carry import Carry, CarryMoments, late_gain
from fedgranger.uncertainty.data_cov import DataCov
from fedgranger.uncertainty.gains import Gains, mix
from fedgranger.uncertainty.inputs import RowParams, RowWindow, times_noise
from fedgranger.uncertainty.spread import StepMoments
from fedgranger.uncertainty.terms import Pairs, Products, Terms

__all__ = [
    "advance",
    "first_step",
    "held_terms",
    "next_data_cov",
]


def first_step(
    params: RowParams,
    window: RowWindow,
    gain: Gains,
    carry: Carry,
    data_cov: DataCov,
    carried: CarryMoments,
    theta: Float[Array, "p d"],
    error: Float[Array, " p"],
) -> tuple[StepMoments, Terms, Products]:
    """Return what the noise of a round's first step adds: `fluctuation` of the moments, and more.

    Args:
        params: constants of the row.
        window: inputs of the round.
        gain: its gains.
        carry: last step of the previous round.
        data_cov: covariance of the parameters with its measurement.
        carried: its small quantities.
        theta: mean of θ.
        error: mean of e, without its carried part.
    """
    y, g, V = window.measurements[0], window.causes[0], window.noise[0]
    N, B, DV, K = gain.N[0], gain.B[0], carried.DV, carried.K
    ahead, ahead_granger = _ahead(window, gain, data_cov, carried)
    moments, shift = _first_moments(window, gain, carried, theta, error, ahead[:, 1:])

    noisy_y = times_noise(y, carry.noise)
    w = carried.theta_trace + DV @ noisy_y
    on_K = ahead[:, 0] - times_noise(carried.error_data, V) + jnp.outer(times(N, w), y)
    on_K = on_K + 0.5 * (y @ noisy_y + carried.noise_size) * K
    on_K_granger = ahead_granger[:, 0] - jnp.outer(times(B, w), g)
    on_P = ahead_granger[:, 1:]

    # cubic part: (N D V Dᵀ Nᵀ) ⊗ (V E[y_p y_pᵀ] V)
    cubic = fused_einsum("ia,ab,kb->ik", N, carried.gram, N)
    seen = times_noise(carry.measurement, V)
    late_noise = V * carry.noise * V if V.ndim == 1 else V @ carry.noise @ V
    # 2γ Σ_t w_t E[e y_pᵀ] ȳ_t g_tᵀ
    reach = jnp.einsum(
        "ij,tj,tl,t->il", carried.error_data, window.measurements, window.causes, gain.c
    )
    late, with_K = _late_targets(params, window, gain, carried)
    half, with_K = times(N, times_noise(theta, V)), with_K + times(N, times_noise(shift, V))
    crosswise = (*late, (K, with_K))
    own = Terms(
        jnp.zeros_like(moments.error_state),
        jnp.zeros_like(moments.error_state),
        -fused_einsum("ia,kal->ikl", N, on_P),
        fused_einsum("iaj,ka->ikj", on_P, B),
        jnp.zeros_like(N),
    )
    products = Products(
        ((cubic, late_noise),),
        ((on_K, K), (K, on_K)),
        ((seen, cubic[:, :, None] * seen[None, None]),),
        ((half, half), *crosswise, *((b, a) for a, b in crosswise)),
        ((K, on_K_granger),),
        ((times(params.self_transition, DV), reach),),
    )
    return moments, own, products


def _ahead(
    window: RowWindow, gain: Gains, data_cov: DataCov, carried: CarryMoments
) -> tuple[Float[Array, "p r d"], Float[Array, "p r q"]]:
    """F̄ acting on Cov(x', y_p) and on D ε₀ y_pᵀ: [:, 0] goes with K, the others with P."""
    y, DV, data_DV = window.measurements[0], carried.DV, carried.data_rows[1:]
    arrived = carried.column_rows[:, 1:].transpose(1, 0, 2)  # [k, i, l] = E[y_l (θ'V Dᵀ)_ik]
    with_K = -(carried.cov_rows[:, :1] + data_DV[:, None])
    theta = jnp.concatenate([with_K, carried.cov_rows[:, 1:] + arrived], axis=1)
    granger = data_cov.times_granger(jnp.concatenate([-y[None], DV]))
    return advance(window, gain, theta, granger)


def _first_moments(
    window: RowWindow,
    gain: Gains,
    carried: CarryMoments,
    theta: Float[Array, "p d"],
    error: Float[Array, " p"],
    ahead: Float[Array, "p p d"],
) -> tuple[StepMoments, Float[Array, "p d"]]:
    """The step's moments with the noise θ already holds, and what pairs with D crosswise."""
    y, V, N = window.measurements[0], window.noise[0], gain.N[0]
    D, DV, Q, size = carried.D, carried.DV, carried.gram, carried.noise_size
    data_y, data_DV = carried.data_rows[0], carried.data_rows[1:]  # E[y_p y_pᵀ] on ȳ₀ and on D V
    u_square = y @ data_y  # u = y_pᵀ ȳ₀
    theta_u = carried.theta_rows[:, 0]
    noisy_theta = times_noise(theta, V)
    own_state = inner(noisy_theta, theta)

    # e = e' − K y_p
    correction = fused_einsum("ia,ka->ik", carried.error_gram, N)
    square = jnp.outer(error, error) - correction - correction.T
    square = square - fused_einsum("ia,ab,kb->ik", N, carried.data_gram, N)

    # quadratic part: θ' + D u takes the place of θ'; the cubic part has the same form
    shift = theta_u + data_DV + 0.5 * (u_square + size) * D
    between = carried.theta_gram + carried.theta_gram.T
    state_quadratic = own_state + between + (u_square + size) * Q + carried.data_gram

    # centred ε εᵀ y_p acts through D as ε does through θ
    z = times_noise(carried.column_rows[:, 1:] + Q[..., None] * data_y[None, None], V)
    trace = carried.theta_trace + D @ times_noise(data_y, V)
    z = z + trace[:, None, None] * DV[None]
    z = z + times_noise(carried.theta_rows[:, 1:].transpose(1, 0, 2), V)
    error_state = error[:, None, None] * noisy_theta[None] + ahead
    error_state = error_state - fused_einsum("ab,bkj->akj", N, z)
    state = own_state + size * Q + carried.data_gram + carried.noise_gram
    return StepMoments(square, error_state, state, state_quadratic), shift


def held_terms(
    window: RowWindow,
    gain: Gains,
    mixing: Float[Array, "p p d"],
    carry: Carry,
    carried: CarryMoments,
) -> tuple[Terms, Products]:
    r"""Return \(\bar F\,\mathrm{Cov}(D\varepsilon_0 y_p^\top)\,\bar F^\top\).

    For windows of one step and diagonal noise; otherwise `contract` does it.
    """
    y, g, N, B = window.measurements[0], window.causes[0], gain.N[0], gain.B[0]
    Q, data_y, F = carried.gram, carried.data_rows[0], mixing
    u_square = y @ data_y
    on_y = -fused_einsum("iaj,ak->ikj", F, fused_einsum("ab,kb->ak", Q, N)) * data_y[None, None]
    on_y = on_y + 0.5 * u_square * fused_einsum("ia,ab,kb->ik", N, Q, N)[:, :, None] * y[None, None]
    on_g = fused_einsum("iaj,ak->ikj", F, fused_einsum("ab,kb->ak", Q, B)) * data_y[None, None]
    on_g = on_g - u_square * fused_einsum("ia,ab,kb->ik", N, Q, B)[:, :, None] * y[None, None]
    FQ = fused_einsum("iaj,ab->bij", F, Q)
    square = 0.5 * u_square * fused_einsum("ia,ab,kb->ik", B, Q, B)
    p, q = len(N), g.shape[0]
    held = Terms(
        on_y,
        on_g,
        jnp.zeros((p, p, q)),
        square[:, :, None] * g[None, None],
        jnp.zeros((p, p)),
    )
    # the part of E[y_p y_pᵀ] that is noise stays on the diagonal
    diagonal = fused_einsum("bij,kbj->ikj", FQ, F) * carry.noise[None, None]
    # F = (1 - s) δ - N v_j on the left
    previous = carry.measurement
    kept, lost = gain.keep * FQ, -fused_einsum("ib,bkl->ikl", N, FQ)
    columns = (
        (previous, kept * previous[None, None]),
        (window.noise[0] * previous, lost * previous[None, None]),
    )
    return held, Products(columns=columns, diagonal=(diagonal,))


def _late_targets(
    params: RowParams, window: RowWindow, gain: Gains, carried: CarryMoments
) -> tuple[Pairs, Float[Array, "p d"]]:
    """E[D ε₀ y_pᵀ · e ε₀ᵀ] with F̄ in front, Σ_r (D V)_il E[e y_pᵀ]_kj: pairs, and K's partner."""
    Ed = carried.error_data
    kept = (gain.keep * carried.DV, Ed)
    if len(window.measurements) == 1:  # both gradients see the same E[y yᵀ], with K = N D V
        y, V = window.measurements[0], window.noise[0]
        return (kept,), -(jnp.outer(Ed @ y, y) + times_noise(Ed, V))
    paired, observed = _second_moments(params, window, Ed)
    others = (
        (-times(gain.paired_gram, carried.DV), paired),
        (-times(gain.observed_gram, carried.DV), observed),
    )
    return (kept, *others), jnp.zeros_like(Ed)


def next_data_cov(
    params: RowParams,
    window: RowWindow,
    gain: Gains,
    carry: Carry,
    theta: Float[Array, "p d"],
    errors: Float[Array, "window p"],
) -> DataCov:
    """Cov(θ', y) and Cov(Â, y) for the window's last measurement y."""
    y, g, V = window.measurements[-1], window.causes[-1], window.noise[-1]
    noisy = times_noise(theta, V)
    own, own_granger = -times(gain.N[-1], noisy), times(gain.B[-1], noisy)
    if len(window.measurements) > 1:
        DV = times_noise(late_gain(params, window.paired_weights[-2]), V)
        nothing = jnp.zeros_like(DV)
        return DataCov(
            errors[-1],
            V,
            jnp.stack([own, DV, nothing]),
            jnp.stack([y, window.measurements[-2], y]),
            nothing,
            y,
            own_granger,
            g,
        )
    previous = carry.measurement
    DV = times_noise(late_gain(params, carry.weight), V)
    K = times(gain.N[0], DV)
    seen = (previous @ y) * y + times_noise(previous, V)  # E[y yᵀ] y_p
    return DataCov(
        errors[0] - K @ previous,
        V,
        jnp.stack([own, gain.keep * DV, -K]),
        jnp.stack([y, previous, seen]),
        K,
        -times_noise(previous, V),
        own_granger + (y @ previous) * times(gain.B[0], DV),
        g,
    )


def advance(window: RowWindow, gain: Gains, theta: Array, granger: Array) -> tuple[Array, Array]:
    """Apply F̄ to parameter matrices θ (p, r, d) and Â (p, r, q), one per middle index."""
    y, g = window.measurements, window.causes
    phi = jnp.einsum("arj,tj->tar", theta, y)
    rho = jnp.einsum("arl,tl->tar", granger, g)
    alpha = fused_einsum("tab,tbr->tar", gain.kappa, rho) - fused_einsum(
        "tab,tbr->tar", gain.N, phi
    )
    beta = fused_einsum("tab,tbr->tar", gain.B, phi) - gain.c[:, None, None] * rho
    new_theta = mix(gain, theta) + fused_einsum("tar,tj->arj", alpha, y)
    new_granger = gain.keep_granger * granger + fused_einsum("tar,tl->arl", beta, g)
    return new_theta, new_granger


def _second_moments(
    params: RowParams, window: RowWindow, rows: Float[Array, "r d"]
) -> tuple[Array, Array]:
    r"""`rows` times \(2\eta \sum_t w_t E[y_t y_t^\top]\), for η1 and for η2."""
    y = window.measurements
    out = []
    for eta, weights in (
        (params.local_step_size, window.paired_weights),
        (params.feedback_step_size, window.observed_weights),
    ):
        noise = jnp.tensordot(weights, window.noise, 1)
        seen = fused_einsum("rj,tj,t,tl->rl", rows, y, weights, y)
        out.append(2 * eta * (seen + times_noise(rows, noise)))
    return out[0], out[1]
