"""The edge table, checked: pairs, their numbers, decisions and order."""

import math
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.errors import DataError

REQUIRED_COLUMNS = ("cause", "effect", "strength")


def check_edges(edges: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of different clients with names as text and strength as float.

    Args:
        edges: one row per ordered pair; columns `cause`, `effect`, `strength` are needed, the
            columns of the test may be absent or empty.

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


def has_test(edges: pd.DataFrame) -> bool:
    """Tell whether any pair carries a decision of a test."""
    return any(flag is not None for flag in edge_flags(edges))


def edge_flags(edges: pd.DataFrame) -> list[bool | None]:
    """Return the decision per row: True, False, or None where no test was run."""
    if "is_edge" not in edges.columns:
        return [None] * len(edges)
    return [_flag(value) for value in edges["is_edge"]]


def numbers(table: pd.DataFrame, column: str) -> np.ndarray:
    """A column as floats, NaN where there is no value; all NaN when it is absent."""
    if column not in table.columns:
        return np.full(len(table), np.nan)
    return table[column].to_numpy(dtype=float, na_value=np.nan)


def by_strength(edges: pd.DataFrame) -> list[int]:
    """Return row positions from the strongest pair to the weakest; ties keep their order."""
    strengths = np.abs(edges["strength"].to_numpy(dtype=float))
    keys = np.where(np.isnan(strengths), -1.0, strengths)
    return [int(row) for row in np.argsort(-keys, kind="stable")]


def _flag(value: Any) -> bool | None:
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    if value in (True, False):
        return bool(value)
    raise DataError(f"edge table: is_edge holds {value!r}; use True, False or an empty cell")
