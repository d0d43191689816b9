r"""How well can entries be told from zero one by one, at best?

With the states themselves instead of noisy sensors, least squares has the smallest standard errors
that an unbiased estimate of an entry can have (Cramér-Rao, Gaussian noise):

$$\mathrm{se}_{ij}^2 = \frac{Q_{ii}\,(\Gamma^{-1})_{jj}}{T - 1},\qquad
  \Gamma = A\Gamma A^\top + Q,$$

so an ideal test of the entry has \(z \sim N(a_{ij}/\mathrm{se}_{ij},\,1)\). Its scores are a
ceiling for every test that looks at entries one by one. An entry counts as true when its clients
have an edge, however small it is in the coordinates of the states: that is what lowers the ceiling.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.stats
from jaxtyping import Bool, Float

from fedgranger.evaluation.metrics import score
from fedgranger.inference.decision import adjust
from fedgranger_research.baselines.method_protocol import BaselineError
from fedgranger_research.baselines.problems import Problem
from fedgranger_research.baselines.true_dynamics import Dynamics

ALPHA = 0.05


class Ceiling(NamedTuple):
    """Scores over the entries across clients.

    Attributes:
        f1: of decisions by Benjamini and Hochberg at 5 %.
        auc_roc: area under the curve.
        best_f1: F1 at the threshold that is best given the truth.
        below_two: true entries whose size is below two standard errors.
    """

    f1: float
    auc_roc: float
    best_f1: float
    below_two: float


def ideal_errors(
    problem: Problem, *, parents_known: bool = False
) -> Float[np.ndarray, "effect cause"]:
    """Smallest standard errors of the entries.

    Args:
        problem: simulated, with linear dynamics.
        parents_known: the regression has the true causes only, as if somebody had told it which
            these are; infinite for the others.

    Raises:
        BaselineError: the dynamics are not known.
    """
    A, Q = _dynamics(problem)
    gamma = np.asarray(scipy.linalg.solve_discrete_lyapunov(A, Q))
    used = problem.is_true if parents_known else np.ones_like(problem.is_true)
    steps = int((~problem.columns.starts).sum())
    errors = np.full(A.shape, np.inf)
    for i, causes in enumerate(used):
        where = np.flatnonzero(causes)
        inverse = np.linalg.inv(gamma[np.ix_(where, where)])
        errors[i, where] = np.sqrt(Q[i, i] * np.diag(inverse) / steps)
    return errors


def best_f1(is_true: Bool[np.ndarray, " entry"], strength: Float[np.ndarray, " entry"]) -> float:
    """F1 at the best threshold, chosen with the truth at hand."""
    hits = np.cumsum(is_true[np.argsort(-strength)])
    return float((2 * hits / (np.arange(1, len(hits) + 1) + is_true.sum())).max())


def ceiling(
    problem: Problem, rng: np.random.Generator, *, parents_known: bool = False, draws: int = 50
) -> Ceiling:
    """Mean scores of the ideal test over so many draws of its errors."""
    across = problem.owner[:, None] != problem.owner
    is_true = problem.is_true[across]
    z = _dynamics(problem).transition / ideal_errors(problem, parents_known=parents_known)
    centre = np.where(is_true, z[across], 0.0)
    rows = []
    for _ in range(draws):
        drawn = np.abs(centre + rng.standard_normal(len(centre)))
        found = adjust(2 * np.asarray(scipy.stats.norm.sf(drawn)), "bh") <= ALPHA
        scores = score(is_true, drawn, found)
        rows.append([scores["f1"], scores["auc_roc"], best_f1(is_true, drawn)])
    f1, area, best = np.mean(rows, axis=0)
    below = float((np.abs(centre[is_true]) < 2).sum())
    return Ceiling(float(f1), float(area), float(best), below)


def _dynamics(problem: Problem) -> Dynamics:
    if problem.dynamics is None:
        raise BaselineError("the dynamics of these data are not known; use simulated ones")
    return problem.dynamics
