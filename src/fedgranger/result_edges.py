"""The edges of a run and the numbers behind them, as tables: what `Result` says of its tests."""

from __future__ import annotations

from numbers import Real

import numpy as np
import pandas as pd

from fedgranger.config import RunConfig
from fedgranger.edge_test_kinds import ESTIMATES, STATE_TESTS
from fedgranger.errors import ConfigError, RunError
from fedgranger.inference.decision import by_certainty, decide, false_edge_bound
from fedgranger.inference.edge_tables import ENTRY_COLUMNS, EdgeInference
from fedgranger.manifest_types import Manifest
from fedgranger.option_fields import check_choice
from fedgranger.result_tables import (
    check_client,
    coefficient_table,
    of_pair,
    response_table,
    state_slices,
    untested_edges,
    untested_entries,
)
from fedgranger.tested_facts import InferenceFacts


class FoundEdges:
    """Answers from a run's tests; `Result` explains the fields."""

    clients: tuple[str, ...]
    state_dims: tuple[int, ...]
    granger: np.ndarray | None
    inference: EdgeInference | None
    manifest: Manifest
    config: RunConfig

    def block(self, effect: str, cause: str, estimate: str = "auto") -> np.ndarray:
        """Block [effect, cause] of an estimate: rows are the effect's states.

        Columns are the cause's states, at all lags side by side: the matrix of `coefficients`.

        Args:
            effect: the client that is driven.
            cause: the client that drives.
            estimate: `auto`, that of the run's own test; `debiased` or `readings`, of another test
                that the run made; `fedgc`, FedGC's own, which is not tested and has one lag.

        Raises:
            RunError: the run has no such client or estimate.
        """
        for name in (effect, cause):
            check_client(name, self.clients)
        check_choice("estimate", estimate, ESTIMATES)
        places = state_slices(self.clients, self.state_dims)
        rows, columns = places[effect], places[cause]
        if estimate == "fedgc":
            return self._fedgc()[rows, columns]
        transition, P = self._tested(estimate).transition, sum(self.state_dims)
        return np.concatenate(
            [
                part[rows, columns]
                for part in np.split(transition, transition.shape[1] // P, axis=1)
            ],
            axis=1,
        )

    def edges(
        self,
        *,
        estimate: str = "auto",
        alpha: float | None = None,
        correction: str | None = None,
        sort: bool = False,
    ) -> pd.DataFrame:
        """One row per ordered pair of clients; `strength` is the Frobenius norm of its block.

        `ci_low` and `ci_high` bound the strength at the run's confidence; `ci_low` is 0 where the
        test at that level finds nothing.

        Args:
            estimate: `debiased` or `readings` with its tests, `fedgc` (its ranking, which is no
                test: test columns empty), or `auto`: the run's own test, and where nothing was
                tested pairs without any number.
            alpha: level for `is_edge`; default the run's own.
            correction: for `q_value`; default the run's own.
            sort: most certain first, instead of by client order: by p-value, where p-values end at
                what the copies support by the statistic, and without tests by strength.
        """
        self._check_estimate(estimate)
        is_number = isinstance(alpha, Real) and not isinstance(alpha, bool)
        if alpha is not None and not (is_number and 0 < alpha < 1):
            raise ConfigError(f"alpha is {alpha!r}; it must be a number between 0 and 1")
        if estimate == "fedgc":
            table = self._untested_edges()
        elif self.inference is None:
            table = self._untested_edges().assign(strength=np.nan)
        else:
            table = decide(
                self._tested(estimate).edges,
                self.config.alpha if alpha is None else float(alpha),
                self.config.correction if correction is None else correction,
                self.config.couplings,
            )
        if sort:
            table = by_certainty(table)
        return table

    def edges_over_time(self, cause: str | None = None, effect: str | None = None) -> pd.DataFrame:
        """Every edge in every stretch of the record: strength, its band, p-value and decision.

        `ci_low` and `ci_high` hold for all stretches of an edge together at the run's confidence,
        and `p_value` is the chance of so much in any of them without an influence.

        Args:
            cause: only edges from this client.
            effect: only edges to this client.

        Raises:
            RunError: the run did not follow its edges.
        """
        if self.inference is None or self.inference.over_time is None:
            asked = "could not follow its edges in time; its warnings say why"
            raise RunError(
                f"this run {asked}"
                if self.config.time_windows
                else "this run did not follow its edges in time; fit with time_windows=8"
            )
        return of_pair(self.inference.over_time, self.clients, cause, effect)

    def responses(self, cause: str | None = None, effect: str | None = None) -> pd.DataFrame:
        """What every edge that was found does: the effect's change by step after the cause's.

        In the units of the two sensors that show the edge best, for one unit more at the cause's;
        where no sensors are known (in a federation) in standard deviations of the states. `low` and
        `high` bound the change at each step at the run's confidence. `variance_share` (of the
        effect's forecast error, what the cause's shocks make up) and `r2_gained` (what the cause's
        past takes off the effect's one-step prediction error, given all other pasts) are the same
        in all rows of an edge; NaN in runs of older versions.

        Args:
            cause: only edges from this client.
            effect: only edges to this client.

        Raises:
            RunError: no such client, or a pair is named that is no edge of this run.
        """
        table = response_table(self.manifest.inference)
        found = of_pair(table, self.clients, cause, effect)
        if found.empty and cause is not None and effect is not None:
            raise RunError(
                f"{cause} -> {effect} has no response: a run makes those of its edges at its level "
                f"(alpha={self.config.alpha:g}); fit again with alpha=0.99 for nearly all pairs, "
                f"and decide with edges(alpha={self.config.alpha:g})"
            )
        return found

    def coefficients(
        self,
        cause: str | None = None,
        effect: str | None = None,
        *,
        within: bool = False,
        estimate: str = "auto",
    ) -> pd.DataFrame:
        """The tested coefficients lag by lag: how state `col` of the cause moves state `row`.

        A row per coefficient, with its standard error and the p-value of its being zero; states
        count from 0, lags from 1. Whether a client drives another one is `edges`' question.

        Args:
            cause: only coefficients of this client's past.
            effect: only equations of this client.
            within: a client's own past too (cause and effect are then the same).
            estimate: of another test that the run made: `debiased` or `readings`.

        Raises:
            RunError: the run has no such client or no tests.
        """
        own = cause is not None and cause == effect
        table = coefficient_table(
            self.clients, self.state_dims, self._tested(estimate), within=within or own
        )
        return of_pair(table, self.clients, cause, effect)

    def entries(self, *, estimate: str = "auto") -> pd.DataFrame:
        """One row per entry of every cross-client block (row and col count states from 0).

        With several lags `col` goes on counting from lag to lag.
        """
        self._check_estimate(estimate)
        if estimate != "fedgc":
            if self.inference is not None:
                return self._tested(estimate).entries
            return pd.DataFrame(columns=list(ENTRY_COLUMNS))
        return untested_entries(self.clients, self.state_dims, self._fedgc())

    def false_edge_bound(
        self, *, alpha: float | None = None, correction: str | None = None
    ) -> float:
        """Level at which Holm's test, which bounds the chance of any false edge, reports all."""
        if self.inference is None:
            raise RunError("this run has no tests; fit with test='debiased'")
        table = self.edges(alpha=alpha, correction=correction)
        return false_edge_bound(
            table["p_value"].to_numpy(), table["is_edge"].fillna(False).to_numpy(dtype=np.bool_)
        )

    def test_facts(self, estimate: str = "auto") -> InferenceFacts:
        """Facts of a test: which question, why, what could not be tested and the checks."""
        if self.inference is None:
            return self.manifest.inference
        return self._tested(estimate).facts

    def _check_estimate(self, estimate: str) -> None:
        check_choice("estimate", estimate, ESTIMATES)
        if estimate in STATE_TESTS:
            self._tested(estimate)
        if estimate == "fedgc":
            self._fedgc()

    def fedgc_edges(self) -> pd.DataFrame | None:
        """FedGC's own edges, to look at beside the tested ones; None when FedGC was not run."""
        return None if self.granger is None else self._untested_edges()

    def _fedgc(self) -> np.ndarray:
        if self.granger is None:
            raise RunError("FedGC was not run (solver='none'); run with solver='newton' or 'sgd'")
        return self.granger

    def _tested(self, estimate: str) -> EdgeInference:
        for found in (self.inference, self.inference.beside if self.inference else None):
            if found is not None and estimate in ("auto", found.facts.test):
                return found
        if self.inference is None:
            reason = self.manifest.inference.reason
            remedy = f": {reason}" if reason else "; fit with test='auto'"
            raise RunError(f"nothing was tested{remedy}")
        raise RunError(f"this run has no {estimate} estimate; fit with test='{estimate}'")

    def _untested_edges(self) -> pd.DataFrame:
        """All pairs with FedGC's strength, empty when FedGC was not run."""
        return untested_edges(self.clients, self.state_dims, self.granger)
