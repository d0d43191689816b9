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

import numpy as np
from scipy.sparse.linalg import cg

from fedgranger.linalg.operators import matrix_operator

LARGEST_DENSE = 1024
"""Up to this many parameters the system is factored; above it is solved by conjugate gradients."""


Map = Callable[[np.ndarray], np.ndarray]
"""A linear map of matrices of the shape of θ."""


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
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Factor the left side, which stays the same from round to round.

    Args:
        prediction_gram: S = (CA)ᵀCA.
        transition_gram: AᵀA.
        paired_moment: P.
        observed_moment: O.
        target: E[(CA)ᵀν yᵀ] over steps with a successor.
        local_step_size: η1.
        feedback_step_size: η2.
        ridge: λ_θ.

    Returns:
        The new θ as a function of θ at which the server computed its gradients, and of the
        average over observed steps of (server's gradient) yᵀ.
    """
    eta1, eta2 = local_step_size, feedback_step_size
    S, G, P, O = prediction_gram, transition_gram, paired_moment, observed_moment
    wanted, shrink = 2 * eta1 * target, 2 * eta1 * ridge

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
    return lambda theta, feedback: theta + solve(wanted - own(theta) - eta2 * feedback)


def _separable(left: np.ndarray, right: np.ndarray, shrink: float) -> Map:
    """Invert Δ ↦ LΔR + sΔ for symmetric L and R; directions that nothing determines stay."""
    left_values, U = np.linalg.eigh(left)
    right_values, V = np.linalg.eigh(right)
    rates = np.maximum(np.outer(left_values, right_values), 0.0) + shrink
    inverse = _inverse(rates)
    return lambda wanted: U @ (inverse * (U.T @ wanted @ V)) @ V.T


def _dense(matrix: np.ndarray) -> Map:
    values, vectors = np.linalg.eigh(matrix)
    inverse = _inverse(values)
    return lambda wanted: (vectors @ (inverse * (vectors.T @ wanted.reshape(-1)))).reshape(
        wanted.shape
    )


def _iterative(whole: Map, near: Map, shape: tuple[int, int]) -> Map:
    operator, precondition = matrix_operator(shape, whole), matrix_operator(shape, near)

    def solve(wanted: np.ndarray) -> np.ndarray:
        found, _ = cg(operator, wanted.reshape(-1), rtol=1e-12, maxiter=200, M=precondition)
        return found.reshape(shape)

    return solve


def _inverse(rates: np.ndarray) -> np.ndarray:
    """One over the rates; zero where they vanish against the largest."""
    moving = rates > 1e-13 * max(float(rates.max()), np.finfo(float).tiny)
    return np.where(moving, 1 / np.where(moving, rates, 1.0), 0.0)
