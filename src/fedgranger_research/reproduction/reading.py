"""Read figures' tables: the numbers that paragraphs are made of, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

__all__ = [
    "SYMBOLS",
    "column",
    "decades",
    "ends",
    "firsts",
    "last_round",
    "number",
    "rows_where",
    "select",
    "settling",
    "share",
    "spread_over",
]

SYMBOLS = {"noise_var": "Σ_y", "granger_prior_var": "Σ_A⁰", "augmentation_prior_var": "Σ_θ⁰"}
TAIL = 0.2
"""Share of the checkpoints that counts as the end."""


def select(
    table: pd.DataFrame,
    quantity: str,
    client: str,
    cause: str = "",
    *,
    sweep: str | None = None,
    value: float | None = None,
) -> pd.DataFrame:
    """Rows of one curve or of all regimes' curves."""
    rows = (table["quantity"] == quantity) & (table["client"] == client)
    rows &= table["cause"] == cause
    if sweep is not None:
        rows &= table["sweep"] == sweep
    if value is not None:
        rows &= table["value"] == value
    return rows_where(table, rows).sort_values(by=["value", "round"], kind="stable")


def rows_where(table: pd.DataFrame, mask: Any) -> pd.DataFrame:
    """The rows for which `mask` is true."""
    return pd.DataFrame(table.loc[mask])


def column(table: pd.DataFrame, name: str) -> np.ndarray:
    """One column as an array."""
    return np.asarray(table[name])


def last_round(table: pd.DataFrame) -> int:
    """How long training went on."""
    return int(column(table, "round").max())


def firsts(curves: pd.DataFrame, name: str = "total") -> dict[float, float]:
    """Value at the start, per regime."""
    return {value: float(x[0]) for value, x in _by_regime(curves, name)}


def ends(curves: pd.DataFrame, name: str = "total") -> dict[float, float]:
    """Median over the last fifth of the checkpoints, per regime: one round alone is noisy."""
    return {value: float(np.median(x[-_tail(x) :])) for value, x in _by_regime(curves, name)}


def settling(curves: pd.DataFrame) -> dict[float, float]:
    """Relative change of the median from the last fifth but one to the last, per regime."""
    found = {}
    for value, x in _by_regime(curves, "total"):
        last = _tail(x)
        before, after = np.median(x[-2 * last : -last]), np.median(x[-last:])
        found[value] = float(abs(after - before) / max(abs(after), 1e-300))
    return found


def spread_over(values: Iterable[float]) -> float:
    """Largest over smallest."""
    found = list(values)
    return max(found) / max(min(found), 1e-300)


def number(x: float) -> str:
    """Three digits, powers of ten only where they help."""
    if not np.isfinite(x):
        return "infinitely many" if x > 0 else str(x)
    if x == 0 or 1e-3 <= abs(x) < 1e5:
        text = f"{x:.3g}"
        return f"{x:.0f}" if "e" in text else text
    mantissa, exponent = f"{x:.2e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def share(x: float) -> str:
    """A share in per cent."""
    percent = 100 * x
    if percent < 0.1:
        return "below 0.1 %"
    if percent > 99.9:
        return "over 99.9 %"
    return f"{percent:.0f} %" if 10 <= percent < 99 else f"{percent:.1f} %"


def decades(values: dict[float, float], symbol: str) -> str:
    """All regimes in a row: "1.2e-5 (Σ_y 0.001), …"."""
    return ", ".join(f"{number(x)} ({symbol} {value:g})" for value, x in values.items())


def _by_regime(curves: pd.DataFrame, name: str) -> Iterator[tuple[float, np.ndarray]]:
    regimes = column(curves, "value")
    for value in np.unique(regimes):
        yield float(value), column(rows_where(curves, regimes == value), name)


def _tail(x: np.ndarray) -> int:
    return max(1, round(TAIL * len(x)))
