r"""The nonlinear test as tables, in the same form as the others.

The strength of an edge is the square root of the share of what is left of the effect that the cause
explains in all kinds together; its interval inverts the noncentral F law of that share, widened as
the copies are. Coefficients and entries are those of the linear readings' test, which is beside it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import optimize, stats

from fedgranger.config import RunConfig
from fedgranger.inference.decision import adjust
from fedgranger.inference.edge_tables import (
    EDGE_COLUMNS,
    EdgeInference,
    common_facts,
    decided_edges,
)
from fedgranger.inference.nonlinear_test import NonlinearTests
from fedgranger.inference.residual_products import KINDS, PairProducts
from fedgranger.tested_facts import InferenceFacts

NULL = (
    "given the effect's past and the other clients', the effect's next states have no linear, "
    "quadratic or interacting part in what is new in the cause, and none in products of its "
    "states with a third client's"
)
NOT_REGULAR = (
    "the products of residuals of this pair are dependent, or there are too few rows for them; "
    "give more data, fewer lags or fewer states"
)
SEARCH = 1e7


def nonlinear_tables(
    names: tuple[str, ...],
    found: NonlinearTests,
    linear: EdgeInference,
    config: RunConfig,
    facts: InferenceFacts,
    reasons: dict[str, str],
) -> EdgeInference:
    """Edges and facts, beside the linear answer; `reasons` say why pairs were not tested."""
    rows, kinds, shown = [], {}, {}
    delays = dict(zip(_edges(linear.edges), linear.edges["delay"], strict=True))
    for m in range(len(names)):
        for n in range(len(names)):
            if m == n:
                continue
            edge, products = f"{names[n]} -> {names[m]}", found.products.get((m, n))
            p = float(found.p_value[m, n])
            strength = low = high = statistic = np.nan
            df = 0
            if products is not None and np.isfinite(p):
                strength = np.sqrt(max(products.explained, 0.0))
                low, high = strength_interval(products, config.confidence)
                df = int(products.df.sum())
                statistic = float(stats.chi2.isf(max(p, 1e-300), df))
                kinds[edge] = {
                    kind: float(found.kinds[k, m, n])
                    for k, kind in enumerate(KINDS)
                    if np.isfinite(found.kinds[k, m, n])
                }
                shown[edge] = kinds_found(kinds[edge], config.alpha)
            else:
                reasons.setdefault(edge, NOT_REGULAR)
            delay = int(delays.get(edge, 1))
            rows.append((names[n], names[m], strength, low, high, statistic, df, p, delay))
    table = decided_edges(pd.DataFrame(rows, columns=list(EDGE_COLUMNS[:9])), config, reasons)
    facts.update(common_facts("nonlinear", NULL, linear.facts.lags, config))
    facts.covariance, facts.num_pairs = "residual products", linear.facts.num_pairs
    facts.regression = config.nonlinear_regression
    facts.detectable_strength, facts.positive_control = {}, {}
    facts.kinds, facts.kinds_found, facts.reasons = kinds, shown, reasons
    return linear._replace(edges=table, facts=facts, audit=None, beside=linear)


def _edges(table: pd.DataFrame) -> list[str]:
    return [f"{c} -> {e}" for c, e in zip(table["cause"], table["effect"], strict=True)]


def kinds_found(p_values: dict[str, float], alpha: float) -> list[str]:
    """Kinds of influence that are there at this level, all that were tested considered (Holm)."""
    adjusted = adjust(np.array(list(p_values.values())), "holm")
    return [kind for kind, p in zip(p_values, adjusted, strict=True) if p <= alpha]


def strength_interval(products: PairProducts, confidence: float) -> tuple[float, float]:
    """Interval of the strength: ρ with N p ρ²/(1 − ρ²) = r λ, λ the noncentrality of F(k, N p − k).

    r ≥ 1 is how much larger statistics of shifted copies are than their law says: the errors of
    the products are underestimated by so much, the strength itself is not. With as many products
    as rows any strength is possible.
    """
    k, count = products.counts
    if count <= k:
        return 0.0, 1.0
    share = max(1 - (1 - products.explained) * (count - k) / count, 0.0)
    rest = count - k
    statistic = share / max(1 - share, 1e-12) * rest / k
    ratios = products.copies / stats.f.median(products.df, products.rest)
    known = ratios[np.isfinite(ratios)]
    excess = max(float(np.median(known)), 1.0) if len(known) else 1.0
    statistic /= excess

    def end(level: float) -> float:
        if stats.f.cdf(statistic, k, rest) <= level:
            return 0.0

        def difference(size: float) -> float:
            return float(np.nan_to_num(stats.ncf.cdf(statistic, k, rest, size))) - level

        if difference(SEARCH) >= 0:
            return 1.0
        root = optimize.root_scalar(difference, bracket=(1e-9, SEARCH)).root
        return float(np.sqrt(excess * root / (excess * root + count)))

    return end((1 + confidence) / 2), end((1 - confidence) / 2)
