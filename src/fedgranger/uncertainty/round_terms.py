r"""What a round multiplies (θ, Â) of one row by, and what it adds to their covariance, in factors.

Everything a round does to a covariance, beyond scaling it, is a short sum of products of small
arrays, whose long axis comes last. Those that depend on the covariance (`StepTerms`) are summed
while small, once per round; those that do not (`Products`) are multiplied for many rounds at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fedgranger.linalg.fused import fused_einsum
from fedgranger.uncertainty.inputs import NoiseCov, RowParams, RowWindow

Pairs = tuple[tuple[Array, Array], ...]


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


class RowCov(NamedTuple):
    """Covariance of one row's parameters, by matrix entries: [i, j, k, l] = Cov(X_ij, Z_kl).

    Attributes:
        augmentation: of θ with θ, (p, d, p, d).
        cross: of θ with Â, (p, d, p, q).
        granger: of Â with Â, (group, p, s, p, s): one group of all q columns (joint), or one
            group per cause with nothing between groups (blockwise).
    """

    augmentation: Float[Array, "p d p d"]
    cross: Float[Array, "p d p q"]
    granger: Float[Array, "group p s p s"]


class DenseTerms(NamedTuple):
    """What is added to a `RowCov` and has no short factors; nothing is added to Â-Â."""

    augmentation: Float[Array, "p d p d"]
    cross: Float[Array, "p d p q"]


class StepTerms(NamedTuple):
    r"""Factors of what is added, for a step with measurement y, its noise V and causes g.

    Attributes:
        on_y: θ-θ gets \(X_{ikj} y_l\) and its transpose.
        on_g: θ-Â gets \(X_{ikj} g_l\).
        cross_on_y: θ-Â gets \(y_j X_{ikl}\).
        granger_on_g: Â-Â gets \(X_{ikj} g_l\) and its transpose.
        on_noise: θ-θ gets \(X_{ik} V_{jl}\).
    """

    on_y: Float[Array, "*window p p d"]
    on_g: Float[Array, "*window p p d"]
    cross_on_y: Float[Array, "*window p p q"]
    granger_on_g: Float[Array, "*window p p q"]
    on_noise: Float[Array, "*window p p"]


class Products(NamedTuple):
    r"""Other things that are added, as sums of products.

    Attributes:
        kron: θ-θ gets \(\sum E_{ik} M_{jl}\), M a matrix or the diagonal of one.
        outer: θ-θ gets \(\sum L_{ij} R_{kl}\).
        columns: θ-θ gets \(\sum z_j X_{ikl}\).
        crosswise: θ-θ gets \(\sum L_{il} R_{kj}\).
        cross_outer: θ-Â gets \(\sum L_{ij} R_{kl}\).
        cross_crosswise: θ-Â gets \(\sum L_{kj} R_{il}\).
        diagonal: θ-θ gets \(\sum X_{ikj} \delta_{jl}\).
    """

    kron: Pairs = ()
    outer: Pairs = ()
    columns: Pairs = ()
    crosswise: Pairs = ()
    cross_outer: Pairs = ()
    cross_crosswise: Pairs = ()
    diagonal: tuple[Float[Array, "p p d"], ...] = ()


def sum_terms(left: StepTerms, right: StepTerms) -> StepTerms:
    """Sum part by part."""
    return jax.tree.map(jnp.add, left, right)


def add_step_terms(
    cov: RowCov,
    measurement: Float[Array, " d"],
    noise: NoiseCov,
    causes: Float[Array, " q"],
    terms: StepTerms,
) -> RowCov:
    """Add the terms of one step, multiplied out."""
    y, g = measurement, causes
    augmentation = (
        cov.augmentation
        + terms.on_y.transpose(0, 2, 1)[..., None] * y[None, None, None]
        + terms.on_y.transpose(1, 0, 2)[:, None] * y[None, :, None, None]
        + _kron(terms.on_noise, noise)
    )
    cross = (
        cov.cross
        + terms.on_g.transpose(0, 2, 1)[..., None] * g[None, None, None]
        + y[None, :, None, None] * terms.cross_on_y[:, None]
    )
    groups, p, size = cov.granger.shape[:3]
    half, by_group = terms.granger_on_g.reshape(p, p, groups, size), g.reshape(groups, size)
    granger = (
        cov.granger
        + fused_einsum("iknj,nl->nijkl", half, by_group)
        + fused_einsum("kinl,nj->nijkl", half, by_group)
    )
    return RowCov(augmentation, cross, granger)


def add_dense_terms(cov: RowCov, terms: DenseTerms) -> RowCov:
    """Sum part by part."""
    return RowCov(cov.augmentation + terms.augmentation, cov.cross + terms.cross, cov.granger)


def multiply(shape: tuple[int, int, int], *products: Products) -> DenseTerms:
    """Multiply and add; `shape` is (p, d, q)."""
    p, d, q = shape
    augmentation, cross = jnp.zeros((p, d, p, d)), jnp.zeros((p, d, p, q))
    for one in products:
        for left, right in one.outer:
            augmentation = augmentation + left[:, :, None, None] * right[None, None]
        for left, right in one.columns:
            augmentation = augmentation + left[None, :, None, None] * right[:, None]
        for left, right in one.crosswise:
            augmentation = augmentation + left[:, None, None, :] * right.T[None, :, :, None]
        for left, right in one.kron:
            augmentation = augmentation + _kron(left, right)
        for values in one.diagonal:
            augmentation = augmentation + _on_diagonal(values)
        for left, right in one.cross_outer:
            cross = cross + left[:, :, None, None] * right[None, None]
        for left, right in one.cross_crosswise:
            cross = cross + left.T[None, :, :, None] * right[:, None, None, :]
    return DenseTerms(augmentation, cross)


def _kron(left: Float[Array, "p p"], right: NoiseCov) -> Float[Array, "p d p d"]:
    """[i, j, k, l] = L_ik R_jl, R a matrix or the diagonal of one."""
    if right.ndim == 2:
        return left[:, None, :, None] * right[None, :, None, :]
    return _on_diagonal(left[:, :, None] * right[None, None])


def _on_diagonal(values: Float[Array, "p p d"]) -> Float[Array, "p d p d"]:
    """[i, j, k, l] = X_ikj δ_jl."""
    return values.transpose(0, 2, 1)[..., None] * jnp.eye(values.shape[2])[None, :, None, :]
