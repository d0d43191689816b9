r"""How one round carries a covariance of (θ, Â) forward: the part that is linear in it.

With the regressors \(y = \bar y + \varepsilon\) random, a round is \(x' = F(\varepsilon) x + b\)
and a covariance Σ of x becomes

$$\bar F \Sigma \bar F^\top + E[\delta F\, \Sigma\, \delta F^\top], \qquad
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
from fedgranger.uncertainty.gains import Gains, mix
from fedgranger.uncertainty.inputs import RowWindow, times_noise
from fedgranger.uncertainty.terms import Rest, RowCov, Terms, add_rest, add_terms, assemble, at_step

__all__ = [
    "Projections",
    "StepMoments",
    "contract",
    "factors_of",
    "fluctuation",
    "project",
    "scaled",
    "spread",
    "swapped_cov",
    "written",
]


def _mix_left(gain: Gains, cov: Float[Array, "p d p s"]) -> Float[Array, "p d p s"]:
    """Apply `mix` to the first two axes of a covariance."""
    if gain.mixing is not None:
        return fused_einsum("iaj,ajkl->ijkl", gain.mixing, cov)
    p, d, _, size = cov.shape
    moved = mix(gain, cov.reshape(p, d, -1).transpose(0, 2, 1))
    return moved.transpose(0, 2, 1).reshape(p, d, p, size)


def _mix_both(gain: Gains, cov: Float[Array, "p d p d"]) -> Float[Array, "p d p d"]:
    """Apply `mix` to both sides of a covariance of θ."""
    if gain.mixing is not None:
        return _mix_left(gain, fused_einsum("kbl,ajbl->ajkl", gain.mixing, cov))
    return _mix_left(gain, _mix_left(gain, cov).transpose(2, 3, 0, 1))


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
    c = gain.c[:, None, None, None]

    def alpha(phi: Array, rho: Array) -> Array:
        plus = fused_einsum("tiaj,tba->tibj", rho, gain.kappa)
        return plus - fused_einsum("tiaj,tba->tibj", phi, gain.N)

    def beta(phi: Array, rho: Array) -> Array:
        return fused_einsum("tiaj,tba->tibj", phi, gain.B) - c * rho

    phi_phi = summed("tj,uabj->taub", y, theta_phi)
    phi_rho = summed("tj,uabj->taub", y, theta_rho)
    rho_phi = phi_rho.transpose(2, 3, 0, 1)
    rho_rho = summed("tl,uabl->taub", g, granger_rho)

    def right_alpha(phi: Array, rho: Array) -> Array:
        plus = fused_einsum("taub,ukb->tauk", rho, gain.kappa)
        return plus - fused_einsum("taub,ukb->tauk", phi, gain.N)

    def right_beta(phi: Array, rho: Array) -> Array:
        return fused_einsum("taub,ukb->tauk", phi, gain.B) - gain.c[None, None, :, None] * rho

    def left_alpha(phi: Array, rho: Array) -> Array:
        plus = fused_einsum("tia,tauk->tiuk", gain.kappa, rho)
        return plus - fused_einsum("tia,tauk->tiuk", gain.N, phi)

    phi_beta, rho_beta = right_beta(phi_phi, phi_rho), right_beta(rho_phi, rho_rho)
    return Projections(
        alpha(theta_phi, theta_rho),
        beta(theta_phi, theta_rho),
        alpha(granger_phi, granger_rho),
        beta(granger_phi, granger_rho),
        left_alpha(right_alpha(phi_phi, phi_rho), right_alpha(rho_phi, rho_rho)),
        left_alpha(phi_beta, rho_beta),
        fused_einsum("tia,tauk->tiuk", gain.B, phi_beta) - c * rho_beta,
    )


def scaled(gain: Gains, cov: RowCov) -> RowCov:
    r"""The part of \(\bar F \Sigma \bar F^\top\) that keeps the shape of Σ."""
    return RowCov(
        _mix_both(gain, cov.augmentation),
        gain.keep_granger * _mix_left(gain, cov.cross),
        gain.keep_granger**2 * cov.granger,
    )


def contract(gain: Gains, window: RowWindow, seen: Projections) -> Terms:
    r"""The rank-structured part of \(\bar F \Sigma \bar F^\top\), with a leading step axis."""
    y, g = window.measurements, window.causes

    def mixed(values: Float[Array, "t p p d"]) -> Float[Array, "t p p d"]:
        moved = values.transpose(1, 0, 2, 3)
        flat = mix(gain, moved.reshape(len(moved), -1, moved.shape[3]))
        return flat.reshape(moved.shape).transpose(1, 0, 2, 3)

    on_y = mixed(seen.theta_alpha) + 0.5 * fused_einsum("uj,uitk->tikj", y, seen.alpha_alpha)
    onto = gain.keep_granger * seen.granger_alpha.transpose(0, 2, 1, 3)
    onto = onto + fused_einsum("tiuk,ul->tikl", seen.alpha_beta, g)
    on_g = gain.keep_granger * seen.granger_beta
    on_g = on_g + 0.5 * fused_einsum("ul,uktm->tkml", g, seen.beta_beta)
    nothing = jnp.zeros(gain.N.shape)
    return Terms(on_y, mixed(seen.theta_beta), onto, on_g, nothing)


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


def fluctuation(
    measurement: Float[Array, " d"],
    causes: Float[Array, " q"],
    N: Float[Array, "p p"],
    B: Float[Array, "p p"],
    moments: StepMoments,
) -> Terms:
    r"""What one step's noise adds, all but the crosswise pairing (`swapped_cov`)."""
    N_state = fused_einsum("ia,ab->ib", N, moments.state)
    B_state = fused_einsum("ia,ab->ib", B, moments.state)
    on_y = 0.5 * fused_einsum("ia,ka->ik", N_state, N)[:, :, None] * measurement[None, None]
    on_g = fused_einsum("ia,ka->ik", N_state, B)[:, :, None] * measurement[None, None]
    square = fused_einsum("ia,ka->ik", B_state, B)
    p, q = len(N), causes.shape[0]
    return Terms(
        on_y - fused_einsum("iaj,ka->ikj", moments.error_state, N),
        fused_einsum("iaj,ka->ikj", moments.error_state, B) - on_g,
        jnp.zeros((p, p, q)),
        0.5 * square[:, :, None] * causes[None, None],
        moments.error + fused_einsum("ia,ab,kb->ik", N, moments.state_quadratic, N),
    )


