"""Multiple testing over the M(M − 1) edges, through statsmodels."""

from __future__ import annotations

import numpy as np

from fedgranger.config import check_choice

__all__ = ["CORRECTIONS", "adjust", "false_edge_bound"]

CORRECTIONS = {"bh": "fdr_bh", "by": "fdr_by", "holm": "holm", "none": None}
"""Benjamini-Hochberg, Benjamini-Yekutieli, Holm, none."""


def adjust(p_values: np.ndarray, correction: str) -> np.ndarray:
    """Adjusted p-values; an edge is reported when its own is at most α. NaN stays NaN.

    Tests that could not be made still count as made, so that refusing a test never makes another
    edge easier to report.
    """
    check_choice("correction", correction, tuple(CORRECTIONS))
    known = ~np.isnan(p_values)
    method = CORRECTIONS[correction]
    if method is None or not known.any():
        return p_values.copy()
    from statsmodels.stats.multitest import multipletests  # slow to import

    adjusted = np.asarray(multipletests(np.where(known, p_values, 1.0), method=method)[1])
    return np.where(known, adjusted, np.nan)


def false_edge_bound(p_values: np.ndarray, is_edge: np.ndarray) -> float:
    """Upper bound on the probability that any reported edge is false (union bound).

    With K tests and t the largest p-value among the reported edges, a false edge is reported with
    probability at most K t; 0 when nothing is reported.
    """
    if not is_edge.any():
        return 0.0
    return float(min(1.0, len(p_values) * np.nanmax(p_values[is_edge])))
