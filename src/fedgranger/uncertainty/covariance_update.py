r"""What one round does to a covariance of (θ, Â): the part that is linear in it, \(\mathcal L\).

With the regressors \(y = \bar y + \varepsilon\) random, a round is \(x' = F(\varepsilon) x + b\)
and a covariance Σ of x becomes

$$\mathcal L(\Sigma) = \bar F \Sigma \bar F^\top + E[\delta F\, \Sigma\, \delta F^\top], \qquad
  \bar F = E[F],\quad \delta F = F - \bar F$$

\(\bar F\) uses \(E[yy^\top] = \bar y\bar y^\top + V\), not \(\bar y\bar y^\top\) alone
(docs/theory/propagation.md). F is never formed: it is a multiple of the identity, a Kronecker
product with V on θ, and a rank-2p term per time step, so everything below costs
\(O(p^2 (d + q)^2)\).

The second term is exact for Gaussian noise: δF splits into a part linear in ε and a part quadratic
in ε (centred), which are uncorrelated, so their contributions add.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from fedgranger.linalg.fused import fused_einsum, summed
from fedgranger.uncertainty.inputs import NoiseCov, RowWindow, times_noise
from fedgranger.uncertainty.round_terms import (
    DenseTerms,
    Gains,
    RowCov,
    StepTerms,
    add_dense_terms,
    add_step_terms,
    attenuate,
    sum_terms,
)


class Projections(NamedTuple):
    r"""Covariances with the two directions a step moves in.

    \(\alpha_t = -N\varphi + \kappa\rho\) (θ's) and \(\beta_t = B\varphi - c\rho\) (Â's): of θ and Â
    with them ([t, i, a, j]: of entry ij with component a), and of them with each other.
    """

    theta_alpha: Float[Array, "window p p d"]
    theta_beta: Float[Array, "window p p d"]
    granger_alpha: Float[Array, "window p p q"]
    granger_beta: Float[Array, "window p p q"]
    alpha_alpha: Float[Array, "window p window p"]
    alpha_beta: Float[Array, "window p window p"]
    beta_beta: Float[Array, "window p window p"]


def project(gain: Gains, window: RowWindow, cov: RowCov) -> Projections:
    """One pass over the covariance: Σ L and Lᵀ Σ L of the rank-structured update."""
    y, g = window.measurements, window.causes
    num_steps, q = g.shape
    groups, p, size = cov.granger.shape[:3]
    by_group = g.reshape(num_steps, groups, size)

    # symmetric blocks are read so that the contracted axis comes first
    theta_phi = summed("alij,tl->tiaj", cov.augmentation, y)
    theta_rho = summed("ijal,tl->tiaj", cov.cross, g)
    granger_phi = summed("ajkl,tj->tkal", cov.cross, y)
    granger_rho = summed("namkl,tnm->tkanl", cov.granger, by_group).reshape(num_steps, p, p, q)
    phi_phi = summed("tj,uabj->taub", y, theta_phi)
    phi_rho = summed("tj,uabj->taub", y, theta_rho)
    rho_phi = phi_rho.transpose(2, 3, 0, 1)
    rho_rho = summed("tl,uabl->taub", g, granger_rho)

    def alpha(spec: str, phi: Array, rho: Array) -> Array:
        return fused_einsum(spec, rho, gain.kappa) - fused_einsum(spec, phi, gain.N)

    def beta(spec: str, phi: Array, rho: Array, c: Array) -> Array:
        return fused_einsum(spec, phi, gain.B) - c * rho

    first, last, middle = "tiaj,tba->tibj", "taub,ukb->tauk", "tauk,tia->tiuk"
    c, c_last = gain.c[:, None, None, None], gain.c[None, None, :, None]
    phi_beta = beta(last, phi_phi, phi_rho, c_last)
    rho_beta = beta(last, rho_phi, rho_rho, c_last)
    return Projections(
        alpha(first, theta_phi, theta_rho),
        beta(first, theta_phi, theta_rho, c),
        alpha(first, granger_phi, granger_rho),
        beta(first, granger_phi, granger_rho, c),
        alpha(middle, alpha(last, phi_phi, phi_rho), alpha(last, rho_phi, rho_rho)),
        alpha(middle, phi_beta, rho_beta),
        beta(middle, phi_beta, rho_beta, c),
    )


def attenuate_cov(gain: Gains, cov: RowCov) -> RowCov:
    r"""The part of \(\bar F \Sigma \bar F^\top\) that keeps the shape of Σ."""
    theta = cov.augmentation
    if gain.attenuation is not None:
        theta = _attenuate_left(gain, fused_einsum("kbl,ajbl->ajkl", gain.attenuation, theta))
    else:
        theta = _attenuate_left(gain, _attenuate_left(gain, theta).transpose(2, 3, 0, 1))
    return RowCov(
        theta,
        gain.granger_decay * _attenuate_left(gain, cov.cross),
        gain.granger_decay**2 * cov.granger,
    )


def _attenuate_left(gain: Gains, cov: Float[Array, "p d p s"]) -> Float[Array, "p d p s"]:
    """Apply `attenuate` to the first two axes of a covariance."""
    if gain.attenuation is not None:
        return fused_einsum("iaj,ajkl->ijkl", gain.attenuation, cov)
    p, d, _, size = cov.shape
    moved = attenuate(gain, cov.reshape(p, d, -1).transpose(0, 2, 1))
    return moved.transpose(0, 2, 1).reshape(p, d, p, size)


def mean_map_terms(gain: Gains, window: RowWindow, projected: Projections) -> StepTerms:
    r"""The rank-structured part of \(\bar F \Sigma \bar F^\top\), with a leading step axis."""
    y, g = window.measurements, window.causes

    def attenuated(values: Float[Array, "t p p d"]) -> Float[Array, "t p p d"]:
        moved = values.transpose(1, 0, 2, 3)
        flat = attenuate(gain, moved.reshape(len(moved), -1, moved.shape[3]))
        return flat.reshape(moved.shape).transpose(1, 0, 2, 3)

    on_y = attenuated(projected.theta_alpha)
    on_y = on_y + 0.5 * fused_einsum("uj,uitk->tikj", y, projected.alpha_alpha)
    cross_on_y = gain.granger_decay * projected.granger_alpha.transpose(0, 2, 1, 3)
    cross_on_y = cross_on_y + fused_einsum("tiuk,ul->tikl", projected.alpha_beta, g)
    granger_on_g = gain.granger_decay * projected.granger_beta
    granger_on_g = granger_on_g + 0.5 * fused_einsum("ul,uktm->tkml", g, projected.beta_beta)
    on_g, zero = attenuated(projected.theta_beta), jnp.zeros(gain.N.shape)
    return StepTerms(on_y, on_g, cross_on_y, granger_on_g, zero)


class StepMoments(NamedTuple):
    r"""Second moments (not centred) that decide what a step's own noise ε does to (θ, Â).

    The step adds \(e\,\varepsilon^\top - N\theta\varepsilon\,\bar y^\top\) to θ and
    \(B\theta\varepsilon\, g^\top\) to Â, and \(-N\theta\) times the centred
    \(\varepsilon\varepsilon^\top\) to θ.

    Attributes:
        error: \(E[e e^\top]\).
        error_state: [i, k, j] = \(E[e_i (\theta V)_{kj}]\).
        state: \(E[\theta V \theta^\top]\), of the linear part.
        state_quadratic: the same, of the quadratic part.
    """

    error: Float[Array, "p p"]
    error_state: Float[Array, "p p d"]
    state: Float[Array, "p p"]
    state_quadratic: Float[Array, "p p"]


def step_noise_terms(
    measurement: Float[Array, " d"],
    causes: Float[Array, " q"],
    N: Float[Array, "p p"],
    B: Float[Array, "p p"],
    moments: StepMoments,
) -> StepTerms:
    r"""What one step's noise adds, all but `second_order_cov`."""
    N_state = fused_einsum("ia,ab->ib", N, moments.state)
    B_state = fused_einsum("ia,ab->ib", B, moments.state)
    on_y = 0.5 * fused_einsum("ia,ka->ik", N_state, N)[:, :, None] * measurement[None, None]
    on_g = fused_einsum("ia,ka->ik", N_state, B)[:, :, None] * measurement[None, None]
    square = fused_einsum("ia,ka->ik", B_state, B)
    p, q = len(N), causes.shape[0]
    return StepTerms(
        on_y - fused_einsum("iaj,ka->ikj", moments.error_state, N),
        fused_einsum("iaj,ka->ikj", moments.error_state, B) - on_g,
        jnp.zeros((p, p, q)),
        0.5 * square[:, :, None] * causes[None, None],
        moments.error + fused_einsum("ia,ab,kb->ik", N, moments.state_quadratic, N),
    )


