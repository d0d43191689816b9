"""The readings' test on data and on copies with shifted clocks, and the lags it tests.

With `lags = "auto"` one lag is tested on the data and on all copies. What arrives later on the data
is compared with what arrives on the copies, where nothing can; effects at which something does
are tested again with those lags, on the data and on all copies alike. The choice of a lag where
nothing arrives has a chance of `arrivals.LEVEL` in all, so it hardly adds to false edges.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from fedgranger.config import RunConfig
from fedgranger.inference.arrivals import arrival_p_values, arrivals, choose_cause_lags
from fedgranger.inference.calibrate import Formula
from fedgranger.inference.copy_audit import PairTests, Report, run_copies
from fedgranger.inference.lag_columns import LagColumns
from fedgranger.inference.readings import Readings, regress
from fedgranger.inference.shifts import large_zeros
from fedgranger.inference.states import StateSource
from fedgranger.inference.whitening import Whitened


class ReadingsCopies(NamedTuple):
    """How copies are made: the states with clocks shifted by one row of `shifts`."""

    shifted: Callable[[np.ndarray], StateSource]
    shifts: Int[np.ndarray, "copy client"]
    report: Report
    record: Path | None

    def columns(self, cause_lags: Int[np.ndarray, "effect cause"]) -> LagColumns:
        """Of the steps that all copies have: those of a copy without shifts."""
        return LagColumns(self.shifted(np.zeros_like(cause_lags[0])), cause_lags)


class Screened(NamedTuple):
    """Tests at one lag, and what arrives two and more steps later, (lag, effect, cause)."""

    statistic: Float[np.ndarray, "effect cause"]
    df: Float[np.ndarray, "effect cause"]
    p_value: Float[np.ndarray, "effect cause"]
    arrivals: Float[np.ndarray, "lag effect cause"]


def readings_on(
    source: StateSource, whitened: Whitened, config: RunConfig, copies: ReadingsCopies
) -> tuple[Readings, PairTests, list[PairTests | None], Float[np.ndarray, "lag effect cause"]]:
    """Test the data and the copies.

    Returns:
        Regressions of the data; its tests; those of the copies, at the data's k (None where that
        was refused); and p-values of arrivals from lag 2 on.
    """
    M = len(source.dims)
    if config.lags == "auto":
        lags, late, made = _screen(source, whitened, config.max_lags, copies)
        again = np.asarray((lags > 1).any(axis=1))
    else:
        lags, late = np.full((M, M), config.lags), np.ones((0, M, M))
        made, again = [None] * len(copies.shifts), np.ones(M, dtype=np.bool_)
    if again.any():
        lagged = copies.columns(lags)

        def test(row: np.ndarray) -> PairTests:
            options = {"lagged": lagged, "shifts": row, "effects": again, "with_errors": False}
            return pair_tests_of(regress(copies.shifted(row), lags, **options))

        _, shifts, report, record = copies
        new = run_copies(test, PairTests, shifts, report, record, f"readings {lags.tolist()}")
        made = [_merge(*both, again) for both in zip(made, new, strict=True)]
    fit = regress(source, lags)
    tests = pair_tests_of(fit)
    made = [None if copy is None else _as_if(copy, tests) for copy in made]
    return fit, tests, made, late


def _screen(
    source: StateSource, whitened: Whitened, max_lags: int, copies: ReadingsCopies
) -> tuple[np.ndarray, np.ndarray, list[PairTests | None]]:
    """Lags of every pair, p-values of later arrivals, and the copies' tests at one lag."""
    M = len(source.dims)
    one = np.ones((M, M), dtype=np.int64)
    lagged = copies.columns(one)

    def first(
        states: StateSource, row: np.ndarray | None, lagged: LagColumns | None
    ) -> tuple[Readings, np.ndarray]:
        residuals = large_zeros((states.num_steps, states.total_dim))
        options = {"lagged": lagged, "shifts": row, "with_errors": False}
        fit = regress(states, one, residuals=residuals, **options)
        late = arrivals(residuals, whitened, source.dims, max_lags, row)[1:]
        late[:1] = fit.later()  # this lag is in the regression, so its residuals do not show it
        return fit, late

    def screen(row: np.ndarray) -> Screened:
        fit, later = first(copies.shifted(row), row, lagged)
        return Screened(*pair_tests_of(fit), later)

    fit, found = first(source, None, None)
    _, shifts, report, record = copies
    made = run_copies(screen, Screened, shifts, report, record, "readings")
    tests = [None if copy is None else PairTests(*copy[:3]) for copy in made]
    null = [copy.arrivals for copy in made if copy is not None]
    if not null:
        return one, np.ones((0, M, M)), tests
    late = arrival_p_values(found, source.dims, np.stack(null))
    return choose_cause_lags(late, source.dims, int(fit.num_rows.min())), late, tests


def _merge(
    first: PairTests | None, second: PairTests | None, again: Bool[np.ndarray, " effect"]
) -> PairTests | None:
    """Put the effects that were tested again in the place of the first tests."""
    if first is None:
        return second
    if second is None:
        second = PairTests(*(np.full_like(first.statistic, np.nan) for _ in PairTests._fields))
    pairs = zip(second, first, strict=True)
    return PairTests(*(np.where(again[:, None], new, old) for new, old in pairs))


def _as_if(copy: PairTests, found: PairTests) -> PairTests:
    """A copy's statistics at the data's k, those with the same p-value.

    They differ where states of a cause depend on other clients' on the data, not on the copy.
    """
    other = (copy.df != found.df) & np.isfinite(copy.statistic) & (found.df > 0)
    if not other.any():
        return copy
    statistic = copy.statistic.copy()
    k = found.df[other]
    statistic[other] = stats.chi2.isf(np.maximum(copy.p_value[other], 1e-300), k) / k
    return copy._replace(statistic=statistic)


def pair_tests_of(fit: Readings) -> PairTests:
    """Statistic and p-value by formula of every pair."""
    num_clients = len(fit.num_rows)
    statistic, df = (np.full((num_clients, num_clients), np.nan) for _ in range(2))
    for m, n in fit.blocks:
        statistic[m, n], df[m, n] = fit.statistic(m, n)
    return PairTests(statistic, df, stats.f.sf(statistic, df, readings_formula(fit).df_denominator))


def readings_formula(fit: Readings) -> Formula:
    """The law of W/k by formula, F(k, n − q)."""
    rest = np.maximum(fit.num_rows - fit.num_columns, 1.0)
    shape = (len(rest), len(rest))
    return Formula(np.ones(shape), np.broadcast_to(rest[:, None], shape))
