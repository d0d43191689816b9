r"""Calibrated p-values: a statistic against what it does on copies where no link is true.

B copies with shifted clocks give for every pair the law of its statistic under no link. a·F(k, d2),
averaged over all a and d2 by how likely they make the copies, gives the chance of a larger
statistic, given what B copies can say of its law. It reaches below 1/(B + 1); there the tail is
extrapolated, and no p-value is smaller than the test's own formula gives: copies of bursty records
often have smaller statistics than the formula's law, which says nothing of those beyond them.

A few dozen copies hardly tell a heavy tail from a light one. With all d2 equally likely for every
pair, p-values are too large where tails are light and too small where they are heavy. How likely
each d2 is beforehand is therefore learned from all pairs together (empirical Bayes), with L_ij the
likelihood of pair i's copies under the j-th d2, averaged over a, N pairs and J values of d2:

$$\pi_j = \frac{1}{N + s}
  \Big( \sum_i \frac{\pi_j L_{ij}}{\sum_l \pi_l L_{il}} + \frac{s}{J} \Big)$$

as if s further pairs had been seen for which all are equally likely.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.optimize.elementwise import find_root

TAILS = np.array([3, 4, 5, 6, 8, 10, 13, 17, 23, 32, 50, 100, 1e3, 1e6])
"""What d2 may be."""
EVEN_PAIRS = 3.0
"""s. Between 1 and 10 it hardly matters: sizes at 5 % on statistics of a known law, 20 copies and
36 pairs, are .049-.054 with d2 = 4 (.066 without pooling) and .041-.046 with light tails (.032);
`python -m benchmarks.choices tails`."""
POOLING_STEPS = 5000
SMALL_CHANGE = 1e-9
SCALES = np.linspace(-3.5, 3.5, 25)
"""What a may be, in standard errors of its logarithm."""
LEAST, MOST = np.exp([-12.0, 24.0])
"""Critical values of W/k are looked for between them."""
NEWTON_STEPS = 12
EXTRAPOLATION = 3
"""Calibrated p-values end at (B + 1)^-3: nothing supports smaller ones."""


class Calibrated(NamedTuple):
    """P-values against the law of the copies, arrays (effect, cause).

    Attributes:
        p_value: NaN where there is no statistic or fewer than half of the copies have one.
        is_extrapolated: the statistic lies beyond all copies.
        law: what the copies say of it.
    """

    p_value: np.ndarray
    is_extrapolated: np.ndarray
    law: Law


def extrapolated_pairs(names: tuple[str, ...], is_extrapolated: np.ndarray) -> list[str]:
    """Pairs whose statistic lies beyond every copy, as "cause -> effect"."""
    pairs = zip(*np.nonzero(is_extrapolated), strict=True)
    return [f"{names[n]} -> {names[m]}" for m, n in pairs]


class Formula(NamedTuple):
    """A test's own law of W/k where no link is true: a·F(k, d2), arrays (effect, cause)."""

    scale: np.ndarray
    df_denominator: np.ndarray


class Law(NamedTuple):
    """Mixture of a·F(k, d2) over what a and d2 may be, arrays (effect, cause, d2, a).

    Attributes:
        df: k, (effect, cause, 1, 1).
        scale: a.
        weight: adds up to one for every pair.
        support: (effect, cause), 1/(B + 1), the smallest chance that the copies show.
        formula: below `support` no chance is smaller than by this law.
    """

    df: np.ndarray
    scale: np.ndarray
    weight: np.ndarray
    support: np.ndarray
    formula: Formula | None = None

    def tail(self, statistic: np.ndarray) -> np.ndarray:
        """Chance of a larger W/k where no link is true."""
        at = np.maximum(statistic, 0.0)[..., None, None] / self.scale
        chance = (self.weight * special.fdtrc(self.df, TAILS[:, None], at)).sum(axis=(-2, -1))
        if self.formula is None:
            return chance
        a, d = self.formula
        known = np.isfinite(a) & (a > 0) & (d >= 1)
        at = np.maximum(statistic, 0.0) / np.where(known, a, 1.0)
        by_formula = special.fdtrc(self.df[..., 0, 0], np.where(known, d, 1.0), at)
        return np.maximum(chance, np.minimum(by_formula, self.support))

    def critical(self, level: float) -> np.ndarray:
        """The W/k with that chance, found in its logarithm; never beyond `LEAST` and `MOST`."""

        def excess(log_ratio: np.ndarray, m: np.ndarray, n: np.ndarray) -> np.ndarray:
            return self._of_pairs(m, n).tail(np.exp(log_ratio)) - level

        shape = self.df.shape[:2]
        ends, pairs = tuple(np.log([LEAST, MOST])), tuple(np.indices(shape))
        found = find_root(excess, ends, args=pairs, tolerances={"xatol": 1e-13})
        inside = np.where(found.success, np.exp(found.x), np.nan)
        is_below = self.tail(np.full(shape, LEAST)) <= level
        is_above = self.tail(np.full(shape, MOST)) > level
        return np.select([is_below, is_above], [LEAST, MOST], inside)

    def _of_pairs(self, m: np.ndarray, n: np.ndarray) -> Law:
        """The laws of some pairs, whose arrays have one axis for all of them."""
        formula = self.formula
        if formula is not None:
            formula = Formula(formula.scale[m, n], formula.df_denominator[m, n])
        df, scale, weight, support, _ = self
        return Law(df[m, n], scale[m, n], weight[m, n], support[m, n], formula)