def second_order_cov(
    N: Float[Array, "p p"], noise: NoiseCov, cov: Float[Array, "p d p d"]
) -> Float[Array, "p d p d"]:
    r"""\(\sum N_{ia} N_{kb} (V\,\mathrm{Cov}\,V)_{al,bj}\), read as [b, j, a, l] by symmetry.

    The centred \(\varepsilon\varepsilon^\top\) with its noises paired crosswise.
    """
    if noise.ndim == 1:
        noisy = fused_einsum("kb,ia,bjal->ijkl", N, N, cov)
        return noisy * noise[None, :, None, None] * noise[None, None, None]
    noisy = jnp.einsum("bmar,mj,rl->bjal", cov, noise, noise)
    return fused_einsum("kb,ia,bjal->ijkl", N, N, noisy)


def update_terms(gain: Gains, window: RowWindow, cov: RowCov) -> StepTerms:
    """Short factors of what a round adds to a covariance; leading step axis."""
    projected = project(gain, window, cov)

    def own(step: RowWindow, N: Array, B: Array, theta_alpha: Array, error: Array) -> StepTerms:
        V = step.noise
        if V.ndim == 1:
            state = (jnp.diagonal(cov.augmentation, axis1=1, axis2=3) * V[None, None]).sum(axis=-1)
        else:
            state = jnp.einsum("ijkl,jl->ik", cov.augmentation, V)
        error_state = times_noise(theta_alpha.transpose(1, 0, 2), V)
        moments = StepMoments(error, error_state, state, state)
        return step_noise_terms(step.measurements, step.causes, N, B, moments)

    same_step = jnp.diagonal(projected.alpha_alpha, axis1=0, axis2=2).transpose(2, 0, 1)
    own_terms = jax.vmap(own)(window, gain.N, gain.B, projected.theta_alpha, same_step)
    return sum_terms(mean_map_terms(gain, window, projected), own_terms)


def next_cov(
    gain: Gains,
    window: RowWindow,
    cov: RowCov,
    terms: StepTerms,
    dense: DenseTerms | None = None,
) -> RowCov:
    r"""Return the covariance after a round.

    `terms` are `update_terms` of the covariance before it, plus those of the noise, and `dense` is
    what the noise adds besides (`noise_terms`); without both the result is \(\mathcal L(\Sigma)\).
    """

    def add_step(total: RowCov, t: Array | int) -> RowCov:
        y, V, g = window.measurements[t], window.noise[t], window.causes[t]
        theta = total.augmentation + second_order_cov(gain.N[t], V, cov.augmentation)
        own = StepTerms(*(part[t] for part in terms))
        return add_step_terms(total._replace(augmentation=theta), y, V, g, own)

    total = attenuate_cov(gain, cov)
    total = add_step(total if dense is None else add_dense_terms(total, dense), 0)
    if len(window.measurements) == 1:
        return total
    steps = jnp.arange(1, len(window.measurements))
    return lax.scan(lambda total, t: (add_step(total, t), None), total, steps)[0]
