r"""Do what is new in a cause and what is left of an effect move together, in any of several ways?

For cause n and effect m let Z be what may explain the effect: its own past and the other clients'
(present states may act together in any way, each earlier one by itself).
The cause is predicted from all clients' pasts but its own tested lags. With regressions out of fold
(`cross_fitting`)

$$u_t = s_m(t{+}1) - \hat f(Z_t), \qquad v_t = s_n(t) - \hat g(\text{others}, s_n(t{-}1)).$$

Where n does not drive m, \(E[u_t\, \varphi_t] = 0\) for every φ that Z predicts to be zero, and
errors of \(\hat f\) and \(\hat g\) enter only as their product (generalised covariance measure,
Shah and Peters 2020; weighted by functions of Z, Scheidegger, Hörrmann and Bühlmann 2022):

- `linear`: \(\varphi = v\);
- `quadratic`: \(\varphi_{ij} = s_i s_j - \hat s_i \hat s_j - \hat E[v_i v_j \mid Z]
  = \hat s_i v_j + v_i \hat s_j + (v_i v_j - \hat E[v_i v_j \mid Z])\), with \(\hat s = s - v\);
- `interaction`: products of v with the effect's own present states;
- `joint`: products of the cause's states with third clients' (`joint_products`).

For k products over N steps, \(\psi_t = u_t \otimes \varphi_t\),

$$W = N \bar\psi^\top \widehat{\mathrm{Cov}}(\psi)^{-1} \bar\psi, \qquad
  \frac{N - k}{k (N - 1)}\, W \sim F(k, N - k)$$

(Hotelling). g and v do not depend on the effect, so they serve all of a cause's pairs. The law
that counts is that of copies in which the cause's clock is shifted and g is made anew
(`nonlinear_test`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from fedgranger.inference.cross_fitting import Design, Regression
from fedgranger.linalg.psd import inverse_form

KINDS = ("linear", "quadratic", "interaction", "joint")
WEIGHTS = np.array([0.8, 1 / 15, 1 / 15, 1 / 15])
"""Of the kinds where they are combined: what the others get is taken from the power for weak linear
influences (docs/nonlinear-test.md)."""
DEPENDENT = 1e-10
"""Products whose correlation matrix has a smaller condition are dependent."""
SMALLEST_P, LARGEST_P = 1e-15, 1 - 1e-6


class Problem(NamedTuple):
    """What is predicted, and from what; one row per usable time step."""

    design: Design
    targets: Float[np.ndarray, "row column"]


class EffectPart(NamedTuple):
    """u, and the effect's own present states, bounded."""

    time: Int[np.ndarray, " row"]
    left: Float[np.ndarray, "row effect_state"]
    own: Float[np.ndarray, "row effect_state"]


class CausePart(NamedTuple):
    """v, and φ of the quadratic kind."""

    time: Int[np.ndarray, " row"]
    left: Float[np.ndarray, "row cause_state"]
    quadratic: Float[np.ndarray, "row _"]


class JointPart(NamedTuple):
    """u and φ⊥ of the joint kind (`joint_products`).

    Attributes:
        left: u.
        shape: φ⊥.
        third: whose states a column of φ has beside the cause's.
        num_explaining: columns that both are freed from, within the same rows.
    """

    left: Float[np.ndarray, "row effect_state"]
    shape: Float[np.ndarray, "row column"]
    third: Int[np.ndarray, " column"]
    num_explaining: int


class PairResiduals(NamedTuple):
    """u, and φ of the kinds in the order of `KINDS`, where both are known; the joint kind has both.

    `joint` is None where it is not tested.
    """

    effect: Float[np.ndarray, "row effect_state"]
    shapes: tuple[Float[np.ndarray, "row _"], ...]
    joint: JointPart | None = None


class PairProducts(NamedTuple):
    """Statistics of a pair, arrays by kind.

    Attributes:
        statistic: W/k.
        df: k.
        rest: N − k.
        copies: W/k of the copies, (copy, kind); there may be none.
        explained: the share of u that all φ explain together, adjusted for their number.
        counts: numbers of φ times states, and of rows times states.
    """

    statistic: Float[np.ndarray, " kind"]
    df: Float[np.ndarray, " kind"]
    rest: Float[np.ndarray, " kind"]
    copies: Float[np.ndarray, "copy kind"]
    explained: float
    counts: tuple[int, int]


