r"""A client's exact solve: θ that minimises its own loss and the server's, Â being what it is.

With averages over all data, \(P = E[yy^\top]\) over steps with a successor and \(O = E[yy^\top]\)
over observed steps, the gradient of `augment.step` vanishes after the change Δ with

$$2\eta_1 S\Delta P + 2\eta_2 A^\top\!A\,\Delta O + 2\eta_1\lambda_\theta\Delta
  = 2\eta_1 (E[(CA)^\top\nu\, y^\top] - S\theta P) - 2\eta_1\lambda_\theta\theta
    - \eta_2 E[(\nabla_{h_a} L_s)\, y^\top]$$

\(S = (CA)^\top CA\). The right side is the step-wise learner's own descent direction, so both have
the same fixed point; only the client's data enter the left side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import cg

from fedgranger.linalg.operators import matrix_operator

LARGEST_DENSE = 1024
"""Up to this many parameters the system is factored; above it is solved by conjugate gradients."""


class NewtonClient(NamedTuple):
    """What stays the same from round to round.

    Attributes:
        target: 2η1 E[(CA)ᵀν yᵀ].
        own_curvature: Δ ↦ 2η1 (SΔP + λ_θ Δ).
        solve: inverse of the left side.
        feedback_step_size: η2.
    """

    target: np.ndarray
    own_curvature: Callable[[np.ndarray], np.ndarray]
    solve: Callable[[np.ndarray], np.ndarray]
    feedback_step_size: float


def prepare(
    prediction_gram: np.ndarray,
    transition_gram: np.ndarray,
    paired_moment: np.ndarray,
    observed_moment: np.ndarray,
    target: np.ndarray,
    *,
    local_step_size: float,
    feedback_step_size: float,
    ridge: float,
) -> NewtonClient:
    """Factor the left side.

    Args:
        prediction_gram: S = (CA)ᵀCA.
        transition_gram: AᵀA.
        paired_moment: P.
        observed_moment: O.
        target: E[(CA)ᵀν yᵀ] over steps with a successor.
        local_step_size: η1.
        feedback_step_size: η2.
        ridge: λ_θ.
    """
    eta1, eta2 = local_step_size, feedback_step_size
    S, G, P, O = prediction_gram, transition_gram, paired_moment, observed_moment
    shrink = 2 * eta1 * ridge

    def own(change: np.ndarray) -> np.ndarray:
        return 2 * eta1 * S @ change @ P + shrink * change

    separable = _separable(2 * eta1 * S + 2 * eta2 * G, O, shrink)
    if np.array_equal(P, O):
        solve = separable
    elif S.shape[0] * P.shape[0] <= LARGEST_DENSE:
        full = 2 * eta1 * np.kron(S, P) + 2 * eta2 * np.kron(G, O)
        solve = _dense(full + shrink * np.eye(len(full)))
    else:

        def whole(change: np.ndarray) -> np.ndarray:
            return own(change) + 2 * eta2 * G @ change @ O

        solve = _iterative(whole, separable, (S.shape[0], P.shape[0]))
    return NewtonClient(2 * eta1 * target, own, solve, eta2)


def step(client: NewtonClient, theta: np.ndarray, feedback: np.ndarray) -> np.ndarray:
    """Return the new θ.

    `theta` is where the server computed its gradients, `feedback` the average over observed steps
    of (server's gradient) yᵀ.
    """
    descent = client.target - client.own_curvature(theta) - client.feedback_step_size * feedback
    return theta + client.solve(descent)


def _separable(
    left: np.ndarray, right: np.ndarray, shrink: float
) -> Callable[[np.ndarray], np.ndarray]:
    """Invert Δ ↦ LΔR + sΔ for symmetric L and R; directions that nothing determines stay."""
    left_values, U = np.linalg.eigh(left)
    right_values, V = np.linalg.eigh(right)
    rates = np.maximum(np.outer(left_values, right_values), 0.0) + shrink
    inverse = _inverse(rates)
    return lambda wanted: U @ (inverse * (U.T @ wanted @ V)) @ V.T


def _dense(matrix: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    values, vectors = np.linalg.eigh(matrix)
    inverse = _inverse(values)
    return lambda wanted: (vectors @ (inverse * (vectors.T @ wanted.reshape(-1)))).reshape(
        wanted.shape
    )


def _iterative(
    whole: Callable[[np.ndarray], np.ndarray],
    near: Callable[[np.ndarray], np.ndarray],
    shape: tuple[int, int],
) -> Callable[[np.ndarray], np.ndarray]:
    operator, precondition = matrix_operator(shape, whole), matrix_operator(shape, near)

    def solve(wanted: np.ndarray) -> np.ndarray:
        found, _ = cg(operator, wanted.reshape(-1), rtol=1e-12, maxiter=200, M=precondition)
        return found.reshape(shape)

    return solve


def _inverse(rates: np.ndarray) -> np.ndarray:
    """One over the rates; zero where they vanish against the largest."""
    moving = rates > 1e-13 * max(float(rates.max()), np.finfo(float).tiny)
    return np.where(moving, 1 / np.where(moving, rates, 1.0), 0.0)
