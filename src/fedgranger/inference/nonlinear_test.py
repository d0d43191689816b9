"""The nonlinear test of all pairs: residual products of every kind, against copies of each cause.

Every pair has a regression of its effect, every cause one of its states that serves all its pairs.
In a copy one cause's clock is shifted against all others, which breaks its links and leaves the
rest as it is, and its regression is made anew: where f and g cannot describe the clients, they err
together in the copy as they do in the data. Each kind is calibrated by its copies (`calibrate`);
the kinds' p-values are combined.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from fedgranger.errors import InferenceError
from fedgranger.inference.calibrate import Formula, calibrate
from fedgranger.inference.copy_audit import Audit, PairTests
from fedgranger.inference.cross_fitting import NUM_FOLDS, Design, Regression
from fedgranger.inference.residual_products import (
    KINDS,
    CausePart,
    EffectPart,
    JointPart,
    PairProducts,
    PairResiduals,
    Problem,
    cause_part,
    combine,
    explained_share,
    kind_statistics,
    pair_residuals,
)
from fedgranger.inference.shifts import StateTable
from fedgranger.inference.states import StateSource
from fedgranger.inference.whitening import unit_covariance
from fedgranger.linalg.unbroken_steps import unbroken_steps

LARGEST_STATE = 6.0
"""Standard deviations that no state exceeds where it acts nonlinearly: a single burst would
otherwise be all of its square. Up to half of that hardly anything changes."""
ROWS_PER_COLUMN = 2
MOST_STEPS = 200_000
"""Features of one regression of a longer record do not fit in the memory of a small machine."""


class PairData(NamedTuple):
    """What all pairs share: states of unit covariance, bounded ones, and unbroken steps."""

    source: StateSource
    states: Float[np.ndarray, "time state"]
    bounded: Float[np.ndarray, "time state"]
    unbroken: Int[np.ndarray, "time client"]

    def at(self, time: np.ndarray, client: int, lag: int, *, bounded: bool = False) -> np.ndarray:
        """A client's states so many steps before t + 1."""
        states = self.bounded if bounded else self.states
        return states[time + 1 - lag][:, self.source.owner == client]

    def shifted(self, client: int, shift: int, steps: int) -> PairData:
        """The first `steps` steps with this client's clock shifted, around the circle."""
        own, unbroken = self.source.owner == client, self.unbroken[:steps].copy()
        unbroken[:, client] = np.roll(unbroken[:, client], shift)
        parts = (self.states[:steps], self.bounded[:steps])
        states, bounded = (np.where(own, np.roll(part, shift, axis=0), part) for part in parts)
        return PairData(self.source, states, bounded, unbroken)


class CauseTests(NamedTuple):
    """Statistics of one cause in one copy, for every effect; NaN where there is none.

    Attributes:
        values: W/k, k and N − k.
    """

    values: Float[np.ndarray, "effect kind _"]


class NonlinearTests(NamedTuple):
    """Tests of all pairs, arrays (effect, cause) and (kind, effect, cause).

    Attributes:
        p_value: of the kinds together.
        kinds: p-value of each kind.
        is_extrapolated: a kind's statistic lies beyond all copies.
        audit: p-values by the formula on the copies, kinds together.
        products: by (effect, cause), where there are any.
    """

    p_value: Float[np.ndarray, "effect cause"]
    kinds: Float[np.ndarray, "kind effect cause"]
    is_extrapolated: Bool[np.ndarray, "effect cause"]
    audit: Audit
    products: dict[tuple[int, int], PairProducts]


def pair_data(table: StateTable) -> PairData:
    """Scale every client's states over the steps at which it was observed.

    Raises:
        InferenceError: the record is too long for the regressions.
    """
    source = table.source
    if source.num_steps > MOST_STEPS:
        raise InferenceError(
            f"the nonlinear test takes at most {MOST_STEPS} time steps, these data have "
            f"{source.num_steps}; give a part of them or choose another test"
        )
    states = np.zeros(table.states.shape)
    for m in range(len(source.dims)):
        rows, own = np.flatnonzero(table.observed[:, m]), np.flatnonzero(source.owner == m)
        part = np.asarray(table.states)[np.ix_(rows, own)]
        states[np.ix_(rows, own)] = unit_covariance(part - part.mean(axis=0))
    bounded = states / (1 + (states / LARGEST_STATE) ** 4) ** 0.25
    none = np.zeros(len(source.dims), dtype=np.int64)
    return PairData(source, states, bounded, unbroken_steps(none, table.observed, table.starts))


def effect_problem(data: PairData, effect: int, cause: int, lags: int) -> Problem:
    """The effect's next states, from its own past and the others' without the cause.

    Raises:
        InferenceError: there are too few rows at which all of that is there.
    """
    source, deep = data.source, lags + 1
    own_lags = max(int(source.own_lags[effect]), 1)
    others = [k for k in range(len(source.dims)) if k not in (effect, cause)]
    ready = data.unbroken[1:, effect] > own_lags
    ready &= (data.unbroken[:-1, others] >= deep).all(axis=1)
    t = np.flatnonzero(ready)
    linear = [data.at(t, effect, lag) for lag in range(1, own_lags + 1)]
    linear += [data.at(t, k, lag) for k in others for lag in range(1, deep + 1)]
    inputs = [data.at(t, k, 1, bounded=True) for k in (effect, *others)]
    earlier = _earlier(data, t, others, deep)
    earlier += _earlier(data, t, [effect], min(own_lags, deep))
    what = f"{source.names[cause]} -> {source.names[effect]}"
    design = _design(what, t, linear, max(own_lags, deep))
    return Problem(design._replace(inputs=inputs, earlier=earlier), data.at(t, effect, 0))


