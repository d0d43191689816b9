r"""What each party can compute by itself, from its own data and the messages it gets.

The joint recursion needs a client's measurements and the other clients' states in one place; in a
deployment nobody has both. No message beyond those in `messages` is needed for what follows.

- A client knows y, θ, C, A and the gradient the server sends,
  \(g_s = 2A^\top(A\theta y - \hat A g)\), hence \(A^\top\hat A g = A^\top A\theta y - g_s / 2\),
  which it takes as given. That leaves a recursion of θ alone: `client_rounds` turns it into a row
  without causes, and `advance_rounds` gives Σ_θ, Ω, Λ and Σ_h. What is missing is the server's own
  uncertainty.
- The server knows g and \(\tau = A(h_a - h_c)\). Its row moves by
  \(2\gamma(\tau - \hat A g)g^\top\); `server_cov` propagates Σ_A from its prior with the long-run
  covariance of these scores. What is missing is that τ answers to Â.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedgranger.linalg.long_run import long_run_cov
from fedgranger.uncertainty.inputs import RowParams, RowWindow


def client_params(params: RowParams) -> RowParams:
    """The constants of a row without causes."""
    return RowParams(
        params.self_transition,
        params.predicted_observation,
        params.local_step_size,
        params.feedback_step_size,
        params.server_step_size,
        params.augmentation_ridge,
        params.granger_ridge,
        jnp.zeros((*params.coupling.shape[:-1], 1)),
    )


def client_rounds(
    params: RowParams,
    windows: RowWindow,
    corrections: Float[Array, "round window p"],
    gradients: Float[Array, "round window p"],
) -> RowWindow:
    r"""The client's own rounds, with what the server fed back as part of its target.

    Args:
        params: constants of the row.
        windows: the client's rounds; only its own fields are read.
        corrections: \(\theta y = h_a - h_c\), as it was sent up.
        gradients: \(g_s\), as it came down.
    """
    A, eta1, eta2 = params.self_transition, params.local_step_size, params.feedback_step_size
    fed = corrections @ (A.T @ A) - 0.5 * gradients  # Aᵀ Â g
    paired, observed = windows.paired_weights[..., None], windows.observed_weights[..., None]
    # e = 2η1 w_p target + 2η2 w_o Aᵀ Â g − Nθy: fold the second term into the first
    ratio = jnp.where(
        paired > 0, observed * eta2 / (eta1 * jnp.where(paired > 0, paired, 1.0)), 0.0
    )
    return RowWindow(
        windows.measurements,
        jnp.zeros((*windows.measurements.shape[:2], 1)),
        windows.local_targets + ratio * fed,
        windows.noise,
        windows.paired_weights,
        windows.observed_weights,
    )


def server_cov(
    causes: np.ndarray,
    scores: np.ndarray,
    prior_var: float,
    *,
    step_size: float,
    ridge: float,
    lag: int,
) -> np.ndarray:
    r"""Σ_A along training from what the server sees, (rounds + 1, n, n).

    \(\Sigma^+ = D_t\Sigma D_t^\top + S\) with
    \(D_t = (1 - 2\gamma\lambda)I - 2\gamma\, I \otimes gg^\top\) (entries row by row) and S the
    long-run covariance of the scores.

    Args:
        causes: g per round, (rounds, q); windows of one step.
        scores: 2γ(τ − Âg)gᵀ per round, (rounds, p, q), without ridge.
        prior_var: variance of Â's entries at the start.
        step_size: γ.
        ridge: λ_A.
        lag: lags of the long-run covariance.
    """
    rounds, p, q = scores.shape
    S = long_run_cov(scores.reshape(rounds, -1), lag)
    sigma = prior_var * np.eye(p * q)
    out = np.empty((rounds + 1, p * q, p * q))
    out[0] = sigma
    keep = 1 - 2 * step_size * ridge
    for t, g in enumerate(causes):
        half = _shrink(sigma, g, keep, step_size, p)
        sigma = _shrink(half.T, g, keep, step_size, p) + S
        out[t + 1] = sigma
    return out


def server_steady_cov(
    causes: np.ndarray, scores: np.ndarray, *, step_size: float, ridge: float, lag: int
) -> np.ndarray:
    """Σ_A long after the start: Σ = D̄ Σ D̄ᵀ + S, in the eigenbasis of E[ggᵀ]."""
    rounds, p, _ = scores.shape
    values, vectors = np.linalg.eigh(causes.T @ causes / rounds)
    rate = np.tile(1 - 2 * step_size * (values + ridge), p)
    basis = np.kron(np.eye(p), vectors)
    S = basis.T @ long_run_cov(scores.reshape(rounds, -1), lag) @ basis
    return basis @ (S / (1 - np.outer(rate, rate))) @ basis.T


def _shrink(sigma: np.ndarray, g: np.ndarray, keep: float, step_size: float, p: int) -> np.ndarray:
    """D_t times a matrix whose rows are (row of Â, column of Â)."""
    q = len(g)
    tensor = sigma.reshape(p, q, -1)
    seen = np.einsum("ijr,j->ir", tensor, g)
    return (keep * tensor - 2 * step_size * g[None, :, None] * seen[:, None]).reshape(p * q, -1)