def swapped_cov(N: Array, noise: Array, cov: Float[Array, "p d p d"]) -> Float[Array, "p d p d"]:
    r"""\(\sum N_{ia} N_{kb} (V\,\mathrm{Cov}\,V)_{al,bj}\), read as [b, j, a, l] by symmetry.

    The centred \(\varepsilon\varepsilon^\top\) with its noises paired crosswise.
    """
    if noise.ndim == 1:
        noisy = fused_einsum("kb,ia,bjal->ijkl", N, N, cov)
        return noisy * noise[None, :, None, None] * noise[None, None, None]
    noisy = jnp.einsum("bmar,mj,rl->bjal", cov, noise, noise)
    return fused_einsum("kb,ia,bjal->ijkl", N, N, noisy)


def spread(gain: Gains, window: RowWindow, cov: RowCov) -> RowCov:
    """Carry a covariance through one round."""
    return written(gain, window, cov, factors_of(gain, window, cov))


def factors_of(gain: Gains, window: RowWindow, cov: RowCov) -> Terms:
    """Return the short factors of what a round does to a covariance; leading step axis."""
    seen = project(gain, window, cov)

    def own(step: RowWindow, N: Array, B: Array, theta_alpha: Array, alpha_alpha: Array) -> Terms:
        V = step.noise
        if V.ndim == 1:
            state = (jnp.diagonal(cov.augmentation, axis1=1, axis2=3) * V[None, None]).sum(axis=-1)
        else:
            state = jnp.einsum("ijkl,jl->ik", cov.augmentation, V)
        error_state = times_noise(theta_alpha.transpose(1, 0, 2), V)
        moments = StepMoments(alpha_alpha, error_state, state, state)
        return fluctuation(step.measurements, step.causes, N, B, moments)

    same_step = jnp.diagonal(seen.alpha_alpha, axis1=0, axis2=2).transpose(2, 0, 1)
    own_terms = jax.vmap(own)(window, gain.N, gain.B, seen.theta_alpha, same_step)
    return add_terms(contract(gain, window, seen), own_terms)


def written(
    gain: Gains, window: RowWindow, cov: RowCov, terms: Terms, rest: Rest | None = None
) -> RowCov:
    """Return the covariance after a round; `terms` are its factors and whatever else is added."""

    def one(total: RowCov, t: Array | int) -> RowCov:
        y, V, g = window.measurements[t], window.noise[t], window.causes[t]
        swapped = total.augmentation + swapped_cov(gain.N[t], V, cov.augmentation)
        return assemble(total._replace(augmentation=swapped), y, V, g, at_step(terms, t))

    total = scaled(gain, cov) if rest is None else add_rest(scaled(gain, cov), rest)
    total = one(total, 0)
    if len(window.measurements) == 1:
        return total
    steps = jnp.arange(1, len(window.measurements))
    return lax.scan(lambda total, t: (one(total, t), None), total, steps)[0]
