r"""Stable step sizes of one client, from its own data only.

The update of row m is \(x^+ = (I - K)x + b\) with \(K\) similar to a positive semidefinite matrix
(docs/theory/learner.md), so the mean square contracts while \(E[K^2] \prec 2 E[K]\). The client's
block of K is \(\hat Y \otimes N_{11}\), \(N_{11} = 2\eta_1 (CA)^\top CA + 2\eta_2 A^\top A\); the
server's is \(2\gamma\,\hat G \otimes I\). Each side keeps its own largest gain at `step_safety`
(below 1): the two gains add up at most, so the mean contracts for certain, and the mean square
does unless measurements and states have their outliers together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.client.params import LocalModel
from fedgranger.errors import UnstableRecursionError


class ClientStepSizes(NamedTuple):
    """η1, η2 and the gain they use: unstable for certain at 2, safe below 1."""

    local: float
    feedback: float
    gain: float


def choose_step_sizes(
    model: LocalModel,
    gain: float,
    *,
    local: float | str,
    feedback: float | str,
    safety: float,
    client: str,
) -> ClientStepSizes:
    """Fill in the step sizes that are `"auto"`; equal to each other when both are.

    Args:
        model: the client's local model.
        gain: κ of its scaled measurements (`linalg.spectral.window_moments`).
        local: η1 or `"auto"`.
        feedback: η2 or `"auto"`.
        safety: share of the budget to use.
        client: its name, for the message.

    Raises:
        UnstableRecursionError: the given step size alone already uses up the budget.
    """
    CA, A = model.predicted_observation, model.self_transition
    S, S_feedback = CA.T @ CA, A.T @ A
    if gain == 0.0 or not S.any():
        sizes = [0.0 if size == "auto" else float(size) for size in (local, feedback)]
        return ClientStepSizes(sizes[0], sizes[1], 0.0)
    if local == "auto" and feedback == "auto":
        local = feedback = safety / (2 * gain * _largest(S + S_feedback))
    elif feedback == "auto":
        feedback = local
    elif local == "auto":
        used = 2 * gain * float(feedback) * _largest(S_feedback)
        if used >= safety:
            raise UnstableRecursionError(
                f"client '{client}': feedback_step_size {feedback} leaves no room for an automatic "
                f"local step size; use at most {safety / (2 * gain * _largest(S_feedback)):.3g}"
            )
        local = (safety - used) / (2 * gain * _largest(S))
    eta1, eta2 = float(local), float(feedback)
    return ClientStepSizes(eta1, eta2, 2 * gain * _largest(eta1 * S + eta2 * S_feedback))


def _largest(matrix: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(matrix)[-1])
