r"""Test of the readings: does another client's past help to predict a client beyond its own past?

For every effect m, by least squares over all time steps at which everything is there,

$$s_m(t{+}1) = c + \sum_{l=1}^{L_m} B_l\, s_m(t{+}1{-}l)
  + \sum_{n \ne m} \sum_{l=1}^{K_{mn}+1} A_{mn,l}\, s_n(t{+}1{-}l) + e(t{+}1)$$

with the client's *own* lags first (L_m of its own choice) and one lag more of every cause than is
tested: with it the test is valid for series with unit roots too (lag augmentation). The covariance
of the A's is the HC3 sandwich, their test W/k ~ F(k, n − q). No noise of sensors is taken out of
the states: where they are noisy, a link through a third client can look direct. Noise that clients
added to their states is (`noisy_equation`): the question is about the states without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fedgranger.errors import InferenceError
from fedgranger.inference.equation import Block, Equation, RowSums
from fedgranger.inference.lag_bases import LagBasis
from fedgranger.inference.lag_columns import LagColumns
from fedgranger.inference.noisy_equation import NoisyEquation
from fedgranger.inference.states import StateSource


class Readings(NamedTuple):
    """The regressions of all clients.

    Attributes:
        transition: coefficients at all lags that any equation has, zero elsewhere.
        std_error: NaN where there is no coefficient and where not asked for.
        constant: c of every state; 0 where its equation was not wanted.
        blocks: tested coefficients, by (effect, cause).
        augmented: coefficients of the lag after them; empty unless residuals were asked for.
        num_rows: rows of each effect's regression, 0 where it was not wanted.
        num_columns: columns of it.
        residual_covs: covariance of the residuals of each wanted effect, in their order.
        num_unresolved: directions of each effect's columns in which added noise hides the signal.
        dependent: pairs (effect, cause) in which states of the cause were left out, because they
            are linear combinations of what the equation has already.
    """

    transition: Float[np.ndarray, "state lagged"]
    std_error: Float[np.ndarray, "state lagged"]
    constant: Float[np.ndarray, " state"]
    lags: int
    blocks: dict[tuple[int, int], Block]
    augmented: dict[tuple[int, int], Block]
    num_rows: Int[np.ndarray, " client"]
    num_columns: Int[np.ndarray, " client"]
    residual_covs: tuple[np.ndarray, ...]
    num_unresolved: Int[np.ndarray, " client"]
    dependent: frozenset[tuple[int, int]]

    def statistic(self, effect: int, cause: int) -> tuple[float, int]:
        """W/k and k of a pair; NaN where its covariance is not regular."""
        return self.blocks[effect, cause].statistic()

    def later(self) -> Float[np.ndarray, "effect cause"]:
        """W/k of the lag after the tested ones; NaN where there is none."""
        out = np.full((len(self.num_rows), len(self.num_rows)), np.nan)
        for pair, block in self.augmented.items():
            out[pair], _ = block.statistic()
        return out

    def delay(self, effect: int, cause: int) -> int:
        """The lag at which most of the influence arrives: the largest Wald statistic of one lag."""
        block = self.blocks[effect, cause]
        lags = np.unique(block.lag).tolist()
        size = {lag: math.prod(block.at_lag(lag).statistic()) for lag in lags}
        return max(size, key=lambda lag: size[lag] if np.isfinite(size[lag]) else 0.0, default=0)


def regress(
    source: StateSource,
    cause_lags: Int[np.ndarray, "effect cause"],
    *,
    residuals: Float[np.ndarray, "time state"] | None = None,
    lagged: LagColumns | None = None,
    shifts: Int[np.ndarray, " client"] | None = None,
    effects: Bool[np.ndarray, " client"] | None = None,
    with_errors: bool = True,
) -> Readings:
    """Regress every client on its own past and the others'; reads the source two or three times.

    Args:
        source: the states, with L_m.
        cause_lags: K_mn, the lags that are tested.
        residuals: zeros, filled in.
        lagged: the columns at these lags of the data that the source is a copy of, with the same
            number of steps.
        shifts: of every client's clock in that copy.
        effects: those that are wanted; all of them by default.
        with_errors: standard errors of single coefficients are wanted too.

    Raises:
        InferenceError: there are too few rows.
    """
    lagged = LagColumns(source, cause_lags) if lagged is None else lagged
    wanted = range(len(cause_lags)) if effects is None else np.flatnonzero(effects)
    equations = [_equation(source, lagged.bases, int(m), cause_lags[m]) for m in wanted]
    for chunk in lagged.chunks(source, shifts):
        for equation in equations:
            equation.collect(chunk)
    for equation in equations:
        equation.solve()
    for chunk in lagged.chunks(source, shifts):
        for equation in equations:
            equation.add_covariance(chunk, residuals, with_errors=with_errors)
    transition = _transition(source, equations, lagged.depth)
    std_error = np.full(transition.shape, np.nan)
    blocks: dict[tuple[int, int], Block] = {}
    augmented: dict[tuple[int, int], Block] = {}
    num_rows, num_columns, num_unresolved = np.zeros((3, len(cause_lags)), dtype=np.int64)
    constant = np.zeros(source.total_dim)
    for equation in equations:
        m = equation.effect
        constant[source.owner == m] = equation.constant
        if with_errors:
            is_lag, where = _places(source, equation)
            std_error[where] = np.sqrt(equation.squares[:, is_lag])
        num_rows[m], num_columns[m] = equation.num_rows, len(equation.lag)
        num_unresolved[m] = equation.num_unresolved
        blocks |= equation.tested
        augmented |= equation.augmented if residuals is not None else {}
    return Readings(
        transition,
        std_error,
        constant,
        lagged.depth,
        blocks,
        augmented,
        num_rows,
        num_columns,
        tuple(equation.residual_cov for equation in equations),
        num_unresolved,
        frozenset((equation.effect, n) for equation in equations for n in equation.dependent),
    )


def readings_without_blocks(
    source: StateSource, cause_lags: Int[np.ndarray, "effect cause"], num_blocks: int
) -> Iterator[np.ndarray | None]:
    """Coefficients without each of so many stretches of time; None with too few rows left.

    Every row's products are made once: those of a block are taken out of the sums of all.
    """
    lagged = LagColumns(source, cause_lags)
    equations = [_equation(source, lagged.bases, m, lags) for m, lags in enumerate(cause_lags)]
    nothing = RowSums(0, np.zeros(()), np.zeros(()))
    blocks = [[nothing] * len(equations) for _ in range(num_blocks)]
    for chunk in lagged.chunks(source):
        block = (chunk.first + np.arange(len(chunk.now))) * num_blocks // source.num_steps
        for equation in equations:
            equation.collect(chunk)
        for b in np.unique(block):
            found = [equation.sums(chunk, block == b) for equation in equations]
            blocks[b] = [a.plus(c) for a, c in zip(blocks[b], found, strict=True)]
    for rows in blocks:
        others = [equation.without(part) for equation, part in zip(equations, rows, strict=True)]
        try:
            for other in others:
                other.solve()
        except InferenceError:
            yield None
        else:
            yield _transition(source, others, lagged.depth)


def _transition(
    source: StateSource, equations: list[Equation], depth: int
) -> Float[np.ndarray, "state lagged"]:
    """Coefficients at all lags, zero where an equation has none."""
    transition = np.zeros((source.total_dim, depth * source.total_dim))
    for equation in equations:
        is_lag, where = _places(source, equation)
        transition[where] = equation.coefficients[:, is_lag]
    return transition


def _places(
    source: StateSource, equation: Equation
) -> tuple[
    Bool[np.ndarray, " column"], tuple[Int[np.ndarray, "client_state _"], Int[np.ndarray, "_ _"]]
]:
    """Columns of an equation that are lags, not the constant; rows and columns of all lags."""
    is_lag = equation.lag > 0
    columns = (equation.lag[is_lag] - 1) * source.total_dim + equation.state[is_lag]
    rows = np.flatnonzero(source.owner == equation.effect)
    return is_lag, (rows[:, None], columns[None, :])


def cause_lags(fit: Readings, num_clients: int) -> Int[np.ndarray, "effect cause"]:
    """K_mn of every pair that has an equation; 1 elsewhere."""
    lags = np.ones((num_clients, num_clients), dtype=np.int64)
    for pair, block in fit.blocks.items():
        lags[pair] = block.lag.max(initial=1)
    return lags


def _equation(
    source: StateSource, bases: list[LagBasis], effect: int, causes: Int[np.ndarray, " client"]
) -> Equation:
    if source.is_noise_added:
        return NoisyEquation(bases, effect, causes, source.added_covs)
    return Equation(bases, effect, causes)
