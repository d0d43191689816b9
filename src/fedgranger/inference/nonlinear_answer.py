"""The nonlinear test as the answer of a run, with its audit and the shapes of what it found.

The p-values believe copies in which residuals are shifted (`nonlinear_test`). That is no proof:
where regressions cannot describe a client, what they leave of an effect and of its cause errs
together, which shifted residuals do not show. So some pairs are also tested on copies with shifted
clocks and all regressions made anew; where too many are found there, the answer is the linear one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from fedgranger.errors import InferenceError
from fedgranger.inference.copy_audit import Audit, PairTests, audit_facts, run_copies
from fedgranger.inference.cross_fitting import REGRESSIONS
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.effect_curves import effect_curve
from fedgranger.inference.nonlinear_tables import nonlinear_tables
from fedgranger.inference.nonlinear_test import (
    NonlinearTests,
    PairData,
    believed_p_values,
    collect,
    pair_data,
    pair_problem,
    tested_pair,
)
from fedgranger.inference.residual_products import PairProducts, pair_residuals
from fedgranger.inference.shifts import tabulate
from fedgranger.inference.two_tests import TwoTests, collect_audit

AUDIT_COPIES, AUDITED_TESTS = 16, 160
"""Copies on which the nonlinear test is made anew, and tests on all of them together."""


class NonlinearAnswer(TwoTests):
    """The nonlinear test of one source, beside the readings' test."""

    def nonlinear(self, reason: str) -> EdgeInference:
        """The nonlinear test, beside the readings' test whose lags it takes."""
        source, config, names = self._source, self._config, self._source.names
        if source.is_noise_added:
            raise InferenceError(
                "clients added noise to their states, which the nonlinear test cannot take out: "
                "links through a third client would look direct; choose another test"
            )
        linear, fit = self._readings("it is linear, beside the nonlinear test")
        M = len(names)
        lags = np.ones((M, M), dtype=np.int64)
        for pair, block in fit.blocks.items():
            lags[pair] = block.lag.max(initial=1)
        data = pair_data(self._table)
        products, reasons = self._products(data, lags)
        found = collect(M, products)
        audit = self._nonlinear_audit(found, lags)
        if not audit.is_safe:
            rate, error = audit.rate()
            doubt = (
                f"with shifted clocks and new regressions, where no link is true, the nonlinear "
                f"test that was asked for finds {rate:.3f}({error:.3f}) of the edges at 5 %, so "
                "this answer is the linear one"
            )
            linear.facts["test_reason"] = doubt
            linear.facts["warnings"].append(f"the nonlinear test is not believed: {doubt}")
            return linear
        facts: dict[str, Any] = {
            "test_reason": reason,
            "audit": audit_facts(audit) | {"clients": self._traits},
            "own_lags": linear.facts["own_lags"],
            "unit_root": self._unit_root,
            "late_arrivals": linear.facts["late_arrivals"],
            "warnings": [],
        }
        tables = nonlinear_tables(names, found, linear, config, facts, reasons)
        tables.facts["curves"] = self._curves(tables, data, lags)
        tables.facts["beside"] = linear.facts
        return tables._replace(audit=audit)

    def _products(
        self, data: PairData, lags: np.ndarray
    ) -> tuple[dict[tuple[int, int], PairProducts], dict[str, str]]:
        """Statistics of all pairs and their copies, and why pairs have none."""
        config, names = self._config, self._source.names
        shifts, reasons = self._shifts_of(config.copies), {}

        def test(pair: np.ndarray) -> PairProducts:
            m, n = pair.tolist()
            how = (REGRESSIONS[config.nonlinear_regression], lags, shifts, self._steps)
            try:
                return tested_pair(data, *how, config.seed, (m, n))
            except InferenceError as error:
                reasons[f"{names[n]} -> {names[m]}"] = str(error)
                raise

        pairs = np.argwhere(~np.eye(len(names), dtype=np.bool_))
        key = f"nonlinear {config.nonlinear_regression} {lags.tolist()} {shifts.tolist()}"
        how = (self._report, self._record, key, "pairs")
        made = run_copies(test, PairProducts, pairs, *how)
        products = {
            (int(m), int(n)): found
            for (m, n), found in zip(pairs, made, strict=True)
            if found is not None
        }
        if not products:
            raise InferenceError(next(iter(reasons.values()), "no pair could be tested"))
        return products, reasons

    def _nonlinear_audit(self, found: NonlinearTests, lags: np.ndarray) -> Audit:
        """P-values of some pairs on copies with shifted clocks, all regressions made anew."""
        names, config = self._source.names, self._config
        M, pairs = len(names), np.array(sorted(found.products))
        each = min(-(-AUDITED_TESTS // AUDIT_COPIES), len(pairs))
        shifts = self._shifts_of(AUDIT_COPIES)
        rng = np.random.default_rng([config.seed, M])
        chosen = [pairs[rng.permutation(len(pairs))[:each]] for _ in shifts]
        none = np.zeros((0, M), dtype=np.int64)

        def test(place: np.ndarray) -> PairTests:
            copy = int(place[0])
            data = pair_data(tabulate(self._shifted(shifts[copy])))
            how = (REGRESSIONS[config.nonlinear_regression], lags, none, self._steps, config.seed)
            made = {(m, n): tested_pair(data, *how, (m, n)) for m, n in chosen[copy].tolist()}
            p_value = believed_p_values(found, made)
            statistic = stats.chi2.isf(np.maximum(p_value, 1e-300), 1)
            return PairTests(statistic, np.ones((M, M)), p_value)

        places = np.arange(AUDIT_COPIES)[:, None]
        key = f"nonlinear audit {config.nonlinear_regression} {lags.tolist()} {shifts.tolist()}"
        how = (self._report, self._record, key, "copies")
        made = run_copies(test, PairTests, places, *how)
        known = np.where(np.isfinite(found.p_value), found.p_value, 1.0)
        tests = PairTests(stats.chi2.isf(known, 1), np.ones((M, M)), found.p_value)
        return collect_audit("nonlinear", names, tests, made)

    def _curves(
        self, tables: EdgeInference, data: PairData, lags: np.ndarray
    ) -> dict[str, dict[str, Any]]:
        """Shapes of the edges that were found."""
        config, names = self._config, self._source.names
        is_edge = tables.edges["is_edge"].fillna(False).to_numpy(dtype=np.bool_)
        out = {}
        for cause, effect in tables.edges.loc[is_edge, ["cause", "effect"]].itertuples(index=False):
            m, n = names.index(effect), names.index(cause)
            problem = pair_problem(data, m, n, int(lags[m, n]))
            left = pair_residuals(problem, REGRESSIONS[config.nonlinear_regression], config.seed)
            curve = effect_curve(left, self._source.dims[n], config.confidence)
            out[f"{cause} -> {effect}"] = curve.facts()
        return out
