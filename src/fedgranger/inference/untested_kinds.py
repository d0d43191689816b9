"""Kinds of the nonlinear test that some pairs have no p-value of, in a sentence per kind.

Products with third clients have reasons of their own (`nonlinear_answer`).
"""

from __future__ import annotations

import numpy as np

from fedgranger.inference.nonlinear_test import NonlinearTests
from fedgranger.inference.residual_products import KINDS
from fedgranger.text import quoted_list

WITHIN_PAIR = tuple(kind for kind in KINDS if kind != "joint")


def untested_kinds(names: tuple[str, ...], found: NonlinearTests) -> list[str]:
    """Which kinds were not tested, of which pairs, why, and what to do.

    Pairs without any p-value are not named: their table says why they have none.
    """
    notes = []
    for kind in WITHIN_PAIR:
        k = KINDS.index(kind)
        missing = ~np.isfinite(found.kinds[k]) & np.isfinite(found.p_value)
        pairs = [pair for pair in found.products if missing[pair]]
        if not pairs:
            continue
        tests = [found.products[pair] for pair in pairs]
        counts = np.array([(test.df[k], test.df[k] + test.rest[k]) for test in tests])
        if any(np.isfinite(test.statistic[k]) for test in tests):
            why = "most copies with shifted clocks have too few usable rows for it"
        elif (counts[:, 1] - counts[:, 0] < 2).any():
            why = "there are too few rows for its products"
        else:
            why = "its products depend on each other"
        products, rows = (_span(column) for column in counts.T)
        edges = quoted_list(f"{names[n]} -> {names[m]}" for m, n in pairs)
        notes.append(
            f"the {kind} kind of influence was not tested for {edges}: {why} ({products} products, "
            f"{rows} rows), so nothing was found or excluded there; give fewer lags, fewer states "
            "or more data"
        )
    return notes


def _span(counts: np.ndarray) -> str:
    least, most = int(counts.min()), int(counts.max())
    return str(least) if least == most else f"{least} to {most}"
