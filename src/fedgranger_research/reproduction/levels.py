"""Where the curves of a figure begin and end, and a table of that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

SYMBOLS = {"noise_var": "Σ_y", "granger_prior_var": "Σ_A⁰", "augmentation_prior_var": "Σ_θ⁰"}
TAIL = 0.2
"""Share of the checkpoints that counts as the end."""
MOVING = 0.05
"""A curve that changes by more between its last two fifths has not settled."""
WITH_PRIOR = ("granger_cov", "augmentation_cov", "gradient_cov", "state_cov")
"""Traces, which are the sum of a part from the prior and a part from the data."""
ABOUT_LEVELS = (
    "Start → end (median over the last fifth of the rounds); how much of the end is what the prior "
    "alone would have become; how far the median still moved between the last two fifths, where "
    f"that is over {100 * MOVING:.0f} %."
)


class Curve(NamedTuple):
    """What one panel shows.

    Attributes:
        label: for tables.
        title: the same in mathtext.
        quantity: value of the column `quantity`.
        client: effect.
        cause: or "".
        dashed: column drawn dashed besides `total`, or None.
        is_log: logarithmic axis.
    """

    label: str
    title: str
    quantity: str
    client: str
    cause: str = ""
    dashed: str | None = "prior"
    is_log: bool = True


class Fact(NamedTuple):
    """One number per regime, recorded at the last round; not drawn."""

    label: str
    quantity: str
    client: str
    cause: str = ""


def sweep_table(
    table: pd.DataFrame, sweep: str, curves: Sequence[Curve], facts: Sequence[Fact] = ()
) -> str:
    """A column per regime, a row per curve with its start and end, a row per fact."""
    own = rows_where(table, table["sweep"] == sweep)
    values = np.unique(column(own, "value"))
    lines = [
        f"| {int(column(own, 'round').max())} rounds | "
        + " | ".join(f"{SYMBOLS[sweep]} = {value:g}" for value in values)
        + " |",
        "|---" * (len(values) + 1) + "|",
    ]
    for curve in curves:
        chosen = select(own, curve.quantity, curve.client, curve.cause)
        first, last, moved = firsts(chosen), ends(chosen), settling(chosen)
        extra = dict.fromkeys(last, "")
        if curve.quantity in WITH_PRIOR:
            prior = ends(chosen, "prior")
            extra = {v: f", {share(max(prior[v], 0) / last[v])} prior" for v in last}
        elif curve.dashed is not None:
            one = firsts(chosen, curve.dashed), ends(chosen, curve.dashed)
            extra = {v: f"; one run {number(one[0][v])} → {number(one[1][v])}" for v in last}
        cells = [
            f"{number(first[v])} → {number(last[v])}{extra[v]}"
            f"{f', moves {share(moved[v])}' if moved[v] > MOVING else ''}"
            for v in last
        ]
        lines.append(f"| {curve.label} | {' | '.join(cells)} |")
    for fact in facts:
        found = ends(select(own, fact.quantity, fact.client, fact.cause))
        lines.append(f"| {fact.label} | {' | '.join(number(x) for x in found.values())} |")
    return "\n".join(lines)


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


def grouped(table: pd.DataFrame, by: list[str]) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    """The rows that agree in some columns, with what these hold; sorted."""
    found: Any = table.groupby(by, sort=True)
    return [(tuple(values), pd.DataFrame(group)) for values, group in found]


def with_single_run(table: pd.DataFrame) -> pd.DataFrame:
    r"""Add the column `single_run` to errors of the mean: the root mean square over runs.

    A run draws its start and its noise, so its expected squared error is, per block,
    \(E\|\hat A - A\|_F^2 = \|E\hat A - A\|_F^2 + \operatorname{tr}\Sigma_A\).
    """
    keys = ["sweep", "value", "round", "client", "cause"]
    traces = rows_where(table, table["quantity"] == "granger_cov")[[*keys, "total"]]
    joined = table.merge(
        pd.DataFrame(traces).rename(columns={"total": "trace"}), on=keys, how="left"
    )
    of_mean = np.isin(column(joined, "quantity"), ["granger_error", "granger_limit_error"])
    total, trace = column(joined, "total"), np.maximum(column(joined, "trace"), 0)
    single_run = np.where(of_mean, np.sqrt(total**2 + trace), np.nan)
    return joined.assign(single_run=single_run).drop(columns="trace")


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


def number(x: float) -> str:
    """Three digits, powers of ten only where they help."""
    if not np.isfinite(x):
        return "∞" if x > 0 else str(x)
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


def _by_regime(curves: pd.DataFrame, name: str) -> Iterator[tuple[float, np.ndarray]]:
    regimes = column(curves, "value")
    for value in np.unique(regimes):
        yield float(value), column(rows_where(curves, regimes == value), name)


def _tail(x: np.ndarray) -> int:
    return max(1, round(TAIL * len(x)))
