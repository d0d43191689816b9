"""The edge table, checked, and the table of all pairs of clients."""

import math
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.errors import DataError
from fedgranger.inference.answer import untested_reasons
from fedgranger.report.view import Column, Section, Table
from fedgranger.tested_facts import InferenceFacts
from fedgranger.text import format_number, format_probability

REQUIRED_COLUMNS = ("cause", "effect", "strength")
MAX_ROWS = 60
"""Rows of the page's table; edges.csv has all."""
HEADINGS = ("strength", "interval", "statistic", "df", "p-value", "q-value")


def check_edges(edges: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of different clients with names as text and strength as float.

    The columns of the test may be absent or empty.

    Raises:
        DataError: if a needed column is absent.
    """
    missing = [name for name in REQUIRED_COLUMNS if name not in edges.columns]
    if missing:
        raise DataError(
            f"edge table: column(s) {', '.join(missing)} missing; "
            f"give a table with at least {', '.join(REQUIRED_COLUMNS)}"
        )
    checked = edges.assign(
        cause=[str(name) for name in edges["cause"]],
        effect=[str(name) for name in edges["effect"]],
        strength=numbers(edges, "strength"),
    )
    is_pair = [c != e for c, e in zip(checked["cause"], checked["effect"], strict=True)]
    return checked.loc[is_pair].reset_index(drop=True)


def numbers(table: pd.DataFrame, column: str) -> np.ndarray:
    """A column as floats, NaN where there is no value; all NaN when it is absent."""
    if column not in table.columns:
        return np.full(len(table), np.nan)
    return table[column].to_numpy(dtype=float, na_value=np.nan)


def edge_flags(edges: pd.DataFrame) -> list[bool | None]:
    """Return the decision per row: True, False, or None where no test was run."""
    if "is_edge" not in edges.columns:
        return [None] * len(edges)
    return [_flag(value) for value in edges["is_edge"]]


def _flag(value: Any) -> bool | None:
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    if value in (True, False):
        return bool(value)
    raise DataError(f"edge table: is_edge holds {value!r}; use True, False or an empty cell")


def has_test(edges: pd.DataFrame) -> bool:
    """Whether any pair carries a decision of a test."""
    return any(flag is not None for flag in edge_flags(edges))


def by_strength(edges: pd.DataFrame) -> list[int]:
    """Return row positions from the strongest pair to the weakest; ties keep their order."""
    strengths = np.abs(edges["strength"].to_numpy(dtype=float))
    keys = np.where(np.isnan(strengths), -1.0, strengths)
    return [int(row) for row in np.argsort(-keys, kind="stable")]


def supported_edges(pairs: pd.DataFrame) -> list[tuple[str, str]]:
    """(cause, effect) of the edges, strongest first."""
    flags = edge_flags(pairs)
    names = list(zip(pairs["cause"], pairs["effect"], strict=True))
    return [names[row] for row in by_strength(pairs) if flags[row]]


def pairs_view(pairs: pd.DataFrame, facts: InferenceFacts) -> Section | None:
    """The table of pairs, edges first, then by strength; `facts` say why a pair was not tested."""
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
    table = Table(caption, [*columns, Column("edge")], rows)
    return {"table": table, "num_pairs": len(pairs)}


def page_reasons(pairs: pd.DataFrame, facts: InferenceFacts) -> list[str | None]:
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
