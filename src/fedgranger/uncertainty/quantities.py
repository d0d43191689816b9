r"""The paper's quantities, from one row's mean and covariance.

| paper | here | is |
|---|---|---|
| \(\Sigma_\theta\) | `augmentation_cov` | Cov(θ, θ) |
| \(\Sigma_A\) | `granger_cov` | Cov(Â, Â), by group of columns |
| \(\Psi\) | `granger_augmentation_cov` | Cov(Â, θ) |
| \(\Omega\) | `augmentation_data_cov` | Cov(θ, y) |
| \(\Lambda\) | `augmentation_state_cov` | Cov(θ, h_a) |
| \(\Gamma\) | `granger_state_cov` | Cov(Â, h_a) |
| \(\Sigma_h\) | `state_cov` | Var(h_a), what the client sends |
| \(\mathrm{Var}(g_s)\) | `gradient_cov` | Var of the gradient the server sends |

All are taken when a round begins, for the round's first time step. Lemmas 6.3 to 6.6 print other
forms; docs/theory/errata.md says what is wrong with them and which test shows it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedgranger.uncertainty.inputs import RowParams, RowWindow, noise_matrix, times_noise
from fedgranger.uncertainty.mean_recursion import RowMean
from fedgranger.uncertainty.round_terms import RowCov, round_gains
from fedgranger.uncertainty.target_noise import target_moments, target_noise_cov

PER_CAUSE = ("granger_cov", "granger_augmentation_cov", "granger_state_cov")
"""Quantities that belong to a pair (effect, cause); the others belong to a client."""


class Quantities(NamedTuple):
    """Named in the module's text; [i, j, k, l] are entries, as in `RowCov`."""

    augmentation_cov: Float[Array, "p d p d"]
    granger_cov: Float[Array, "group p s p s"]
    granger_augmentation_cov: Float[Array, "p q p d"]
    augmentation_data_cov: Float[Array, "p d d"]
    augmentation_state_cov: Float[Array, "p d p"]
    granger_state_cov: Float[Array, "p q p"]
    state_cov: Float[Array, "p p"]
    gradient_cov: Float[Array, "p p"]


QUANTITIES = Quantities._fields


def quantities(params: RowParams, mean: RowMean, cov: RowCov, window: RowWindow) -> Quantities:
    """Compute all of them before a round with that window."""
    y, V = window.measurements[0], window.noise[0]
    theta, last_step = mean.augmentation, mean.last_step
    zero = jnp.zeros(theta.shape[0])
    target = target_moments(params, window, round_gains(params, window), mean, zero)
    DV, Q, data_y = target.DV, target.gram, target.data_rows[0]

    base = prior_quantities(params, cov, window)
    with_target = target.cov_rows[:, 1:]  # Cov(θ', y_p) (D V)ᵀ
    between = jnp.einsum("kil,l->ki", with_target, y) + target.theta_gram
    state_cov = (
        base.state_cov
        + times_noise(theta, V) @ theta.T
        + between
        + between.T
        + target.noise_gram
        + (y @ data_y + target.noise_size) * Q
        + target.data_gram
    )
    arrived = target.column_rows[:, 1:].transpose(1, 0, 2) + Q[:, :, None] * data_y[None, None]
    granger_data = mean.data_cov.times_granger(DV).transpose(0, 2, 1)
    granger_state_cov = base.granger_state_cov + granger_data
    return Quantities(
        cov.augmentation + target_noise_cov(params, last_step, V),
        cov.granger,
        base.granger_augmentation_cov,
        DV[:, None, :] * last_step.measurement[None, :, None],
        base.augmentation_state_cov + (with_target + arrived).transpose(0, 2, 1),
        granger_state_cov,
        state_cov,
        _gradient_cov(params, window, cov, state_cov, granger_state_cov),
    )


def prior_quantities(params: RowParams, cov: RowCov, window: RowWindow) -> Quantities:
    """The share of a covariance that has neither a mean nor noise in it: the prior's."""
    y, V = window.measurements[0], window.noise[0]
    p, d = cov.augmentation.shape[:2]
    theta_state = jnp.einsum("ijal,l->ija", cov.augmentation, y)
    granger_state = jnp.einsum("ajkl,j->kla", cov.cross, y)
    state_cov = jnp.einsum("ija,j->ia", theta_state, y)
    state_cov = state_cov + jnp.einsum("ijkl,jl->ik", cov.augmentation, noise_matrix(V))
    return Quantities(
        cov.augmentation,
        cov.granger,
        cov.cross.transpose(2, 3, 0, 1),
        jnp.zeros((p, d, d)),
        theta_state,
        granger_state,
        state_cov,
        _gradient_cov(params, window, cov, state_cov, granger_state),
    )


def sizes(found: Quantities, causes: int) -> dict[str, Array]:
    """Traces of covariances, Frobenius norms of cross-covariances; one per cause where it has any.

    Â's columns are split evenly among the causes.
    """
    p, d = found.augmentation_cov.shape[:2]
    between = found.granger_augmentation_cov.reshape(p, causes, -1, p, d)
    state = found.granger_state_cov.reshape(p, causes, -1, p)
    variances = jnp.einsum("gisis->gs", found.granger_cov)  # columns of Â, in order
    return {
        "augmentation_cov": jnp.einsum("ijij->", found.augmentation_cov),
        "granger_cov": variances.reshape(causes, -1).sum(axis=1),
        "granger_augmentation_cov": jnp.sqrt((between**2).sum(axis=(0, 2, 3, 4))),
        "augmentation_data_cov": jnp.linalg.norm(found.augmentation_data_cov.ravel()),
        "augmentation_state_cov": jnp.linalg.norm(found.augmentation_state_cov.ravel()),
        "granger_state_cov": jnp.sqrt((state**2).sum(axis=(0, 2, 3))),
        "state_cov": jnp.trace(found.state_cov),
        "gradient_cov": jnp.trace(found.gradient_cov),
    }


def _gradient_cov(
    params: RowParams,
    window: RowWindow,
    cov: RowCov,
    state_cov: Float[Array, "p p"],
    granger_state: Float[Array, "p q p"],
) -> Float[Array, "p p"]:
    r"""\(4 A^\top \mathrm{Var}(r) A\), \(r = A\theta y - \hat A g\)."""
    A, g = params.self_transition, window.causes[0]
    groups, _, size = cov.granger.shape[:3]
    by_group = g.reshape(groups, size)
    predicted = jnp.einsum("nijkl,nj,nl->ik", cov.granger, by_group, by_group)
    between = jnp.einsum("kla,l->ka", granger_state, g) @ A.T  # Cov(Âg, Aθy)
    residual = A @ state_cov @ A.T + predicted - between - between.T
    return 4 * A.T @ residual @ A
