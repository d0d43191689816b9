r"""The server's exact solve of one row, and its acceleration.

Given the clients' augmented states the best row is
\(\Phi = E[A(h_a - h_c) g^\top]\,(E[gg^\top] + \lambda_A)^{-1}\). Sending gradients at a row \(x\),
receiving θ that is exact for it and solving again is an affine map \(x \mapsto \Phi(x)\), and its
fixed point is FedGC's. It is block coordinate descent on one convex function,

$$J(\theta, \hat A) = \eta_1 (E\|u\|^2 + \lambda_\theta\|\theta\|^2)
  + \eta_2 (E\|r\|^2 + \lambda_A\|\hat A\|^2),$$

so the plain alternation always converges. Anderson's extrapolation over the last rows needs far
fewer rounds; it is given up for a round whenever the distance \(\|\Phi(x) - x\|\) grows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

MEMORY = 12
"""Earlier rows that the extrapolation uses."""
GROWTH = 2.0
"""A distance that grows by more than this gives up the extrapolation."""


class NewtonRow(NamedTuple):
    """What stays the same from round to round.

    Attributes:
        causes: (time, q) states the row listens to, weighted by their share; 0 unobserved.
        factor: Cholesky factor of E[ggᵀ] + λ_A.
    """

    causes: np.ndarray
    factor: tuple[np.ndarray, bool]


class RowHistory(NamedTuple):
    """The last rows x and what solving made of them, newest last, (entry, p, q)."""

    rows: np.ndarray
    solved: np.ndarray


def prepare(
    states: np.ndarray, is_observed: np.ndarray, columns: np.ndarray, ridge: float
) -> NewtonRow:
    """Factor a row's moments: all clients' filtered states (time, P), its own client's flags."""
    share = is_observed / max(float(is_observed.sum()), 1.0)
    g = states[:, columns]
    moment = (share[:, None] * g).T @ g + ridge * np.eye(len(columns))
    if ridge == 0.0:  # directions that the causes do not have stay at zero
        moment += 1e-14 * np.trace(moment) * np.eye(len(columns))
    return NewtonRow(share[:, None] * g, scipy.linalg.cho_factor(moment))


def solve(row: NewtonRow, correction: np.ndarray) -> np.ndarray:
    """Return Φ, (p, q), from A(h_a − h_c), (time, p)."""
    between = correction.T @ row.causes
    return scipy.linalg.cho_solve(row.factor, between.T).T


def empty_history(state_dim: int, num_causes: int) -> RowHistory:
    """Before the first round."""
    nothing = np.zeros((0, state_dim, num_causes))
    return RowHistory(nothing, nothing)


def accelerate(
    history: RowHistory, row: np.ndarray, solved: np.ndarray
) -> tuple[RowHistory, np.ndarray, float]:
    """Return the new history, the next row, and ‖Φ(x) − x‖ relative to ‖Φ(x)‖.

    The clients have answered the gradients of `row`, x; `solved` is Φ(x).
    """
    distance = float(np.linalg.norm(solved - row))
    size = float(np.linalg.norm(solved))
    relative = distance / size if size > 0 else distance
    known = np.linalg.norm(history.solved - history.rows, axis=(1, 2))
    if len(known) and distance > GROWTH * known.min():
        history = empty_history(*row.shape)  # not the affine map it was: begin again
    rows = np.concatenate([history.rows, row[None]])[-MEMORY:]
    images = np.concatenate([history.solved, solved[None]])[-MEMORY:]
    history = RowHistory(rows, images)
    if len(rows) < 2:
        return history, solved, relative
    residuals = (images - rows).reshape(len(rows), -1)
    steps = np.diff(residuals, axis=0).T
    scale = np.linalg.norm(steps, axis=0)
    if not (scale > 0).all():
        return history, solved, relative
    weights = np.linalg.lstsq(steps / scale, residuals[-1], rcond=1e-12)[0] / scale
    moved = np.diff(images, axis=0).reshape(len(rows) - 1, -1)
    following = solved.reshape(-1) - weights @ moved
    return history, following.reshape(solved.shape), relative
