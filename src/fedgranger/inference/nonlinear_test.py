"""The nonlinear test of all pairs: residual products of every kind, against shifted copies.

Each pair has regressions of its own. Its copies shift what is new in the cause against what is left
of the effect, so that no regression is made again: bursts, tails and slow remainders of both stay,
their link is broken. Each kind is calibrated by its copies (`calibrate`); the kinds' p-values are
combined.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fedgranger.errors import InferenceError
from fedgranger.inference.calibrate import Calibrated, Formula, calibrate
from fedgranger.inference.cross_fitting import NUM_FOLDS, Design, Regression
from fedgranger.inference.residual_products import (
    KINDS,
    PairProblem,
    PairProducts,
    combine,
    pair_products,
    pair_residuals,
)
from fedgranger.inference.shifts import StateTable
from fedgranger.inference.whitening import unit_covariance
from fedgranger.linalg.unbroken_steps import unbroken_steps

LARGEST_STATE = 6.0
"""Standard deviations that no state exceeds where it acts nonlinearly: a single burst would
otherwise be all of its square. Up to half of that hardly anything changes."""
ROWS_PER_COLUMN = 2


class PairData(NamedTuple):
    """What all pairs share: states of unit covariance, bounded ones, and unbroken steps."""

    table: StateTable
    states: Float[np.ndarray, "time state"]
    bounded: Float[np.ndarray, "time state"]
    unbroken: Int[np.ndarray, "time client"]


class NonlinearTests(NamedTuple):
    """Tests of all pairs, arrays (effect, cause) and (kind, effect, cause).

    Attributes:
        p_value: of the kinds together.
        kinds: p-value of each kind.
        laws: what the copies say of each kind's statistic.
        products: by (effect, cause).
    """

    p_value: Float[np.ndarray, "effect cause"]
    kinds: Float[np.ndarray, "kind effect cause"]
    laws: tuple[Calibrated, ...]
    products: dict[tuple[int, int], PairProducts]


def pair_data(table: StateTable) -> PairData:
    """Scale every client's states over the steps at which it was observed."""
    source = table.source
    states = np.zeros(table.states.shape)
    for m in range(len(source.dims)):
        rows, own = np.flatnonzero(table.observed[:, m]), np.flatnonzero(source.owner == m)
        part = np.asarray(table.states)[np.ix_(rows, own)]
        states[np.ix_(rows, own)] = unit_covariance(part - part.mean(axis=0))
    bounded = states / (1 + (states / LARGEST_STATE) ** 4) ** 0.25
    none = np.zeros(len(source.dims), dtype=np.int64)
    return PairData(table, states, bounded, unbroken_steps(none, table.observed, table.starts))


def pair_problem(data: PairData, effect: int, cause: int, lags: int) -> PairProblem:
    """Rows at which everything is there, and what they hold; `lags` of the cause are tested.

    Raises:
        InferenceError: there are too few of them.
    """
    source, deep = data.table.source, lags + 1
    own_lags = max(int(source.own_lags[effect]), 1)
    need = np.full(len(source.dims), deep)
    need[effect] = own_lags
    ready = np.all(data.unbroken[:-1] >= need, axis=1)
    ready &= data.unbroken[1:, effect] > own_lags
    t = np.flatnonzero(ready)
    others = [k for k in range(len(source.dims)) if k not in (effect, cause)]

    def at(states: np.ndarray, client: int, lag: int) -> np.ndarray:
        return states[t + 1 - lag][:, source.owner == client]

    linear = [at(data.states, effect, lag) for lag in range(1, own_lags + 1)]
    linear += [at(data.states, k, lag) for k in others for lag in range(1, deep + 1)]
    linear.append(at(data.states, cause, deep))
    columns = np.concatenate(linear, axis=1)
    if len(t) * (NUM_FOLDS - 1) / NUM_FOLDS < ROWS_PER_COLUMN * (1 + columns.shape[1]):
        names = source.names
        raise InferenceError(
            f"{names[cause]} -> {names[effect]}: {len(t)} usable rows for {columns.shape[1]} "
            "columns of the nonlinear test; give more data, fewer states or fewer lags"
        )
    inputs = [at(data.bounded, effect, 1), at(data.bounded, cause, deep)]
    inputs += [at(data.bounded, k, 1) for k in others]
    past = [at(data.bounded, cause, lag) for lag in range(1, deep)]
    design = Design(t, columns, inputs, max(own_lags, deep))
    return PairProblem(design, at(data.states, effect, 0), inputs[0], np.concatenate(past, axis=1))


def tested_pair(
    data: PairData,
    regression: Regression,
    lags: Int[np.ndarray, "effect cause"],
    shifts: Int[np.ndarray, "copy client"],
    steps: int,
    seed: int,
    pair: tuple[int, int],
) -> PairProducts:
    """Regressions, statistics and copies of one pair (effect, cause)."""
    m, n = pair
    problem = pair_problem(data, m, n, int(lags[m, n]))
    left = pair_residuals(problem, regression, seed)
    return pair_products(left, problem.design.time, shifts[:, n] - shifts[:, m], steps)


def collect(num_clients: int, products: dict[tuple[int, int], PairProducts]) -> NonlinearTests:
    """Calibrate every kind over all pairs, and combine the kinds."""
    shape, copies = (num_clients, num_clients), max(len(p.copies) for p in products.values())
    statistic, df, rest = (np.full((len(KINDS), *shape), fill) for fill in (np.nan, 1.0, 2.0))
    shifted = np.full((copies, len(KINDS), *shape), np.nan)
    for (m, n), found in products.items():
        statistic[:, m, n], df[:, m, n], rest[:, m, n] = found[:3]
        shifted[:, :, m, n] = found.copies
    laws = tuple(
        calibrate(statistic[k], df[k], shifted[:, k], Formula(np.ones(shape), rest[k]))
        for k in range(len(KINDS))
    )
    kinds = np.stack([law.p_value for law in laws])
    return NonlinearTests(combine(kinds), kinds, laws, products)


def believed_p_values(
    found: NonlinearTests, products: dict[tuple[int, int], PairProducts]
) -> Float[np.ndarray, "effect cause"]:
    """P-values of other statistics of the same pairs, against the laws that were found."""
    kinds = np.full(found.kinds.shape, np.nan)
    for place, law in enumerate(found.laws):
        statistic = np.full(found.p_value.shape, np.nan)
        for pair, made in products.items():
            statistic[pair] = made.statistic[place]
        known = np.isfinite(statistic) & np.isfinite(law.p_value)
        tail = law.law.tail(np.where(known, statistic, 1.0))
        kinds[place] = np.where(known, tail, np.nan)
    return combine(kinds)
