"""Dead time and controllers: how the states of a simulated system advance.

    h⁺ = A_own z + A_cross z[dead_time steps ago] + w,    z = h + feedback · e,    y = C h + v

with A_own the clients' own blocks and e = (CᵀR⁻¹C)⁻¹CᵀR⁻¹v the error of the states that a
controller reads off the sensors. With feedback 0 nothing acts on readings; with 1 everything
does, own blocks and edges, and sensor noise is part of the dynamics.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg

from fedgranger.data.truth import Truth
from fedgranger.errors import ConfigError
from fedgranger.linalg.spectral import spectral_radius

BISECTIONS = 60


def advance_matrix(truth: Truth) -> np.ndarray:
    """Matrix that advances [z_t; z_{t-1}; …; z_{t-dead_time}]; A itself without dead time."""
    A, delay = truth.transition, truth.dead_time
    if not delay:
        return A
    P = len(A)
    own = np.zeros_like(A)
    for name in truth.clients:
        rows = truth.rows(name)
        own[rows, rows] = A[rows, rows]
    out = np.zeros((P * (delay + 1), P * (delay + 1)))
    out[:P, :P] = own
    out[:P, -P:] = A - own
    out[P:, :-P] = np.eye(P * delay)
    return out


def with_dead_time(truth: Truth, dead_time: int, target: float) -> Truth:
    """The same system with later edges, shrunk where it would exceed the spectral radius."""
    delayed = replace(truth, dead_time=dead_time)
    if not dead_time or spectral_radius(advance_matrix(delayed)) <= target:
        return delayed
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        tried = replace(delayed, transition=middle * truth.transition)
        if spectral_radius(advance_matrix(tried)) <= target:
            low = middle
        else:
            high = middle
    return replace(delayed, transition=low * truth.transition)


def reading_errors(truth: Truth) -> np.ndarray:
    """Matrix that maps v to feedback · e, (P, sensors)."""
    blocks = []
    for name in truth.clients:
        noise_sd = np.sqrt(np.diag(truth.measurement_covs[name]))
        weighted = truth.observation_matrices[name] / noise_sd[:, None]
        blocks.append(np.linalg.pinv(weighted) / noise_sd)
    return truth.reading_feedback * np.asarray(scipy.linalg.block_diag(*blocks))


def state_std(truth: Truth, measurement_cov: np.ndarray) -> np.ndarray:
    """Standard deviation of every state; `measurement_cov` is that of all sensors."""
    P, A = len(truth.transition), advance_matrix(truth)
    F = reading_errors(truth)
    read_cov = F @ measurement_cov @ F.T
    noise_cov = np.zeros_like(A)
    noise_cov[:P, :P] = known_process_cov(truth) + read_cov
    cov = scipy.linalg.solve_discrete_lyapunov(A, noise_cov)
    return np.sqrt(np.diag(cov)[:P] - np.diag(read_cov))


def known_process_cov(truth: Truth) -> np.ndarray:
    """Q, or one sentence when the truth has none."""
    if truth.process_cov is None:
        raise ConfigError(
            "this truth was read from truth.json, which has no noise covariances; "
            "pass the one that simulate() returned"
        )
    return truth.process_cov
