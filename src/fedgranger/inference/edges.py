"""From state streams to a table of tested edges."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgranger.config import RunConfig
from fedgranger.inference.covariance import (
    BlockCovariance,
    block_covariance,
    block_positions,
)
from fedgranger.inference.diagnostics import diagnose
from fedgranger.inference.estimate import Estimate, estimate, select_lags
from fedgranger.inference.multiplicity import adjust
from fedgranger.inference.power import detectable_strength
from fedgranger.inference.states import StateSource
from fedgranger.inference.wald import (
    block_cov,
    block_entries,
    entry_tests,
    homoskedastic,
    wald_tests,
)

__all__ = ["EDGE_COLUMNS", "ENTRY_COLUMNS", "EdgeInference", "decide", "infer"]

EDGE_COLUMNS = ("cause", "effect", "strength", "statistic", "df", "p_value", "q_value", "is_edge")
ENTRY_COLUMNS = (
    "cause",
    "effect",
    "row",
    "col",
    "estimate",
    "std_error",
    "ci_low",
    "ci_high",
    "p_value",
)


class EdgeInference(NamedTuple):
    """Debiased estimate, its tests and what to know about them.

    Attributes:
        transition: Â = [Â¹ … Âᴸ], (P, L P), clients in the order of the source.
        std_error: of every entry, within clients too.
        p_value: of every entry, within clients too.
        edges: columns `EDGE_COLUMNS`, one row per ordered pair.
        entries: columns `ENTRY_COLUMNS`; `col` counts the cause's states, lag after lag.
        facts: plain values for the manifest.
    """

    transition: np.ndarray
    std_error: np.ndarray
    p_value: np.ndarray
    edges: pd.DataFrame
    entries: pd.DataFrame
    facts: dict[str, Any]


def infer(source: StateSource, config: RunConfig) -> EdgeInference:
    """Estimate, test and check; see `RunConfig` for the options.

    Raises:
        InferenceError: the data do not allow the estimate, with the reason and a remedy.
    """
    weights = (config.weighting, config.weighting_span)
    lags = select_lags(source, config.max_lags, *weights) if config.lags == "auto" else config.lags
    fit = estimate(source, lags, *weights)
    if config.covariance == "homoskedastic":
        covariance = homoskedastic(fit, source.dims)
    else:
        covariance = block_covariance(
            source, fit, rule=config.hac, weighting=weights[0], span=weights[1]
        )
    return _tables(source, fit, covariance, config)


def decide(edges: pd.DataFrame, alpha: float, correction: str) -> pd.DataFrame:
    """Fill `q_value` and `is_edge` from the p-values; empty where a test was not possible."""
    q = adjust(edges["p_value"].to_numpy(dtype=np.float64), correction)
    is_edge = pd.array(q <= alpha, dtype="boolean")
    is_edge[np.isnan(q)] = pd.NA
    return edges.assign(q_value=q, is_edge=is_edge)


def _tables(
    source: StateSource, fit: Estimate, covariance: BlockCovariance, config: RunConfig
) -> EdgeInference:
    tests = wald_tests(fit, covariance, source.dims)
    rows, columns = block_positions(source.dims, fit.lags)
    std_error, p_value = (np.full(fit.transition.shape, np.nan) for _ in range(2))
    edges, entries = [], []
    reasons: dict[str, str] = {}
    detectable: dict[str, float] = {}
    for (m, effect), (n, cause) in product(enumerate(source.names), repeat=2):
        block = block_entries(fit, source.dims, m, n)
        single = entry_tests(fit, covariance, source.dims, m, n, config.confidence)
        where = np.ix_(rows[m][rows[m] >= 0], columns[n][columns[n] >= 0])
        std_error[where], p_value[where] = single.std_error, single.p_value
        if m == n:
            continue
        strength = float(np.linalg.norm(block))
        edges.append(
            (
                cause,
                effect,
                strength,
                tests.statistic[m, n],
                int(tests.df[m, n]),
                tests.p_value[m, n],
            )
        )
        entries.extend(
            (cause, effect, i, j, *(float(x[i, j]) for x in (block, *single)))
            for i, j in np.ndindex(block.shape)
        )
        if (m, n) in tests.reason:
            reasons[f"{cause} -> {effect}"] = tests.reason[m, n]
        if not np.isnan(tests.p_value[m, n]):
            V = block_cov(covariance, source.dims, fit.lags, m, n)
            detectable[f"{cause} -> {effect}"] = detectable_strength(
                V, covariance.df[m, n], config.alpha
            )
    table = pd.DataFrame(edges, columns=list(EDGE_COLUMNS[:6]))
    table = decide(table, config.alpha, config.correction)
    return EdgeInference(
        fit.transition,
        std_error,
        p_value,
        table,
        pd.DataFrame(entries, columns=list(ENTRY_COLUMNS)),
        _facts(source, fit, covariance, config, reasons, detectable),
    )


def _facts(
    source: StateSource,
    fit: Estimate,
    covariance: BlockCovariance,
    config: RunConfig,
    reasons: dict[str, str],
    detectable: dict[str, float],
) -> dict[str, Any]:
    checks = diagnose(source, fit)
    M = len(source.dims)
    tested = ~np.eye(M, dtype=np.bool_) if M > 1 else np.ones((1, 1), dtype=np.bool_)
    return {
        "test": config.test,
        "null": "the cause's past does not help to predict the effect, given all clients' pasts",
        "alpha": config.alpha,
        "correction": config.correction,
        "confidence": config.confidence,
        "lags": fit.lags,
        "covariance": config.covariance,
        "hac": config.hac,
        "hac_lag": covariance.hac_lag,
        "df_denominator": float(np.median(covariance.df[tested])),
        "num_pairs": fit.moments.num_pairs,
        "effective_pairs": checks.effective_pairs,
        "spectral_radius": fit.spectral_radius,
        "condition": fit.condition,
        "portmanteau": checks.portmanteau,
        "unit_root": checks.unit_root,
        "detectable_strength": detectable,
        "warnings": list(checks.warnings),
        "reasons": reasons,
    }