def calibrate(
    statistic: np.ndarray,
    df: np.ndarray,
    copies: np.ndarray,
    formula: Formula | None = None,
    *,
    is_pooled: bool = True,
) -> Calibrated:
    """Compare statistics W/k, (effect, cause), with those of shifted copies at the same k.

    Nothing beyond the copies is bolder than the test's own `formula`; pooled, how heavy tails are
    is learned from all pairs together.
    """
    known = np.isfinite(copies) & (copies > 0)
    count = known.sum(axis=0)
    enough = (count >= max(len(copies) / 2, 10)) & np.isfinite(statistic)
    real = known & enough  # the other pairs get a law too, which nobody looks at
    law = _fit(np.where(real, copies, 1.0), real | ~enough, np.where(enough, df, 1.0))
    if is_pooled and enough.any():
        law = _pool(law, enough)
    law = law._replace(formula=formula)
    p = law.tail(np.where(enough, statistic, 1.0))
    p = np.maximum(p, 1.0 / (count + 1.0) ** EXTRAPOLATION)
    largest = np.where(known, copies, -np.inf).max(axis=0)
    beyond = enough & (np.where(enough, statistic, 0.0) > largest)
    return Calibrated(np.where(enough, p, np.nan), beyond, law)


def _pool(law: Law, known: np.ndarray) -> Law:
    """Weigh every d2 by how likely all pairs together make it; see the module's equation."""
    likelihood = law.weight.sum(axis=-1)[known]  # the weights so far are for even odds
    N, J = likelihood.shape
    odds = np.full(J, 1 / J)
    for _ in range(POOLING_STEPS):
        shares = likelihood * odds
        shares /= shares.sum(axis=1, keepdims=True)
        before, odds = odds, (shares.sum(axis=0) + EVEN_PAIRS / J) / (N + EVEN_PAIRS)
        if np.abs(odds - before).max() < SMALL_CHANGE:
            break
    weight = law.weight * odds[:, None]
    return law._replace(weight=weight / weight.sum(axis=(-2, -1), keepdims=True))


def _fit(copies: np.ndarray, known: np.ndarray, df: np.ndarray) -> Law:
    """Weights of every (d2, a) by their likelihood: for each d2, a around its own best value."""
    x, use = np.moveaxis(copies, 0, -1)[:, :, None, :], np.moveaxis(known, 0, -1)[:, :, None, :]
    n = np.maximum(use.sum(axis=-1), 1)
    k, d = df[:, :, None], TAILS
    centre = special.psi(k / 2) - np.log(k / 2) - special.psi(d / 2) + np.log(d / 2)
    log_a = (np.log(x) * use).sum(axis=-1) / n - centre
    information = np.ones_like(log_a)
    for _ in range(NEWTON_STEPS):
        u = (k / d)[..., None] * x / np.exp(log_a)[..., None]
        share = u / (1 + u)
        slope = (k + d) / 2 * (share * use).sum(axis=-1) / n - k / 2
        information = (k + d) / 2 * (share * (1 - share) * use).sum(axis=-1) / n
        log_a = log_a + np.clip(slope / np.maximum(information, 1e-6), -1.0, 1.0)
    error = 1 / np.sqrt(n * np.maximum(information, 1e-6))
    log_a = log_a[..., None] + error[..., None] * SCALES
    constant = special.gammaln((k + d) / 2) - special.gammaln(k / 2) - special.gammaln(d / 2)
    constant = constant + k / 2 * np.log(k / d)
    likelihood = n[..., None] * (constant[..., None] - k[..., None] / 2 * log_a)
    for place in range(len(SCALES)):  # one at a time: memory stays that of the copies
        u = (k / d)[..., None] * x / np.exp(log_a[..., place])[..., None]
        likelihood[..., place] -= (k + d) / 2 * (np.log1p(u) * use).sum(axis=-1)
    likelihood = likelihood + np.log(error)[..., None]
    weight = np.exp(likelihood - likelihood.max(axis=(-2, -1), keepdims=True))
    weight /= weight.sum(axis=(-2, -1), keepdims=True)
    return Law(df[:, :, None, None], np.exp(log_a), weight, 1.0 / (known.sum(axis=0) + 1.0))
