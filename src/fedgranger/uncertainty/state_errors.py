r"""Errors of a nonlinear client's messages: h_c of an extended Kalman filter, and h_a = h_c + θy.

The paper's appendix replaces C by the Jacobian J_g, A by F and the Kalman posterior by that of the
extended filter. Against what the client would send without measurement noise, h + θ g(h), its
messages are off by

$$h_c - h, \qquad h_a - (h + \theta g(h)) = (h_c - h) + \theta v$$

with \(\mathrm{Cov}(h_c - h) = P\) and \(\mathrm{Cov}(h_c - h, v) = K R = P J_g^\top\), so that

$$\Sigma_{h_a} = P + P J_g^\top\theta^\top + \theta J_g P + \theta R\,\theta^\top
  + \sum_{jl} (y_j y_l + R_{jl})\,\mathrm{Cov}(\theta_{\cdot j}, \theta_{\cdot l}).$$

The last two terms are those of `quantities` (with the state given, P = 0: the paper's A1); the
first three are what a filtered state adds. Exact for linear f and g, first order otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

AugmentationCov = Float[Array, "p d p d"]
"""[i, j, k, l]: covariance of θ_ij and θ_kl, as in `round_terms.RowCov`."""


class StateErrorCovs(NamedTuple):
    """Error covariances of the two states that a client sends, for every time step."""

    filtered_covs: Float[Array, "time p p"]
    augmented_covs: Float[Array, "time p p"]


def state_error_covs(
    filtered_covs: Float[Array, "time p p"],
    observation_jacobians: Float[Array, "time d p"],
    measurement_cov: Float[Array, "d d"],
    measurements: Float[Array, "time d"],
    is_observed: Bool[Array, "time d"],
    augmentation: Float[Array, "p d"],
    augmentation_cov: AugmentationCov | None = None,
) -> StateErrorCovs:
    """Covariances of h_c and of h_a, θ having this mean and covariance (none: θ is given).

    `filtered_covs` and `observation_jacobians` are those of the filter; a missing sensor counts as
    zero in θy, without noise.
    """
    theta = augmentation

    def at(P: Array, J_g: Array, y: Array, observed: Array) -> Array:
        kept = observed.astype(y.dtype)
        R = measurement_cov * jnp.outer(kept, kept)
        between = theta @ (kept[:, None] * J_g) @ P
        cov = P + between + between.T + theta @ R @ theta.T
        if augmentation_cov is not None:
            seen = jnp.where(observed, y, 0.0)
            cov = cov + jnp.einsum("ijkl,jl->ik", augmentation_cov, jnp.outer(seen, seen) + R)
        return cov

    found = jax.vmap(at)(filtered_covs, observation_jacobians, measurements, is_observed)
    return StateErrorCovs(filtered_covs, found)


def augmentation_covs(
    initial_cov: AugmentationCov,
    measurements: Float[Array, "time d"],
    has_next: Bool[Array, " time"],
    transition_jacobians: Float[Array, "time p p"],
    observation_jacobians: Float[Array, "time d p"],
    predicted_covs: Float[Array, "time p p"],
    measurement_cov: Float[Array, "d d"],
    local_step_size: float,
    feedback_step_size: float,
    ridge: float = 0.0,
) -> Float[Array, "time p d p d"]:
    r"""Covariance of θ along training by single steps, before each of them; Â is given.

    $$\Sigma_\theta^+ = H\Sigma_\theta H^\top + G S G^\top, \quad
      H = (1 - 2\eta_1\lambda_\theta)I - yy^\top \otimes N, \quad G = 2\eta_1\,(y \otimes M^\top)$$

    with \(M = J_g^{t+1} F^t\), \(N = 2\eta_1 M^\top M + 2\eta_2 F^\top F\), and S the covariance of
    the target's surprise \(y^{t+1} - g(f(h_c))\): \(S = J_g P^{t+1|t} J_g^\top + R\), in which the
    posterior of step t enters as \(F P F^\top\). The paper's appendix prints J_g in place of M, and
    G P Gᵀ with a P of p × p after a G of d columns, which does not fit.

    Note:
        First order in the step sizes: the noise of y as a regressor is left out, which `recursion`
        has for linear clients. All sensors of a used step must be there; others are passed over
        by `has_next`, which is false at the last step.
    """
    eta1, eta2 = local_step_size, feedback_step_size
    R, decay = measurement_cov, 1 - 2 * eta1 * ridge

    def one(cov: Array, inputs: tuple[Array, ...]) -> tuple[Array, Array]:
        y, used, F, J_g, P = inputs
        M = J_g @ F
        N = 2 * eta1 * M.T @ M + 2 * eta2 * F.T @ F
        D = 2 * eta1 * M.T
        half = decay * cov - jnp.einsum("ia,abkl,b,j->ijkl", N, cov, y, y)
        new = decay * half - jnp.einsum("ka,ijab,b,l->ijkl", N, half, y, y)
        noise = D @ (J_g @ P @ J_g.T + R) @ D.T
        new = new + noise[:, None, :, None] * jnp.outer(y, y)[None, :, None, :]
        return jnp.where(used, new, cov), cov

    following = jax.tree.map(
        lambda rows: jnp.concatenate([rows[1:], rows[-1:]]), (observation_jacobians, predicted_covs)
    )
    inputs = (measurements, has_next, transition_jacobians, *following)
    return lax.scan(one, initial_cov, inputs)[1]
