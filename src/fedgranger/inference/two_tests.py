"""The two tests of a run: the latent influence, and the readings.

Both are also made on copies with shifted clocks, and the p-values come from these copies. For the
readings every clock is shifted. The latent model of an effect holds only while the links into it
do, so for the latent test an effect keeps the clock of those that seem to drive it, and the others
are shifted (`shifts.kinds_of_copies`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fedgranger.config import RunConfig
from fedgranger.errors import InferenceError
from fedgranger.inference.arrivals import late_arrivals
from fedgranger.inference.calibrate import calibrate, extrapolated_pairs
from fedgranger.inference.copy_audit import (
    Audit,
    PairTests,
    Report,
    audit_facts,
    collect_audit,
    run_copies,
)
from fedgranger.inference.diagnostics import unit_roots
from fedgranger.inference.edge_responses import WithoutBlocks, add_responses
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.latent import (
    LatentFit,
    fit_latent,
    latent_formula,
    latent_tables,
    latent_without_blocks,
    pair_tests,
    refit,
)
from fedgranger.inference.latent_doubts import audit_doubt, model_doubt
from fedgranger.inference.noise_correction import NoiseChoice, choose_noise
from fedgranger.inference.readings import Readings, cause_lags, readings_without_blocks
from fedgranger.inference.readings_tables import readings_tables
from fedgranger.inference.readings_test import ReadingsCopies, readings_formula, readings_on
from fedgranger.inference.record_traits import record_traits, unsearched_cycles
from fedgranger.inference.shifts import (
    StateTable,
    common_period,
    draw_shifts,
    keep_together,
    kinds_of_copies,
)
from fedgranger.inference.states import StateSource
from fedgranger.inference.whitening import whiten
from fedgranger.tested_facts import AuditFacts, InferenceFacts

SEEMS_DRIVEN = 0.01
"""Pairs with a smaller p-value seem to be links: taking a true link away leaves its effect with a
past that the model does not know."""
MORE_COPIES = 4
"""The latent test has about so many times the option's copies, all kinds of them together."""
FEWEST_COPIES, MOST_KINDS = 20, 30


