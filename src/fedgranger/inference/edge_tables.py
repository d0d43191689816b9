"""Tables of tested edges and entries, from an estimate and the covariance of its blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from fedgranger.config import RunConfig
from fedgranger.inference.calibrate import Calibrated
from fedgranger.inference.copy_audit import Audit
from fedgranger.inference.covariance import BlockCovariance
from fedgranger.inference.decision import decide, is_wanted
from fedgranger.inference.products import block_positions
from fedgranger.inference.strength import detectable_strength, strength_intervals
from fedgranger.inference.wald import (
    Estimated,
    all_entry_tests,
    critical_values,
    denominator_df,
    padded_blocks,
    wald_tests,
)

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
        transition: Â = [Â¹ … Âᴸ], (P, L P), clients in the order of the source.
        std_error: of every entry, within clients too.
        p_value: of every entry, within clients too.
        edges: columns `EDGE_COLUMNS`, one row per ordered pair.
        entries: columns `ENTRY_COLUMNS`; `col` counts the cause's states, lag after lag.
        facts: plain values for the manifest.
        audit: what the test does on copies with shifted clocks.
        beside: the answer of the other test, when both were made.
    """

    transition: Float[np.ndarray, "state lagged"]
    std_error: Float[np.ndarray, "state lagged"]
    p_value: Float[np.ndarray, "state lagged"]
    edges: pd.DataFrame
    entries: pd.DataFrame
    facts: dict[str, Any]
    audit: Audit | None = None
    beside: EdgeInference | None = None


class EdgeTables(NamedTuple):
    """Tests of one estimate, before the facts around them are known.

    `widening` (effect, cause): how much larger than the formula's the critical value at the run's
    level is.
    """

    std_error: Float[np.ndarray, "state lagged"]
    p_value: Float[np.ndarray, "state lagged"]
    edges: pd.DataFrame
    entries: pd.DataFrame
    reasons: dict[str, str]
    detectable: dict[str, float]
    widening: Float[np.ndarray, "effect cause"]


def edge_tables(
    clients: tuple[str, ...],
    dims: tuple[int, ...],
    fit: Estimated,
    covariance: BlockCovariance,
    config: RunConfig,
    calibrated: Calibrated | None = None,
) -> EdgeTables:
    """Test every edge and entry of an estimate with a covariance per block.

    Args:
        clients: names.
        dims: states per client.
        fit: the estimate.
        covariance: of its blocks.
        config: level, correction, confidence and pairs.
        calibrated: the edges' p-values against copies with shifted clocks; None: by formula.
    """
    names = np.array(clients, dtype=object)
    tests = wald_tests(fit, covariance, dims)
    p_edge, critical = tests.p_value, critical_values(covariance, config.confidence)
    widening = np.ones_like(critical)
    if calibrated is not None:
        p_edge = np.where(np.isfinite(p_edge), calibrated.p_value, np.nan)
        critical = covariance.size * calibrated.law.critical(1 - config.confidence)
        at_level = covariance.size * calibrated.law.critical(config.alpha)
        widening = at_level / critical_values(covariance, 1 - config.alpha)
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
        critical,
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
            "p_value": p_edge[across],
            "delay": _delays(blocks, covariance, fit.lags, dims)[across],
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
    left_out = ~is_wanted(table, config.couplings)
    table.loc[left_out, ["ci_low", "ci_high", "statistic", "p_value"]] = np.nan
    for cause, effect in zip(table["cause"][left_out], table["effect"][left_out], strict=True):
        reasons[f"{cause} -> {effect}"] = "left out by 'couplings'"
    table = decide(table, config.alpha, config.correction, config.couplings)
    detectable = _detectable(table, clients, covariance, widening, config.alpha)
    single_entries = pd.DataFrame(entries)
    return EdgeTables(std_error, p_value, table, single_entries, reasons, detectable, widening)


def _delays(
    blocks: Float[np.ndarray, "effect cause effect_state lagged_state"],
    covariance: BlockCovariance,
    lags: int,
    dims: tuple[int, ...],
) -> Int[np.ndarray, "effect cause"]:
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
    table: pd.DataFrame,
    clients: tuple[str, ...],
    covariance: BlockCovariance,
    widening: Float[np.ndarray, "effect cause"],
    alpha: float,
) -> dict[str, float]:
    """Strength that each edge's test finds with 80 % power."""
    known = table["p_value"].notna()
    place = {name: k for k, name in enumerate(clients)}
    rest = denominator_df(covariance)
    out = {}
    for cause, effect in zip(table["cause"][known], table["effect"][known], strict=True):
        m, n = place[effect], place[cause]
        strength = detectable_strength(
            covariance.cov[m, n] * widening[m, n],
            rest[m, n],
            alpha,
            size=int(covariance.size[m, n]),
        )
        if np.isfinite(strength):
            out[f"{cause} -> {effect}"] = strength
    return out
