"""Choose the test of a run: the latent influence, the readings, or what the data allow."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from fedgranger.config import RunConfig
from fedgranger.errors import InferenceError
from fedgranger.inference.copy_audit import Report
from fedgranger.inference.drift import (
    drift_facts,
    drift_warnings,
    find_drift,
    in_regime,
    weight_warnings,
)
from fedgranger.inference.edge_responses import add_responses
from fedgranger.inference.edge_tables import ENTRY_COLUMNS, EdgeInference
from fedgranger.inference.followed_edges import PICTURE, over_time_doubt
from fedgranger.inference.gaps import usable
from fedgranger.inference.latent import fit_latent, latent_tables, latent_without_blocks
from fedgranger.inference.noise_correction import choose_noise
from fedgranger.inference.nonlinear_answer import NonlinearAnswer
from fedgranger.inference.over_time import edges_over_time
from fedgranger.inference.predictor import Predictor, find_predictor
from fedgranger.inference.shifts import StateTable, tabulate
from fedgranger.inference.states import StateSource, select_clients
from fedgranger.inference.two_tests import TwoTests


def infer(
    source: StateSource,
    config: RunConfig,
    report: Report = lambda *_: None,
    record: Path | None = None,
) -> EdgeInference:
    """Estimate, test and check; `report` is called with (what, done, total).

    `record` is a file that keeps what shifted copies gave, for an interrupted run to go on from.

    Raises:
        InferenceError: the data do not allow any test, with the reason and a remedy.
    """
    part = usable(source)
    # Copies use all cores; within one, many small products take longer on several threads.
    with threadpool_limits(1):
        table = tabulate(in_regime(part.source, config))
        drift, states = find_drift(table), table.source
        if config.test == "debiased":
            found = _latent_of_most(states, config, report)
        else:
            found = _infer(table, config, report, record)
        if len(found.edges) and not np.isfinite(found.edges["p_value"].to_numpy()).any():
            reasons = "; ".join(dict.fromkeys(found.facts.reasons.values()))
            raise InferenceError(reasons or "no pair of clients could be tested")
        found = _followed(found, states, config) if config.time_windows else found
        weights = {"weighting": config.weighting, "weighting_span": config.weighting_span}
        predictor = find_predictor(states._replace(**weights), config.max_lags)
        found = found._replace(predictor=predictor)
    found.facts.drift = drift_facts(states, drift)
    found.facts.warnings += [
        *part.warnings,
        *drift_warnings(states, drift, config),
        *weight_warnings(states, found.facts, config),
    ]
    if part.facts:
        found.facts.gaps = part.facts
    return _with_left_out(found, source, part.reasons)


def _followed(found: EdgeInference, source: StateSource, config: RunConfig) -> EdgeInference:
    """The same with its edges over time, or the reason why there are none."""
    config = replace(config, weighting="none", weighting_span=0)
    if config.test == "auto" and config.noise_correction:
        source = choose_noise(source).source
    rng = np.random.default_rng([config.seed, config.time_windows])
    try:
        whole = fit_latent(source, config)
        table = edges_over_time(tabulate(whole.source), whole, config, rng)
    except InferenceError as error:
        found.facts.warnings.append(f"the edges could not be followed over time: {error}")
        return found
    doubt = over_time_doubt(found.facts)
    if doubt and config.test == "auto":
        doubt = (
            "edges over time come from the latent test by formula, whose model does not pass its "
            f"checks on these data: {PICTURE}"
        )
    found.facts.warnings += [doubt] if doubt else []
    return found._replace(over_time=table)


def _latent_of_most(source: StateSource, config: RunConfig, report: Report) -> EdgeInference:
    """The latent test, without a client whose states make it impossible for all."""
    try:
        fit = fit_latent(source, config)
        found = latent_tables(fit, config)
        without_blocks = partial(latent_without_blocks, fit)
        return add_responses(found, fit.source, without_blocks, report, fit.fit.moments)
    except InferenceError as error:
        if error.client is None or len(source.names) <= 2:
            raise
        kept = [m for m, name in enumerate(source.names) if name != error.client]
        try:
            found = _latent_of_most(select_clients(source, kept), config, report)
        except InferenceError:
            raise error from None
        found.facts.warnings.append(
            f"tested without '{error.client}', so the edges of the others are conditional on one "
            f"client fewer: {error}"
        )
        return _with_left_out(found, source, {error.client: f"not tested: {error}"})


def _infer(
    table: StateTable, config: RunConfig, report: Report, record: Path | None
) -> EdgeInference:
    if config.test == "nonlinear":
        nonlinear = NonlinearAnswer(table, config, report, record)
        return nonlinear.with_responses(nonlinear.nonlinear("it was asked for"))
    tests = TwoTests(table, config, report, record)
    if config.test == "readings":
        return tests.with_responses(tests.readings("it was asked for"))
    latent, doubt = tests.latent()
    try:
        readings = tests.readings(doubt)
    except InferenceError as error:
        if latent is None:
            raise InferenceError(f"{doubt}; and as readings: {error}") from None
        doubt, readings = "", None
    chosen, other = (readings, latent) if doubt else (latent, readings)
    if chosen is None:
        raise RuntimeError("one of the two tests was made")
    chosen.facts.test_reason = doubt or "the latent model passes its checks on these data"
    if other is not None:
        chosen.facts.beside = other.facts
    return tests.with_responses(chosen._replace(beside=other))


def _with_left_out(
    found: EdgeInference, source: StateSource, reasons: Mapping[str, str]
) -> EdgeInference:
    """The tests of some clients as those of all: NaN wherever one takes part that was left out.

    `reasons` say why a client was left out; `found` is of the others, in the source's order.
    """
    if not reasons:
        return found
    P, lags = source.total_dim, found.facts.lags
    names, dims = source.names, dict(zip(source.names, source.dims, strict=True))
    tested = ~np.isin(np.array(names, dtype=object)[source.owner], list(reasons))
    rows = np.flatnonzero(tested)

    def full(part: np.ndarray, fill: float = np.nan) -> np.ndarray:
        depth = part.shape[1] // len(rows)
        out = np.full((P, depth * P), fill)
        out[np.ix_(rows, np.concatenate([k * P + rows for k in range(depth)]))] = part
        return out

    def whole(part: list[float]) -> list[float]:
        values = np.zeros(P)
        values[rows] = part
        return values.tolist()

    pairs = [
        (cause, effect)
        for effect, cause in itertools.permutations(names, 2)
        if cause in reasons or effect in reasons
    ]
    edges = pd.DataFrame(pairs, columns=["cause", "effect"]).assign(df=0, delay=0)
    entries = [
        (*pair, row, col)
        for pair in pairs
        for row in range(dims[pair[1]])
        for col in range(lags * dims[pair[0]])
    ]
    facts = found.facts
    facts.reasons |= {f"{c} -> {e}": reasons.get(c, reasons.get(e, "")) for c, e in pairs}
    if facts.mean is not None:
        facts.mean = whole(facts.mean)
    if facts.constant is not None:
        facts.constant = whole(facts.constant)
    predictor = found.predictor
    if predictor is not None:
        constant = np.full(P, np.nan)
        constant[rows] = predictor.constant
        predictor = Predictor(constant, full(predictor.transition, 0.0))
    return found._replace(
        transition=full(found.transition),
        std_error=full(found.std_error),
        p_value=full(found.p_value),
        edges=_joined(found.edges, edges, names),
        entries=_joined(found.entries, pd.DataFrame(entries, columns=ENTRY_COLUMNS[:4]), names),
        beside=None if found.beside is None else _with_left_out(found.beside, source, reasons),
        predictor=predictor,
    )


def _joined(table: pd.DataFrame, new: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """Both tables by effect and cause, with the first one's columns and types."""
    rows = new.reindex(columns=table.columns).astype(table.dtypes.to_dict())
    both = pd.concat([table, rows], ignore_index=True)
    effect, cause = (both[side].map(names.index) for side in ("effect", "cause"))
    return both.iloc[np.lexsort((cause, effect))].reset_index(drop=True)
