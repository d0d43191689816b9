"""Table of the pairs of clients."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.inference.answer import untested_reasons
from fedgranger.report.selection import by_strength, edge_flags, has_test, numbers
from fedgranger.report.view import Column, PairTable, Table
from fedgranger.text import format_number, format_probability

MAX_ROWS = 60
"""Rows of the page's table; edges.csv has all."""
HEADINGS = ("strength", "interval", "statistic", "df", "p-value", "q-value")


def pairs_view(pairs: pd.DataFrame, facts: Mapping[str, Any]) -> PairTable | None:
    """The table of pairs: supported edges first, then by strength.

    Args:
        pairs: the edge table.
        facts: of its test; why a pair was not tested.
    """
    if pairs.empty:
        return None
    flags, reasons = edge_flags(pairs), page_reasons(pairs, facts)
    order = sorted(by_strength(pairs), key=lambda row: flags[row] is not True)[:MAX_ROWS]
    names = ("strength", "ci_low", "ci_high", "statistic", "df", "p_value", "q_value")
    values = np.column_stack([numbers(pairs, name) for name in names])
    cause, effect = pairs["cause"].tolist(), pairs["effect"].tolist()
    rows = [
        [cause[row], effect[row], *_cells(values[row]), _decision(flags[row], reasons[row])]
        for row in order
    ]
    columns = [Column("cause"), Column("effect"), *(Column(name, True) for name in HEADINGS)]
    caption = "Pairs of clients, edges first, then by strength"
    return PairTable(Table(caption, [*columns, Column("edge")], rows), len(pairs))


def page_reasons(pairs: pd.DataFrame, facts: Mapping[str, Any]) -> list[str | None]:
    """Why each pair was not tested; a reason that holds for all of them is said at the top."""
    if has_test(pairs):
        return untested_reasons(pairs, facts)
    return ["the reason is at the top"] * len(pairs)


def _cells(values: np.ndarray) -> list[str]:
    strength, low, high, statistic, df, p, q = map(float, values)
    has_range = np.isfinite(low) and np.isfinite(high)
    return [
        format_number(strength),
        f"{format_number(low)} to {format_number(high)}" if has_range else "–",
        format_number(statistic),
        f"{df:.0f}" if np.isfinite(df) else "–",
        format_probability(p),
        format_probability(q),
    ]


def _decision(flag: bool | None, reason: str | None) -> str:
    if flag is None:
        return f"not tested: {reason}" if reason else "not tested"
    return "yes" if flag else "no"
