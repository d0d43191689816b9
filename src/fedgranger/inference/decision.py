"""Which pairs are edges: multiple testing over the M(M − 1) pairs."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy import stats

from fedgranger.edge_test_kinds import CORRECTIONS
from fedgranger.learning_options import Couplings
from fedgranger.option_fields import check_choice

"""Benjamini-Hochberg, Benjamini-Yekutieli, Holm, none."""


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


def is_wanted(edges: pd.DataFrame, couplings: Couplings) -> Bool[np.ndarray, " pair"]:
    """Which rows are tested at all."""
    if couplings == "all":
        return np.ones(len(edges), dtype=np.bool_)
    pairs = zip(edges["cause"], edges["effect"], strict=True)
    return np.array([pair in couplings for pair in pairs], dtype=np.bool_)


def adjust(p_values: Float[np.ndarray, " pair"], correction: str) -> Float[np.ndarray, " pair"]:
    """Adjusted p-values; an edge is reported when its own is at most α. NaN stays NaN.

    Tests that could not be made still count as made, so that refusing a test never makes another
    edge easier to report.
    """
    check_choice("correction", correction, CORRECTIONS)
    known = ~np.isnan(p_values)
    if correction == "none" or not known.any():
        return p_values.copy()
    p = np.where(known, p_values, 1.0)
    if correction == "holm":  # max over j ≤ i of min(1, (n − j + 1) p_(j)), in order of p
        order = np.argsort(p)
        steps = np.minimum(np.arange(len(p), 0, -1) * p[order], 1.0)
        adjusted = np.empty(len(p))
        adjusted[order] = np.maximum.accumulate(steps)
    else:
        adjusted = np.asarray(stats.false_discovery_control(p, method=correction))
    return np.where(known, adjusted, np.nan)


def by_certainty(edges: pd.DataFrame) -> pd.DataFrame:
    """The pairs, most certain first: by p-value, where these are equal by statistic and strength.

    P-values end at what the copies support, so many can be equal.
    """
    score = normal_score(*(edges[name].to_numpy(dtype=np.float64) for name in ("statistic", "df")))
    order = edges.assign(score=score).sort_values(
        ["p_value", "score", "strength"], ascending=[True, False, False], kind="stable"
    )
    return order.drop(columns="score").reset_index(drop=True)


def normal_score(
    statistic: Float[np.ndarray, " pair"], df: Float[np.ndarray, " pair"]
) -> Float[np.ndarray, " pair"]:
    r"""Chi-square statistics of any k on one scale, of any size (Wilson and Hilferty, 1931).

    $$z = \big( (W/k)^{1/3} - 1 + 2/(9k) \big) \big/ \sqrt{2/(9k)}$$
    """
    k = np.where(df > 0, df, np.nan)
    width = 2 / (9 * k)
    return (np.cbrt(statistic / k) - 1 + width) / np.sqrt(width)


def false_edge_bound(
    p_values: Float[np.ndarray, " pair"], is_edge: Bool[np.ndarray, " pair"]
) -> float:
    """Smallest level at which Holm's test reports all these edges; 0 when there are none.

    Holm's test at a level reports any false edge with at most that probability, whatever the
    dependence between the tests.
    """
    if not is_edge.any():
        return 0.0
    return float(np.nanmax(adjust(p_values, "holm")[is_edge]))
