"""Shares of small p-values with errors that respect what the tests have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

LEVELS = (0.05, 0.01)
TESTS = {"fit": "p_value", "textbook": "p_textbook"}


def pair_table(records: list[dict[str, Any]]) -> pd.DataFrame:
    """One row per tested pair of every panel that was not refused or skipped."""
    columns = ["panel", "kind", "size", "cause", "effect", "truth", "cause_unit", "effect_unit"]
    rows = [
        {
            "panel": record["key"],
            "kind": record["kind"],
            "size": record["size"],
            **pair,
            "cause_unit": record["units"].get(pair["cause"], ""),
            "effect_unit": record["units"].get(pair["effect"], ""),
        }
        for record in records
        if "pairs" in record
        for pair in record["pairs"]
    ]
    table = pd.DataFrame(rows, columns=[*columns, *TESTS.values()])
    return table.astype(dict.fromkeys(TESTS.values(), float))


def summarise_controls(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per kind, size and test: panels, refused, shares below 5 % and 1 %, errors.

    Absent pairs are counted for null and odd panels, the added pair for the others.
    """
    out = []
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for record in records:
        if "pairs" in record:
            groups.setdefault((record["kind"], record["size"]), []).append(record)
    for (kind, size), group in groups.items():
        truth = "added" if size else "absent"
        table = pair_table(group)
        table = table.loc[table["truth"] == truth]
        for test, column in TESTS.items():
            known = table.loc[~np.isnan(table[column].to_numpy())]
            row: dict[str, Any] = {
                "kind": kind,
                "size": size,
                "test": test,
                "counts": truth,
                "panels": len(group),
                "refused": _num_refused(group, column),
                "pairs": len(known),
                "untested": len(table) - len(known),
            }
            for level in LEVELS:
                share, error = share_of_rejections(known, column, level)
                row[f"share_{level}"], row[f"error_{level}"] = _plain(share), _plain(error)
            out.append(row)
    return out


def share_of_rejections(table: pd.DataFrame, column: str, level: float) -> tuple[float, float]:
    """Share of p-values below the level, and its Monte Carlo standard error.

    Tests of one panel share data, so the error is that between panels. Where the clients come
    from several units (machines, runs, stretches), a unit turns up in many panels: the error over
    units is the jackknife that leaves out all pairs of one unit at a time (Frank and Snijders' for
    networks, a pair having two ends); and where there are few, the same two clients of the same
    two units meet in many panels, which are one observation. The largest of the three counts.
    """
    if not len(table):
        return float("nan"), float("nan")
    hit = (table[column].to_numpy() < level).astype(float)
    share = float(hit.mean())
    error = _error_between(hit - share, table["panel"].to_numpy())
    ends = table[["cause_unit", "effect_unit"]].to_numpy()
    units = np.unique(ends)
    if len(units) > 2 and (ends[:, 0] != ends[:, 1]).all():
        same = table.groupby(["cause", "effect", "cause_unit", "effect_unit"]).ngroup().to_numpy()
        without = [hit[~(ends == unit).any(axis=1)] for unit in units]
        shares = np.array([part.mean() if len(part) else share for part in without])
        N = len(units)
        over_units = float(np.sqrt((N - 2) / (2 * N) * ((shares - share) ** 2).sum()))
        error = max(error, over_units, _error_between(hit - share, same))
    return share, error


def _error_between(residual: np.ndarray, cluster: np.ndarray) -> float:
    _, index = np.unique(cluster, return_inverse=True)
    sums = np.bincount(index, residual)
    G = len(sums)
    if G < 2:
        return float("nan")
    return float(np.sqrt(G / (G - 1) * (sums**2).sum()) / len(residual))


def _num_refused(group: list[dict[str, Any]], column: str) -> int:
    return sum(all(pair[column] is None for pair in record["pairs"]) for record in group)


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else value