class TwoTests:
    """Both tests of one source, with what they share."""

    def __init__(
        self, table: StateTable, config: RunConfig, report: Report, record: Path | None
    ) -> None:
        source = table.source
        if len(source.dims) < 2:
            raise InferenceError("one client has no edges; give at least two")
        self._source, self._config = source, config
        self._report, self._record = report, record
        self._table, self._whitened = table, whiten(table)
        self._unit_root = unit_roots(source)
        self._traits = record_traits(table, self._whitened, self._unit_root)
        self._unsearched = unsearched_cycles(source) if config.period == "auto" else []
        period = common_period(source.periods, source.num_steps)
        self._steps = source.num_steps // period * period
        self._period = period
        self._without_blocks: dict[str, tuple[StateSource, WithoutBlocks]] = {}

    def _shifts_of(self, copies: int) -> np.ndarray:
        num_clients = len(self._source.dims)
        return draw_shifts(num_clients, self._steps, copies, self._config.seed, self._period)

    def latent(self) -> tuple[EdgeInference | None, str]:
        """The latent test, and what speaks against it; an empty text: nothing."""
        source, config = self._source, self._config
        agreed = choose_noise(source) if config.noise_correction else NoiseChoice(source)
        if agreed.shares and config.lags == "auto":
            config = replace(config, lags=1)  # the lags' noise is that of a model of one lag
        try:
            fit = fit_latent(agreed.source, config)
        except InferenceError as error:
            return None, f"the latent model does not fit these data ({error})"
        if agreed.shares:
            fit = fit._replace(notes=(*fit.notes, agreed.warning))
        self._without_blocks["debiased"] = (fit.source, partial(latent_without_blocks, fit))
        found = latent_tables(fit, config)
        found.facts.noise_from_lags = dict(agreed.shares)
        doubt = model_doubt(
            source,
            self._whitened,
            found,
            self._config.max_lags,
            is_noise_possible=agreed.is_possible,
        )
        if doubt:
            return found, doubt
        checked = found.facts
        audit, audited = self._latent_audit(fit)
        tests, formula = audit.found, latent_formula(fit.covariance)
        law = calibrate(tests.statistic, tests.df, audit.statistics, formula)
        num_pairs = law.p_value.size - len(source.names)
        untested = num_pairs - int(np.isfinite(law.p_value).sum())
        if untested:
            doubt = f"the latent test cannot be made for {untested} of {num_pairs} pairs"
        elif not audited.is_safe:
            doubt = audit_doubt(audited)
        found = latent_tables(fit, config, law)._replace(audit=audit)
        facts = found.facts
        facts.noise_from_lags, facts.late_arrivals = checked.noise_from_lags, checked.late_arrivals
        facts.audit = self._audit_facts(audited)
        facts.extrapolated = extrapolated_pairs(source.names, law.is_extrapolated)
        return found, doubt

    def _audit_facts(self, audit: Audit) -> AuditFacts:
        facts = audit_facts(audit)
        facts.clients, facts.unsearched = self._traits, self._unsearched
        return facts

    def _latent_audit(self, fit: LatentFit) -> tuple[Audit, Audit]:
        """Statistics of every pair on copies of its kind; and of those whose model holds there."""
        tests = pair_tests(fit)
        driven = np.nan_to_num(tests.p_value, nan=1.0) < SEEMS_DRIVEN
        kinds = kinds_of_copies(driven, MOST_KINDS)
        copies = self._config.copies
        count = max(FEWEST_COPIES, min(copies, MORE_COPIES * copies // len(kinds)))
        shifts = [keep_together(self._shifts_of(count), kind) for kind in kinds]

        def test(row: np.ndarray) -> PairTests:
            return refit(fit, self._shifted(row[:-1]), self._config, kinds[row[-1]].pairs)

        key = f"latent {fit.fit.lags}"
        of_kind = np.repeat(np.arange(len(kinds)), count)
        every = np.column_stack([np.concatenate(shifts), of_kind])
        made = run_copies(test, PairTests, every, self._report, self._record, key)
        audit = collect_audit("debiased", self._source.names, tests, made)
        shape = (len(kinds), count, *driven.shape)
        pairs = np.stack([kind.pairs for kind in kinds])
        own = np.eye(len(driven), dtype=np.bool_)
        statistics, p_values = (  # every pair belongs to one kind, the sum picks it
            np.where(own, np.nan, np.where(pairs[:, None], part.reshape(shape), 0.0).sum(axis=0))
            for part in (audit.statistics, audit.p_values)
        )
        lost = np.stack([(driven & ~kind.together).any(axis=1) for kind in kinds])
        holds = (pairs & ~lost[:, :, None]).any(axis=0)
        audit = audit._replace(
            statistics=statistics, p_values=p_values, refused=audit.refused // len(kinds)
        )
        return audit, audit._replace(p_values=np.where(holds, p_values, np.nan))

    def readings(self, reason: str) -> EdgeInference:
        """The readings' test with p-values from shifted copies."""
        return self._readings(reason)[0]

    def _readings(self, reason: str) -> tuple[EdgeInference, Readings]:
        source, shifts = self._source, self._shifts_of(self._config.copies)
        copies = ReadingsCopies(self._shifted, shifts, self._report, self._record)
        fit, tests, made, late = readings_on(source, self._whitened, self._config, copies)
        lags = cause_lags(fit, len(source.names))
        without_blocks = partial(readings_without_blocks, source, lags)
        self._without_blocks["readings"] = (source, without_blocks)
        audit = collect_audit("readings", source.names, tests, made)
        law = calibrate(tests.statistic, tests.df, audit.statistics, readings_formula(fit))
        facts = InferenceFacts(
            test_reason=reason,
            audit=self._audit_facts(audit),
            own_lags=dict(zip(source.names, source.own_lags, strict=True)),
            unit_root=self._unit_root,
            late_arrivals=late_arrivals(late, source.names, 2),
            warnings=[],
        )
        tables = readings_tables(source, fit, law, self._config, facts, self._whitened.covs)
        return tables._replace(audit=audit), fit

    def with_responses(self, found: EdgeInference) -> EdgeInference:
        """The answer with what its edges do."""
        test = "debiased" if found.facts.test == "debiased" else "readings"
        return add_responses(found, *self._without_blocks[test], self._report)

    def _shifted(self, shifts: np.ndarray) -> StateSource:
        return self._table.shifted(shifts, self._steps)