def cause_part(problem: Problem, regression: Regression, seed: int) -> CausePart:
    """V and its squares of one cause."""
    residuals = regression(problem.design, seed)
    v = residuals(problem.targets)
    predicted = problem.targets - v
    i, j = np.triu_indices(v.shape[1])
    square = residuals(v[:, i] * v[:, j])
    quadratic = predicted[:, i] * v[:, j] + v[:, i] * predicted[:, j] + square
    return CausePart(problem.design.time, v, quadratic)


def pair_residuals(
    effect: EffectPart, cause: CausePart, joint: JointPart | None = None
) -> PairResiduals:
    """U and φ of one pair, at the steps at which both are known."""
    _, a, b = np.intersect1d(effect.time, cause.time, assume_unique=True, return_indices=True)
    v = cause.left[b]
    own = effect.own[a]
    interaction = (v[:, :, None] * own[:, None, :]).reshape(len(v), v.shape[1] * own.shape[1])
    return PairResiduals(effect.left[a], (v, cause.quadratic[b], interaction), joint)


def kind_statistics(pair: PairResiduals) -> Float[np.ndarray, "kind _"]:
    """W/k, k and N − k of every kind; NaN where it is not tested."""
    made = [product_statistic(pair.effect, phi) for phi in pair.shapes]
    joint = pair.joint
    last = (np.nan, 0, 0)
    if joint is not None:
        last = product_statistic(joint.left, joint.shape, joint.num_explaining)
    return np.array([*made, last])


def product_statistic(
    u: Float[np.ndarray, "row effect_state"],
    phi: Float[np.ndarray, "row column"],
    num_explaining: int = 0,
) -> tuple[float, int, int]:
    """W/k of mean(u ⊗ φ), k and N − k; NaN where there are few rows or the products depend.

    What least squares on K columns of the same rows left is no more than N − K rows.
    """
    N, k = len(u), u.shape[1] * phi.shape[1]
    psi = (u[:, :, None] * phi[:, None, :]).reshape(N, k)
    rest = N - k - num_explaining
    if rest < 2 or k == 0:
        return np.nan, k, rest
    mean = psi.mean(axis=0)
    cov = psi.T @ psi / N - np.outer(mean, mean)
    W = (N - 1) * inverse_form(mean, cov, DEPENDENT)
    return W * rest / (k * (N - 1)), k, rest


def explained_share(pair: PairResiduals) -> tuple[float, tuple[int, int]]:
    """Share of u, scaled to unit covariance, that least squares on all φ explain, adjusted.

    And the numbers of φ times states, and of rows times states. The joint kind's share is of what
    the cause leaves otherwise.
    """
    share, k = _explained(pair.effect, np.concatenate(pair.shapes, axis=1))
    if pair.joint is not None:
        further, joint = _explained(pair.joint.left, pair.joint.shape)
        share, k = share + (1 - share) * max(further, 0.0), k + joint
    N, p = pair.effect.shape
    return share, (k * p, N * p)


def _explained(
    u: Float[np.ndarray, "row effect_state"], X: Float[np.ndarray, "row column"]
) -> tuple[float, int]:
    X = X[:, X.std(axis=0) > 0]
    fitted = X @ np.linalg.lstsq(X, u, rcond=None)[0]
    share = float(np.trace(np.linalg.pinv(u.T @ u) @ (fitted.T @ u))) / u.shape[1]
    N, k = X.shape
    return 1 - (1 - share) * (N - 1) / max(N - k - 1, 1), k


def combine(p_values: Float[np.ndarray, "kind ..."]) -> Float[np.ndarray, ...]:
    """Weighted Cauchy combination over the kinds (Liu and Xie 2020).

    Kinds without a p-value do not count.
    """
    known = np.isfinite(p_values)
    weights = np.where(known, WEIGHTS.reshape(-1, *[1] * (p_values.ndim - 1)), 0.0)
    total = weights.sum(axis=0)
    p = np.clip(np.where(known, p_values, 0.5), SMALLEST_P, LARGEST_P)
    t = (weights * np.tan((0.5 - p) * np.pi)).sum(axis=0) / np.maximum(total, SMALLEST_P)
    return np.where(total > 0, stats.cauchy.sf(t), np.nan)
