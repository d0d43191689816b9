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
    """Smallest level at which Holm's test reports all these edges; 0 when there are none.

    Holm's test at a level reports any false edge with at most that probability, whatever the
    dependence between the tests.
    """
    if not is_edge.any():
        return 0.0
    return float(np.nanmax(adjust(p_values, "holm")[is_edge]))
