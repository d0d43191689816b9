"""From state streams to a table of tested edges."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from fedgranger.config import RunConfig
from fedgranger.errors import InferenceError
from fedgranger.inference.audit import Audit, PairTests
from fedgranger.inference.covariance import BlockCovariance, block_covariance
from fedgranger.inference.diagnostics import diagnose
from fedgranger.inference.estimate import Estimate, estimate, select_lags
from fedgranger.inference.multiplicity import adjust
from fedgranger.inference.noise_floor import joint_noise_floor, limit_errors
from fedgranger.inference.positive_control import innovation_covs, latent_controls
from fedgranger.inference.power import detectable_strength
from fedgranger.inference.products import block_positions
from fedgranger.inference.states import StateSource, complete_rows
from fedgranger.inference.strength import strength_intervals
from fedgranger.inference.wald import (
    Estimated,
    all_entry_tests,
    critical_values,
    denominator_df,
    homoskedastic,
    padded_blocks,
    wald_tests,
)
from fedgranger.linalg.noise_floor import NoiseFloor

__all__ = [
    "EDGE_COLUMNS",
    "ENTRY_COLUMNS",
    "EdgeInference",
    "EdgeTables",
    "decide",
    "edge_tables",
    "infer_latent",
    "is_wanted",
    "latent_tests",
]

EDGE_COLUMNS = (
    "cause",
    "effect",
    "strength",
    "ci_low",
    "ci_high",
    "statistic",
    "df",
    "p_value",
    "delay",
    "q_value",
    "is_edge",
)
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


Couplings = Literal["all"] | tuple[tuple[str, str], ...]


class EdgeInference(NamedTuple):
    """An estimate (debiased, or FedGC's own), its tests and what to know about them.

    Attributes:
        transition: Â = [Â¹ … Âᴸ], (P, L P), clients in the order of the source.
        std_error: of every entry, within clients too.
        p_value: of every entry, within clients too.
        edges: columns `EDGE_COLUMNS`, one row per ordered pair.
        entries: columns `ENTRY_COLUMNS`; `col` counts the cause's states, lag after lag.
        facts: plain values for the manifest.
        audit: what the test does on copies with shifted clocks.
        beside: the answer of the other test, when both were made.
    """

    transition: np.ndarray
    std_error: np.ndarray
    p_value: np.ndarray
    edges: pd.DataFrame
    entries: pd.DataFrame
    facts: dict[str, Any]
    audit: Audit | None = None
    beside: EdgeInference | None = None


def infer_latent(source: StateSource, config: RunConfig) -> EdgeInference:
    """Test the latent influence: measurement error is taken out of the states' moments.

    Raises:
        InferenceError: the data do not allow the estimate, with the reason and a remedy.
    """
    if not config.noise_correction:
        nothing = tuple(np.zeros_like(error_cov) for error_cov in source.error_covs)
        source = source._replace(error_covs=nothing)
    try:
        return _infer(source, config)
    except InferenceError as error:
        # Moments over pairs of clients need not fit together when samples are missing; those
        # over complete time steps do, from fewer data.
        if all(chunk.observed.all() for chunk in source.chunks()):
            raise
        try:
            found = _infer(complete_rows(source), config)
        except InferenceError:
            raise error from None
        found.facts["warnings"].append(
            f"only time steps at which no client is missing were used; with the others: {error}"
        )
        return found


def _infer(source: StateSource, config: RunConfig) -> EdgeInference:
    weights = (config.weighting, config.weighting_span)
    floor = joint_noise_floor(source, *weights)
    source, fit, share = _estimate_limited(source, floor, config)
    if config.covariance == "homoskedastic":
        if not fit.moments.is_complete:
            raise InferenceError(
                "covariance='homoskedastic' needs data without missing samples; use 'sandwich'"
            )
        covariance = homoskedastic(fit, source.dims)
    else:
        covariance = block_covariance(
            source, fit, rule=config.hac, weighting=weights[0], span=weights[1]
        )
    found = edge_tables(source.names, source.dims, fit, covariance, config)
    tested = found.edges.loc[found.edges["p_value"].notna()]
    news = innovation_covs(fit.process_cov, source.dims)
    return EdgeInference(
        fit.transition,
        found.std_error,
        found.p_value,
        found.edges,
        found.entries,
        _facts(source, fit, covariance, config, found.reasons, found.detectable)
        | {
            "noise_share": share,
            "positive_control": latent_controls(
                source.names, source.dims, fit, covariance, tested, config.alpha
            ),
            "innovation_cov": {
                name: cov.tolist() for name, cov in zip(source.names, news, strict=True)
            },
        },
    )


def latent_tests(source: StateSource, config: RunConfig, lags: int) -> PairTests:
    """The same test at a given lag order and nothing else, for copies of the data."""
    if not config.noise_correction:
        source = limit_errors(source, 0.0)
    weights = (config.weighting, config.weighting_span)
    fit = estimate(source, lags, *weights)
    covariance = block_covariance(
        source, fit, rule=config.hac, weighting=weights[0], span=weights[1]
    )
    tests = wald_tests(fit, covariance, source.dims)
    return PairTests(tests.statistic / tests.df, tests.df, tests.p_value)


def _estimate_limited(
    source: StateSource, floor: NoiseFloor, config: RunConfig
) -> tuple[StateSource, Estimate, float]:
    """Estimate with the share of E that the joint spectrum allows.

    A share below 1 within sampling error is not used unless the estimate needs it.
    """
    weights = (config.weighting, config.weighting_span)
    refusals: list[InferenceError] = []
    for share in dict.fromkeys((floor.share, floor.largest)):
        limited = limit_errors(source, share)
        try:
            lags = config.lags
            if lags == "auto":
                lags = select_lags(limited, config.max_lags, *weights)
            return limited, estimate(limited, lags, *weights), share
        except InferenceError as error:
            refusals.append(error)
    raise refusals[0]


def decide(
    edges: pd.DataFrame, alpha: float, correction: str, couplings: Couplings = "all"
) -> pd.DataFrame:
    """Fill `q_value` and `is_edge` from the p-values; empty where a test was not possible.

    Pairs outside `couplings` are not tested and do not count in the correction.
    """
    p = edges["p_value"].to_numpy(dtype=np.float64)
    q, wanted = np.full(len(p), np.nan), is_wanted(edges, couplings)
    q[wanted] = adjust(p[wanted], correction)
    is_edge = pd.array(q <= alpha, dtype="boolean")
    is_edge[np.isnan(q)] = pd.NA
    return edges.assign(q_value=q, is_edge=is_edge)


def is_wanted(edges: pd.DataFrame, couplings: Couplings) -> np.ndarray:
    """Which rows are tested at all."""
    if couplings == "all":
        return np.ones(len(edges), dtype=np.bool_)
    pairs = zip(edges["cause"], edges["effect"], strict=True)
    return np.array([pair in couplings for pair in pairs], dtype=np.bool_)


class EdgeTables(NamedTuple):
    """Tests of one estimate, before the facts around them are known."""

    std_error: np.ndarray
    p_value: np.ndarray
    edges: pd.DataFrame
    entries: pd.DataFrame
    reasons: dict[str, str]
    detectable: dict[str, float]


def edge_tables(
    clients: tuple[str, ...],
    dims: tuple[int, ...],
    fit: Estimated,
    covariance: BlockCovariance,
    config: RunConfig,
) -> EdgeTables:
    """Test every edge and entry of an estimate with a covariance per block."""
    names = np.array(clients, dtype=object)
    tests = wald_tests(fit, covariance, dims)
    blocks, inside = padded_blocks(fit, dims)
    single = all_entry_tests(fit, covariance, dims, config.confidence)
    rows, columns = block_positions(dims, fit.lags)
    std_error, p_value = (np.full(fit.transition.shape, np.nan) for _ in range(2))
    m, n, i, j = np.nonzero(inside)
    std_error[rows[m, i], columns[n, j]] = single.std_error[inside]
    p_value[rows[m, i], columns[n, j]] = single.p_value[inside]
    across = ~np.eye(len(dims), dtype=np.bool_)
    low, high = strength_intervals(
        blocks.reshape(*across.shape, -1),
        covariance.cov,
        critical_values(covariance, config.confidence),
    )
    m, n = np.nonzero(across)
    table = pd.DataFrame(
        {
            "cause": names[n],
            "effect": names[m],
            "strength": np.linalg.norm(blocks, axis=(2, 3))[across],
            "ci_low": low[across],
            "ci_high": high[across],
            "statistic": tests.statistic[across],
            "df": tests.df[across].astype(np.int64),
            "p_value": tests.p_value[across],
            "delay": _delays(blocks, covariance, fit.lags, dims)[across],
        }
    )
    chosen = inside & across[:, :, None, None]
    m, n, i, j = np.nonzero(chosen)
    values = (part[chosen] for part in (blocks, *single))
    entries = dict(zip(ENTRY_COLUMNS, (names[n], names[m], i, j, *values), strict=True))
    reasons = {
        f"{names[cause]} -> {names[effect]}": text for (effect, cause), text in tests.reason.items()
    }
    left_out = ~is_wanted(table, config.couplings)
    table.loc[left_out, ["ci_low", "ci_high", "statistic", "p_value"]] = np.nan
    for cause, effect in zip(table["cause"][left_out], table["effect"][left_out], strict=True):
        reasons[f"{cause} -> {effect}"] = "left out by 'couplings'"
    table = decide(table, config.alpha, config.correction, config.couplings)
    detectable = _detectable(table, clients, covariance, config.alpha)
    return EdgeTables(std_error, p_value, table, pd.DataFrame(entries), reasons, detectable)


def _delays(
    blocks: np.ndarray, covariance: BlockCovariance, lags: int, dims: tuple[int, ...]
) -> np.ndarray:
    """The lag with the largest Wald statistic of its own, (effect, cause)."""
    M = len(dims)
    size = np.zeros((lags, M, M))
    for m, n in np.ndindex(M, M):
        for lag in range(lags if lags > 1 else 0):
            columns = lag * dims[n] + np.arange(dims[n])
            where = (np.arange(dims[m])[:, None] * blocks.shape[3] + columns).reshape(-1)
            V = covariance.cov[m, n][np.ix_(where, where)]
            a = blocks[m, n].reshape(-1)[where]
            size[lag, m, n] = a @ np.linalg.lstsq(V, a, rcond=None)[0]
    return 1 + size.argmax(axis=0)


def _detectable(
    table: pd.DataFrame, clients: tuple[str, ...], covariance: BlockCovariance, alpha: float
) -> dict[str, float]:
    """Strength that each edge's test finds with 80 % power."""
    known = table["p_value"].notna()
    place = {name: k for k, name in enumerate(clients)}
    rest = denominator_df(covariance)
    out = {}
    for cause, effect in zip(table["cause"][known], table["effect"][known], strict=True):
        m, n = place[effect], place[cause]
        strength = detectable_strength(
            covariance.cov[m, n], rest[m, n], alpha, size=int(covariance.size[m, n])
        )
        if np.isfinite(strength):
            out[f"{cause} -> {effect}"] = strength
    return out


def _facts(
    source: StateSource,
    fit: Estimate,
    covariance: BlockCovariance,
    config: RunConfig,
    reasons: dict[str, str],
    detectable: dict[str, float],
) -> dict[str, Any]:
    checks = diagnose(source, fit)
    notes = list(checks.warnings)
    if not config.noise_correction:
        notes.append(
            "measurement noise was not taken out of the states (noise_correction is false): "
            "clients that merely share a signal can come out as edges"
        )
    if config.covariance == "homoskedastic" and source.error_cov.any():
        notes.append("the homoskedastic covariance ignores measurement noise; use 'sandwich'")
    M = len(source.dims)
    tested = ~np.eye(M, dtype=np.bool_) if M > 1 else np.ones((1, 1), dtype=np.bool_)
    return {
        "test": "debiased",
        "null": "the cause's past does not help to predict the effect, given all clients' pasts",
        "alpha": config.alpha,
        "correction": config.correction,
        "confidence": config.confidence,
        "lags": fit.lags,
        "covariance": config.covariance,
        "hac": config.hac,
        "hac_lag": covariance.hac_lag,
        "df_denominator": float(np.median(denominator_df(covariance)[tested])),
        "num_pairs": fit.moments.num_pairs,
        "mean": fit.moments.mean.tolist(),
        "effective_pairs": checks.effective_pairs,
        "effective_samples": checks.effective_samples,
        "spectral_radius": fit.spectral_radius,
        "condition": fit.condition,
        "portmanteau": checks.portmanteau,
        "unit_root": checks.unit_root,
        "detectable_strength": detectable,
        "warnings": notes,
        "reasons": reasons,
    }