def cause_problem(data: PairData, cause: int, lags: int) -> Problem:
    """The cause's states at the tested lags, from the others' past and its own before those lags.

    Raises:
        InferenceError: there are too few rows at which all of that is there.
    """
    source, deep = data.source, lags + 1
    others = [k for k in range(len(source.dims)) if k != cause]
    t = np.flatnonzero((data.unbroken >= deep).all(axis=1))
    linear = [data.at(t, k, lag) for k in others for lag in range(1, deep + 1)]
    linear.append(data.at(t, cause, deep))
    inputs = [data.at(t, cause, deep, bounded=True)]
    inputs += [data.at(t, k, 1, bounded=True) for k in others]
    earlier = _earlier(data, t, others, deep)
    targets = [data.at(t, cause, lag, bounded=True) for lag in range(1, deep)]
    design = _design(source.names[cause], t, linear, deep)
    targets = np.concatenate(targets, axis=1)
    return Problem(design._replace(inputs=inputs, earlier=earlier), targets)


def _earlier(
    data: PairData, time: np.ndarray, clients: list[int], deep: int
) -> tuple[np.ndarray, ...]:
    """Bounded states at lags 2 to `deep`, the latest first."""
    return tuple(data.at(time, k, lag, bounded=True) for lag in range(2, deep + 1) for k in clients)


def _design(what: str, time: np.ndarray, linear: list[np.ndarray], gap: int) -> Design:
    columns = np.concatenate(linear, axis=1)
    if len(time) * (NUM_FOLDS - 1) / NUM_FOLDS < ROWS_PER_COLUMN * (1 + columns.shape[1]):
        raise InferenceError(
            f"{what}: {len(time)} usable rows for {columns.shape[1]} columns of the nonlinear "
            "test; give more data, fewer states or fewer lags"
        )
    return Design(time, columns, [], gap)


def effect_part(
    data: PairData, effect: int, cause: int, lags: int, regression: Regression, seed: int
) -> EffectPart:
    """What is left of the effect in a pair."""
    problem = effect_problem(data, effect, cause, lags)
    left = regression(problem.design, seed)(problem.targets)
    return EffectPart(problem.design.time, left, problem.design.inputs[0])


def cause_parts(
    data: PairData, cause: int, lags: set[int], regression: Regression, seed: int
) -> dict[int, CausePart]:
    """What is new in a cause, by the number of lags that are tested."""
    problems = {count: cause_problem(data, cause, count) for count in sorted(lags)}
    return {count: cause_part(part, regression, seed) for count, part in problems.items()}


def cause_tests(
    effects: dict[int, EffectPart],
    lags: Int[np.ndarray, " effect"],
    causes: dict[int, CausePart],
    joint: dict[int, JointPart],
) -> CauseTests:
    """Statistics of one cause for the given effects."""
    values = np.full((len(lags), len(KINDS), 3), np.nan)
    for m, effect in effects.items():
        values[m] = kind_statistics(pair_residuals(effect, causes[int(lags[m])], joint.get(m)))
    return CauseTests(values)


def collect(
    names: tuple[str, ...],
    pairs: dict[tuple[int, int], PairResiduals],
    copies: Float[np.ndarray, "copy effect cause kind _"],
) -> NonlinearTests:
    """Calibrate every kind over all pairs, and combine the kinds."""
    shifted, own_df, own_rest = np.moveaxis(copies, (4, 3), (0, 2))
    shape = (len(KINDS), len(names), len(names))
    statistic, df, rest = np.full(shape, np.nan), np.ones(shape), np.full(shape, 2.0)
    products = {}
    for (m, n), pair in pairs.items():
        at = (slice(None), m, n)
        statistic[at], df[at], rest[at] = kind_statistics(pair).T
        copied, (share, counts) = shifted[:, :, m, n], explained_share(pair)
        products[m, n] = PairProducts(statistic[at], df[at], rest[at], copied, share, counts)
    df, rest = np.maximum(df, 1.0), np.maximum(rest, 2.0)  # of pairs without a statistic
    laws = [
        calibrate(statistic[k], df[k], shifted[:, k], Formula(np.ones(shape[1:]), rest[k]))
        for k in range(len(KINDS))
    ]
    kinds = np.stack([law.p_value for law in laws])
    beyond = np.any([law.is_extrapolated for law in laws], axis=0)
    p_value = combine(kinds)
    by_formula = np.stack([combine(part) for part in stats.f.sf(shifted, own_df, own_rest)])
    tests = PairTests(_statistic(p_value), np.ones(p_value.shape), p_value)
    refused = int(np.isnan(by_formula).all(axis=(1, 2)).sum())
    audit = Audit("nonlinear", names, tests, _statistic(by_formula), by_formula, refused)
    return NonlinearTests(p_value, kinds, beyond, audit, products)


def _statistic(p_value: np.ndarray) -> np.ndarray:
    return stats.chi2.isf(np.maximum(p_value, 1e-300), 1)
