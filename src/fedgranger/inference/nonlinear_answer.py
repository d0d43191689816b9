"""The nonlinear test as the answer of a run, with the shapes of what it found."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedgranger.errors import InferenceError
from fedgranger.inference.calibrate import extrapolated_pairs
from fedgranger.inference.copy_audit import run_copies
from fedgranger.inference.cross_fitting import MOST_COPIES, REGRESSIONS
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.effect_curves import effect_curve
from fedgranger.inference.joint_products import BENDS, joint_parts, joint_refusal, third_client
from fedgranger.inference.nonlinear_tables import nonlinear_tables
from fedgranger.inference.nonlinear_test import (
    CauseTests,
    NonlinearTests,
    PairData,
    cause_parts,
    cause_tests,
    collect,
    effect_part,
    pair_data,
)
from fedgranger.inference.readings import cause_lags
from fedgranger.inference.residual_products import KINDS, EffectPart, PairResiduals, pair_residuals
from fedgranger.inference.shifts import draw_lone_shifts
from fedgranger.inference.two_tests import TwoTests
from fedgranger.inference.untested_kinds import untested_kinds
from fedgranger.tested_facts import CurveFacts, InferenceFacts

Parts = list[dict[int, EffectPart]]
"""Per cause, by effect."""


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
        data = pair_data(self._table)
        linear, fit = self._readings("it is linear, beside the nonlinear test")
        lags = cause_lags(fit, len(names))
        effects, reasons = self._effects(data, lags)
        pairs = self._pairs(data, lags, effects, reasons)
        if not pairs:
            raise InferenceError(next(iter(reasons.values()), "no pair could be tested"))
        found = collect(names, pairs, self._copies(data, lags, effects))
        facts = InferenceFacts(
            test_reason=reason,
            audit=self._audit_facts(found.audit),
            extrapolated=extrapolated_pairs(names, found.is_extrapolated),
            own_lags=linear.facts.own_lags,
            unit_root=self._unit_root,
            late_arrivals=linear.facts.late_arrivals,
            warnings=untested_kinds(names, found) + self._without_joint(data, lags, found),
        )
        tables = nonlinear_tables(names, found, linear, config, facts, reasons)
        facts.curves, facts.third_clients = self._shapes(tables, pairs)
        facts.beside = linear.facts
        return tables._replace(audit=found.audit)

    @property
    def _regression(self) -> tuple[Any, int]:
        return REGRESSIONS[self._config.nonlinear_regression], self._config.seed

    def _effects(self, data: PairData, lags: np.ndarray) -> tuple[Parts, dict[str, str]]:
        """What is left of the effect of every pair, and why pairs have no test."""
        names, reasons = self._source.names, {}

        def one(pair: np.ndarray) -> EffectPart:
            m, n = pair.tolist()
            try:
                return effect_part(data, m, n, int(lags[m, n]), *self._regression)
            except InferenceError as error:
                reasons[f"{names[n]} -> {names[m]}"] = str(error)
                raise

        pairs = np.argwhere(~np.eye(len(names), dtype=np.bool_))
        made = run_copies(one, EffectPart, pairs, self._report, what="pairs")
        found = zip(pairs.tolist(), made, strict=True)
        parts: Parts = [{} for _ in names]
        for (m, n), part in found:
            if part is not None:
                parts[n][m] = part
        return parts, reasons

    def _pairs(
        self, data: PairData, lags: np.ndarray, effects: Parts, reasons: dict[str, str]
    ) -> dict[tuple[int, int], PairResiduals]:
        """Residuals of effects and causes together; adds why a cause has none."""
        names, out = self._source.names, {}
        for n, own in enumerate(effects):
            try:
                causes = cause_parts(data, n, {int(lags[m, n]) for m in own}, *self._regression)
            except InferenceError as error:
                reasons.update({f"{names[n]} -> {names[m]}": str(error) for m in own})
                continue
            joint = joint_parts(data, n, lags[:, n])
            for m, part in own.items():
                out[m, n] = pair_residuals(part, causes[int(lags[m, n])], joint.get(m))
        return out

    def _copies(self, data: PairData, lags: np.ndarray, effects: Parts) -> np.ndarray:
        """W/k, k and N − k on copies with one cause's clock shifted at a time."""
        config, M, steps = self._config, len(self._source.names), self._steps
        copies = min(config.copies, MOST_COPIES.get(config.nonlinear_regression, config.copies))
        shifts = draw_lone_shifts(steps, copies, config.seed, self._period)
        causes = np.arange(M)
        rows = np.stack([np.repeat(shifts, M), np.tile(causes, len(shifts))], axis=1)

        def one(row: np.ndarray) -> CauseTests:
            shift, n = row.tolist()
            wanted = {int(lags[m, n]) for m in effects[n]}
            copy = data.shifted(n, shift, steps)
            parts = cause_parts(copy, n, wanted, *self._regression)
            return cause_tests(effects[n], lags[:, n], parts, joint_parts(copy, n, lags[:, n]))

        made_of = f"{config.nonlinear_regression} {' '.join(KINDS)} {BENDS}"
        key = f"nonlinear {made_of} {lags.tolist()} {shifts.tolist()}"
        made = run_copies(one, CauseTests, rows, self._report, self._record, key)
        missing = np.full((M, len(KINDS), 3), np.nan)
        values = np.stack([missing if part is None else part.values for part in made])
        return np.moveaxis(values.reshape(len(shifts), M, *missing.shape), 1, 2)

    def _without_joint(self, data: PairData, lags: np.ndarray, found: NonlinearTests) -> list[str]:
        """Products with third clients that are not tested, where there are any, and why."""
        names, joint = self._source.names, KINDS.index("joint")
        untested: dict[str, list[str]] = {}
        for n, name in enumerate(names if len(names) > 2 else ()):
            why = joint_refusal(data, n, lags[:, n])
            if why is not None:
                untested.setdefault(f"({why}); causes", []).append(name)
                continue
            for m in (m for m, k in found.products if k == n):
                if np.isfinite(found.kinds[joint, m, n]):
                    continue
                if np.isfinite(found.products[m, n].statistic[joint]):
                    why = "most copies with shifted clocks have too few usable rows for them"
                else:
                    why = "they depend on each other or on what else explains the effect"
                untested.setdefault(f"({why}); pairs", []).append(f"{name} -> {names[m]}")
        return [
            f"products of a cause's states with a third client's were not tested {what}: "
            f"{', '.join(which)}"
            for what, which in untested.items()
        ]

    def _shapes(
        self, tables: EdgeInference, pairs: dict[tuple[int, int], PairResiduals]
    ) -> tuple[dict[str, CurveFacts], dict[str, str]]:
        """Curves of the edges that were found, and the third clients of those that are joint."""
        names, edges, kinds = self._source.names, tables.edges, tables.facts.kinds_found or {}
        is_edge = edges["is_edge"].fillna(False).to_numpy(dtype=np.bool_)
        curves, third = {}, {}
        for cause, effect in edges.loc[is_edge, ["cause", "effect"]].itertuples(index=False):
            edge, n = f"{cause} -> {effect}", names.index(cause)
            pair = pairs[names.index(effect), n]
            curve = effect_curve(pair, self._source.dims[n], self._config.confidence)
            curves[edge] = curve.facts()
            if pair.joint is not None and "joint" in kinds[edge]:
                third[edge] = names[third_client(pair.joint)]
        return curves, third
