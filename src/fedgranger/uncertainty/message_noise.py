r"""Noise of known covariance on the messages: what it does to one row's update in the long run.

With \(\tilde h_c = h_c + n_c\), \(\tilde h_a = h_a + n_a\) going up and \(\tilde g_s = g_s + n_g\)
coming down, all noises white and independent of each other and of the data, the server works with

$$\tilde r = A\theta y + A\xi - \hat A(g + \nu), \qquad \xi = n_a - n_c,$$

ν being the other clients' \(n_c\). The client's own copies are clean. So the step becomes

$$\theta^+ = \dots - \eta_2 (2A^\top\tilde r + n_g) y^\top, \qquad
  \hat A^+ = (1 - s_A)\hat A + 2\gamma\,\tilde r (g + \nu)^\top$$

and three things change (docs/theory/propagation.md): the mean gain of Â (\(E[gg^\top] + V\),
errors in variables), the update noise at lag zero (`added_noise_cov`) and the noise of the gain
(`added_gain_noise`). All need second moments of (y, g) only and are exact for Gaussian noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedgranger.uncertainty.inputs import RowParams, RowWindow
from fedgranger.uncertainty.update_moments import CovMap, UpdateMoments, join_cov, split_cov


class MessageNoise(NamedTuple):
    """Covariances of the noise on the messages of one row; zero where a message has none.

    Attributes:
        filtered_cov: of n_c, on the client's own filtered state.
        augmented_cov: of n_a, on its augmented state.
        cause_cov: V of ν, on the filtered states of the clients that the row listens to.
        gradient_cov: of n_g, on the gradient that comes back.
    """

    filtered_cov: Float[np.ndarray, "p p"]
    augmented_cov: Float[np.ndarray, "p p"]
    cause_cov: Float[np.ndarray, "q q"]
    gradient_cov: Float[np.ndarray, "p p"]


class MessageCovs(NamedTuple):
    r"""Covariances of the messages of one step, averaged over the steps; (y, g) are given.

    Attributes:
        state_cov: \(\Sigma_h\) of what the client sends as its augmented state.
        gradient_cov: Var(g_s) of what comes back.
    """

    state_cov: Float[np.ndarray, "p p"]
    gradient_cov: Float[np.ndarray, "p p"]


def white_noise(params: RowParams, *, up: float = 0.0, down: float = 0.0) -> MessageNoise:
    """Noise of the same standard deviation on every number that goes up, and that comes down."""
    p, q = len(params.self_transition), len(params.coupling)
    own, causes = up**2 * np.eye(p), up**2 * np.eye(q)
    return MessageNoise(own, own, causes, down**2 * np.eye(p))


def with_noisy_causes(
    moments: UpdateMoments, params: RowParams, noise: MessageNoise
) -> UpdateMoments:
    r"""The mean map with \(E[gg^\top] + V\) in the place of \(E[gg^\top]\)."""
    p, d, _ = moments.shape
    gain, split = moments.gain.copy(), p * d
    added = 2 * float(params.server_step_size) * np.kron(np.eye(p), noise.cause_cov)
    gain[split:, split:] += added
    return moments._replace(gain=gain)


def added_noise_cov(
    params: RowParams,
    windows: RowWindow,
    noise: MessageNoise,
    theta: Float[np.ndarray, "p d"],
    granger: Float[np.ndarray, "p q"],
) -> Float[np.ndarray, "n n"]:
    r"""What the messages' noise adds to the covariance of the update noise at (θ, Â).

    With \(\rho = A\xi - \hat A\nu\) it is that of \(-\eta_2(2A^\top\rho + n_g)y^\top\) on θ and of
    \(2\gamma[\rho g^\top + r\nu^\top + (\rho\nu^\top + \hat A V)]\) on Â. White in time.
    """
    A, eta2, gamma, seen = _constants(params, windows)
    yy, yg, gg, V = *seen[:3], noise.cause_cov
    J = granger @ V
    rho = _residual_noise(A, noise) + J @ granger.T
    ry, rg = A @ theta @ yy - granger @ yg.T, A @ theta @ yg - granger @ gg
    rr = ry @ theta.T @ A.T - rg @ granger.T
    error = eta2**2 * (4 * A.T @ rho @ A + noise.gradient_cov)
    cross = np.einsum("ik,jl->ijkl", A.T @ rho, yg) - np.einsum("il,kj->ijkl", A.T @ J, ry)
    between = np.einsum("ij,kl->ilkj", J, rg)
    square = (
        np.einsum("ik,lj->ilkj", rho, gg + seen.weight * V)
        + np.einsum("ik,lj->ilkj", rr, V)
        + seen.weight * np.einsum("ij,kl->ilkj", J, J)
        - between
        - between.transpose(2, 3, 0, 1)
    )
    return join_cov(
        np.einsum("ik,jl->ijkl", error, yy), -4 * eta2 * gamma * cross, 4 * gamma**2 * square
    )


def added_gain_noise(
    params: RowParams, windows: RowWindow, noise: MessageNoise, moments: UpdateMoments
) -> CovMap:
    r"""What ν adds to \(\Sigma \mapsto E[\delta K\,\Sigma\,\delta K]\), in scaled coordinates.

    For a deviation (T, G) of (θ, Â) the gain is \((N\varphi - \kappa G(g + \nu))y^\top\) on θ and
    \(\beta g^\top + \beta\nu^\top + cG\nu(g + \nu)^\top\) on Â, \(\beta = cGg - BTy\).
    """
    A, eta2, gamma, seen = _constants(params, windows)
    yy, yg, gg, V = *seen[:3], noise.cause_cov
    kappa, B, c = 2 * eta2 * A.T, 2 * gamma * A, 2 * gamma
    outer = np.outer(moments.scale, moments.scale)

    def apply(sigma: np.ndarray) -> np.ndarray:
        TT, TG, GG = split_cov(sigma / outer, moments.shape)
        TGV, GGV = TG @ V, GG @ V
        H = np.einsum("ilkl->ik", GGV)
        # [k, j, a, l] = E[β_k y_j (GV)_al], and the same with g
        beta_y = c * np.einsum("kmal,jm->kjal", GGV, yg)
        beta_y = beta_y - np.einsum("kb,bmal,mj->kjal", B, TGV, yy, optimize=True)
        beta_g = c * np.einsum("kmal,mj->kjal", GGV, gg)
        beta_g = beta_g - np.einsum("kb,bmal,mj->kjal", B, TGV, yg, optimize=True)
        mixed = c * B @ np.einsum("bmkn,mn->bk", TG, yg)
        square = B @ np.einsum("bman,mn->ba", TT, yy) @ B.T - mixed - mixed.T
        square = square + c**2 * np.einsum("imkn,mn->ik", GG, gg)
        cross = np.einsum("ia,kjal->ijkl", kappa, beta_y)
        cross = cross + c * np.einsum("ik,jl->ijkl", kappa @ H, yg)
        from_g = c * beta_g.transpose(0, 3, 2, 1)  # [i, l, k, j]
        granger = (
            np.einsum("ik,lj->ilkj", square + c**2 * seen.weight * H, V)
            + from_g
            + from_g.transpose(2, 3, 0, 1)
            + c**2 * np.einsum("ik,lj->ilkj", H, gg)
            + c**2 * seen.weight * np.einsum("iakl,aj->ilkj", GGV, V)
        )
        theta = np.einsum("ik,jl->ijkl", kappa @ H @ kappa.T, yy)
        return join_cov(theta, -cross, granger) * outer

    return apply


def message_covs(
    params: RowParams,
    windows: RowWindow,
    noise: MessageNoise,
    granger: Float[np.ndarray, "p q"],
    cov: Float[np.ndarray, "n n"],
) -> MessageCovs:
    r"""Σ_h and Var(g_s) with the messages' noise, for parameters of that mean and covariance.

    $$\Sigma_h = \mathrm{Var}(\theta y) + V_a, \qquad
      \mathrm{Var}(g_s) = 4A^\top\big[\mathrm{Var}(r) + A V_\xi A^\top + \hat A V\hat A^\top +
      \textstyle\sum_{jl} V_{jl}\,\mathrm{Cov}(\hat A_{\cdot j}, \hat A_{\cdot l})\big]A + V_{n_g}$$
    """
    A = np.asarray(params.self_transition)
    seen = _second_moments(windows, power=1)
    (p, q), d = granger.shape, seen.yy.shape[0]
    TT, TG, GG = split_cov(cov, (p, d, q))
    state = np.einsum("ijkl,jl->ik", TT, seen.yy)
    between = A @ np.einsum("ijkl,jl->ik", TG, seen.yg)
    residual = A @ state @ A.T + np.einsum("ijkl,jl->ik", GG, seen.gg) - between - between.T
    residual = residual + _residual_noise(A, noise) + granger @ noise.cause_cov @ granger.T
    residual = residual + np.einsum("ijkl,jl->ik", GG, noise.cause_cov)
    return MessageCovs(state + noise.augmented_cov, 4 * A.T @ residual @ A + noise.gradient_cov)


class _Seen(NamedTuple):
    """Second moments of (y, g) over steps, and the sum of the weights they were taken with."""

    yy: Float[np.ndarray, "d d"]
    yg: Float[np.ndarray, "d q"]
    gg: Float[np.ndarray, "q q"]
    weight: float


def _constants(params: RowParams, windows: RowWindow) -> tuple[np.ndarray, float, float, _Seen]:
    """A, η2, γ and moments: every step has noise of its own, so its weight counts squared."""
    _, eta2, gamma = params.step_sizes
    return np.asarray(params.self_transition), eta2, gamma, _second_moments(windows, power=2)


def _second_moments(windows: RowWindow, *, power: int) -> _Seen:
    num_rounds = max(float(np.asarray(windows.is_active).sum()), 1.0)
    w = np.asarray(windows.observed_weights).reshape(-1) ** power / num_rounds
    y, g = (np.asarray(part).reshape(len(w), -1) for part in (windows.measurements, windows.causes))
    noise = np.asarray(windows.noise)
    noise = noise.reshape(len(w), *noise.shape[2:])
    own = np.tensordot(w, noise, 1)
    weighted = w[:, None] * y
    yy = weighted.T @ y + (np.diag(own) if own.ndim == 1 else own)
    return _Seen(yy, weighted.T @ g, (w[:, None] * g).T @ g, float(w.sum()))


def _residual_noise(A: np.ndarray, noise: MessageNoise) -> np.ndarray:
    r"""Covariance of \(A\xi\)."""
    return A @ (noise.filtered_cov + noise.augmented_cov) @ A.T
