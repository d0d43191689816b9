"""Tables of tested edges and entries, from an estimate and the covariance of its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from fedgranger.config import RunConfig
from fedgranger.inference.calibrate import Calibrated
from fedgranger.inference.copy_audit import Audit
from fedgranger.inference.covariance import BlockCovariance
from fedgranger.inference.decision import decide, is_wanted
from fedgranger.inference.edge_movements import EdgeMovement
from fedgranger.inference.edge_response import EdgeResponse
from fedgranger.inference.predictor import Predictor
from fedgranger.inference.strength import detectable_strength, strength_intervals
from fedgranger.inference.wald import all_entry_tests, wald_tests
from fedgranger.linalg.blocks import block_positions, padded_blocks
from fedgranger.tested_facts import InferenceFacts

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
FEW_COPIES = "too few copies with shifted clocks could be tested; give more data"


class EdgeInference(NamedTuple):
    """An estimate (debiased, or FedGC's own), its tests and what to know about them.

    Attributes:
        transition: Â = [Â¹ … Âᴸ], clients in the order of the source.
        std_error: of every entry, within clients too.
        p_value: of every entry, within clients too.
        edges: columns `EDGE_COLUMNS`, one row per ordered pair.
        entries: columns `ENTRY_COLUMNS`; `col` counts the cause's states, lag after lag.
        facts: plain values for the manifest.
        audit: what the test does on copies with shifted clocks.
        beside: the answer of the other test, when both were made.
        over_time: every edge in every stretch of the record, when it was asked for
            (`over_time.COLUMNS`).
        responses: what the edges that were found do, by (cause, effect).
        movements: both sides of these edges over time. Made of the clients' states, so it stays
            where the states are.
        predictor: of the next states, from those measured before; None where there is none.
    """

    transition: Float[np.ndarray, "state lagged"]
    std_error: Float[np.ndarray, "state lagged"]
    p_value: Float[np.ndarray, "state lagged"]
    edges: pd.DataFrame
    entries: pd.DataFrame
    facts: InferenceFacts
    audit: Audit | None = None
    beside: EdgeInference | None = None
    over_time: pd.DataFrame | None = None
    responses: dict[tuple[str, str], EdgeResponse] = {}  # noqa: RUF012  never written to
    movements: dict[tuple[str, str], EdgeMovement] = {}  # noqa: RUF012
    predictor: Predictor | None = None


def edge_tables(
    clients: tuple[str, ...],
    transition: Float[np.ndarray, "state lagged"],
    covariance: BlockCovariance,
    config: RunConfig,
    calibrated: Calibrated | None = None,
) -> EdgeInference:
    """Test every edge and entry of an estimate with a covariance per block.

    The edges' p-values are by formula, or those calibrated against copies with shifted clocks. Of
    the facts only the `reasons` are known here.
    """
    names, dims, lags = np.array(clients, dtype=object), covariance.dims, covariance.lags
    tests = wald_tests(transition, covariance)
    p_edge, critical = tests.p_value, covariance.critical_values(config.confidence)
    if calibrated is not None:
        p_edge = np.where(np.isfinite(p_edge), calibrated.p_value, np.nan)
        critical = covariance.size * calibrated.law.critical(1 - config.confidence)
    blocks, inside = padded_blocks(transition, dims)
    single = all_entry_tests(transition, covariance, config.confidence)
    rows, columns = block_positions(dims, lags)
    std_error, p_value = (np.full(transition.shape, np.nan) for _ in range(2))
    m, n, i, j = np.nonzero(inside)
    std_error[rows[m, i], columns[n, j]] = single.std_error[inside]
    p_value[rows[m, i], columns[n, j]] = single.p_value[inside]
    across = ~np.eye(len(dims), dtype=np.bool_)
    low, high = strength_intervals(blocks.reshape(*across.shape, -1), covariance.cov, critical)
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
            "p_value": p_edge[across],
            "delay": _delays(blocks, covariance)[across],
        }
    )
    chosen = inside & across[:, :, None, None]
    m, n, i, j = np.nonzero(chosen)
    values = (part[chosen] for part in (blocks, *single))
    entries = dict(zip(ENTRY_COLUMNS, (names[n], names[m], i, j, *values), strict=True))
    reasons = {
        f"{names[n]} -> {names[m]}": FEW_COPIES
        for m, n in zip(*np.nonzero(across & np.isnan(p_edge)), strict=True)
    } | {f"{names[n]} -> {names[m]}": text for (m, n), text in tests.reason.items()}
    table = decided_edges(table, config, reasons)
    facts = InferenceFacts(reasons=reasons)
    return EdgeInference(transition, std_error, p_value, table, pd.DataFrame(entries), facts)


def common_facts(test: str, null: str, lags: int, config: RunConfig) -> InferenceFacts:
    """Facts that every test has."""
    return InferenceFacts(
        test=test,
        null=null,
        alpha=config.alpha,
        correction=config.correction,
        confidence=config.confidence,
        lags=lags,
    )


def decided_edges(table: pd.DataFrame, config: RunConfig, reasons: dict[str, str]) -> pd.DataFrame:
    """Decide which pairs are edges; those that the run's couplings leave out have no test."""
    left_out = ~is_wanted(table, config.couplings)
    table.loc[left_out, ["ci_low", "ci_high", "statistic", "p_value"]] = np.nan
    for cause, effect in zip(table["cause"][left_out], table["effect"][left_out], strict=True):
        reasons[f"{cause} -> {effect}"] = "left out by 'couplings'"
    return decide(table, config.alpha, config.correction, config.couplings)


def tested_pairs(edges: pd.DataFrame, names: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Every pair with a p-value: "cause -> effect", and the places of effect and cause."""
    known = edges["p_value"].notna()
    for cause, effect in zip(edges["cause"][known], edges["effect"][known], strict=True):
        yield f"{cause} -> {effect}", names.index(effect), names.index(cause)


def detectable_strengths(
    edges: pd.DataFrame, names: Sequence[str], covariance: BlockCovariance, alpha: float
) -> dict[str, float]:
    """Strength that each edge's test finds with 80 % power, where there is one."""
    rest, out = covariance.test_df, {}
    for edge, m, n in tested_pairs(edges, names):
        size = int(covariance.size[m, n])
        strength = detectable_strength(covariance.cov[m, n], rest[m, n], alpha, size=size)
        if np.isfinite(strength):
            out[edge] = strength
    return out


def _delays(
    blocks: Float[np.ndarray, "effect cause effect_state lagged_state"],
    covariance: BlockCovariance,
) -> Int[np.ndarray, "effect cause"]:
    """The lag with the largest Wald statistic of its own."""
    dims, lags, M = covariance.dims, covariance.lags, len(covariance.dims)
    size = np.zeros((lags, M, M))
    for m, n in np.ndindex(M, M):
        for lag in range(lags if lags > 1 else 0):
            columns = lag * dims[n] + np.arange(dims[n])
            where = (np.arange(dims[m])[:, None] * blocks.shape[3] + columns).reshape(-1)
            V = covariance.cov[m, n][np.ix_(where, where)]
            a = blocks[m, n].reshape(-1)[where]
            size[lag, m, n] = a @ np.linalg.lstsq(V, a, rcond=None)[0]
    return 1 + size.argmax(axis=0)
