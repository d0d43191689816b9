r"""The shape of an influence: how the effect changes with the cause's state, with a band.

Where the effect's next state is \(f(Z) + a s + b (s^2 - 1)\) in a state s of the cause of unit
variance, least squares of u on the parts of `residual_products` estimate a and b. The curve

$$c(x) = a x + b (x^2 - 1), \qquad |x| \le 2,$$

is in standard deviations of both states. Its band holds for all x at once (Scheffé): with V the
sandwich covariance of (a, b) and \(g = (x, x^2 - 1)\), it is
\(c(x) \pm \sqrt{\chi^2_{2, .95}\, g V g^\top}\).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from fedgranger.inference.residual_products import PairResiduals
from fedgranger.tested_facts import CurveFacts

GRID = np.linspace(-2.0, 2.0, 21)


class EffectCurve(NamedTuple):
    """One curve.

    Attributes:
        cause_state: of the cause, from 0; the one that explains most.
        effect_state: of the effect, likewise.
        at: x.
        value: c(x).
        low: lower end of the band.
        high: upper end.
    """

    cause_state: int
    effect_state: int
    at: Float[np.ndarray, " _"]
    value: Float[np.ndarray, " _"]
    low: Float[np.ndarray, " _"]
    high: Float[np.ndarray, " _"]

    def facts(self) -> CurveFacts:
        """Plain values for the manifest."""
        at, value, low, high = (part.round(6).tolist() for part in self[2:])
        states = {"cause_state": self.cause_state, "effect_state": self.effect_state}
        return CurveFacts(**states, at=at, value=value, low=low, high=high)


def effect_curve(pair: PairResiduals, num_states: int, confidence: float) -> EffectCurve:
    """The curve of the pair of states that explains most; of the first tested lag."""
    linear, quadratic = pair.shapes[0], pair.shapes[1]
    width = linear.shape[1]
    i, j = np.triu_indices(width)
    squares = [int(np.flatnonzero((i == s) & (j == s))[0]) for s in range(num_states)]
    X = np.concatenate([linear, quadratic], axis=1)
    inverse = np.linalg.pinv(X.T @ X)
    B = inverse @ (X.T @ pair.effect)
    best, chosen = -1.0, (0, 0)
    for s in range(num_states):
        part = X[:, [s, width + squares[s]]] @ B[[s, width + squares[s]]]
        for e in range(pair.effect.shape[1]):
            explained = float((part[:, e] ** 2).sum() / (pair.effect[:, e] ** 2).sum())
            if explained > best:
                best, chosen = explained, (s, e)
    s, e = chosen
    columns = [s, width + squares[s]]
    scores = (X @ inverse[:, columns]) * (pair.effect[:, [e]] - X @ B[:, [e]])
    V, b = scores.T @ scores, B[columns, e]
    basis = np.stack([GRID, GRID**2 - 1], axis=1)
    half = np.sqrt(stats.chi2.ppf(confidence, 2) * np.einsum("xi,ij,xj->x", basis, V, basis))
    value = basis @ b
    return EffectCurve(s, e, GRID, value, value - half, value + half)
