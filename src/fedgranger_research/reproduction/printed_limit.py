r"""The paper's steady state as printed (Section 7), and why it is not used.

Proposition 7.1 has the gains at constant data: \(D_n = (I - 2\gamma hh^\top) \otimes I\) and
\(H_m = I - \mu\mu^\top \otimes N_{11}\). They change the identity by rank one, so both keep the
eigenvalue 1 as soon as a state (a sensor) is two-dimensional, and \(\rho < 1\), which Theorems 7.4
and 7.5 assume, never holds. Where it does hold (one state, one sensor), the fixed-point equations
are homogeneous in \((\Sigma_\theta, \Sigma_A)\): the noise of the data was set to zero, so the only
solution is 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.uncertainty.inputs import RowParams


class PrintedGains(NamedTuple):
    """D_n and H_m of Proposition 7.1 and their spectral radii (column-major vec, as printed)."""

    server: np.ndarray
    client: np.ndarray
    server_radius: float
    client_radius: float


def printed_gains(params: RowParams, measurement: np.ndarray, cause: np.ndarray) -> PrintedGains:
    """Form them for a constant measurement μ_y and a constant state h_n (small sizes only)."""
    A, CA = np.asarray(params.self_transition), np.asarray(params.predicted_observation)
    eta1, eta2 = float(params.local_step_size), float(params.feedback_step_size)
    gamma, p = float(params.server_step_size), A.shape[0]
    N11 = 2 * eta1 * CA.T @ CA + 2 * eta2 * A.T @ A
    D = np.kron(np.eye(len(cause)) - 2 * gamma * np.outer(cause, cause), np.eye(p))
    H = np.eye(p * len(measurement)) - np.kron(np.outer(measurement, measurement), N11)

    def radius(matrix: np.ndarray) -> float:
        return float(np.max(np.abs(np.linalg.eigvalsh(0.5 * (matrix + matrix.T)))))

    return PrintedGains(D, H, radius(D), radius(H))


def printed_limit(gains: PrintedGains, augmentation_cov: np.ndarray, num_steps: int) -> np.ndarray:
    """Iterate Σ_θ ← H Σ_θ Hᵀ, the leading part of the printed recursion.

    Without an additive noise term it falls to zero along the directions that contract and stays
    at the prior along all others.
    """
    sigma = augmentation_cov
    for _ in range(num_steps):
        sigma = gains.client @ sigma @ gains.client.T
    return sigma
