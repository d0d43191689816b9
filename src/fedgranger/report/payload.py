"""What the page's script needs, as one JSON text: pairs, tests, entries, places of the arrows."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.report.layout import curve_between, place_clients
from fedgranger.report.markup import printable, shorten
from fedgranger.report.selection import has_test

__all__ = ["MAX_ROWS", "build_payload", "to_script_text"]

MAX_ROWS = 60
"""Rows of the page's table; edges.csv has all."""
MOST_ENTRIES = 40_000
"""Above this many entries the page leaves them out."""
LABELS = {
    "debiased": "edge test (debiased)",
    "readings": "edge test (readings, shifted clocks)",
    "asymptotic": "edge test (asymptotic, FedGC)",
}


def build_payload(
    clients: Sequence[str],
    pairs: pd.DataFrame,
    entries: pd.DataFrame | None,
    fedgc: pd.DataFrame | None,
    inference: Mapping[str, Any],
    couplings: Any,
) -> dict[str, Any]:
    """Collect plain values; missing numbers are null.

    Args:
        clients: all names, in the order of the graph.
        pairs: checked table of pairs.
        entries: their entries with intervals, or None.
        fedgc: FedGC's own strengths of the same pairs, or None.
        inference: level, correction and confidence of the run.
        couplings: pairs that were tested, "all" or None for all.
    """
    place = {name: k for k, name in enumerate(clients)}
    causes, effects = ([place[name] for name in pairs[side]] for side in ("cause", "effect"))
    given = None if entries is None or len(entries) > MOST_ENTRIES else _entries(pairs, entries)
    layout = place_clients(list(clients)) if clients else None
    return {
        "clients": [printable(name) for name in clients],
        "labels": [shorten(printable(name), 20) for name in clients],
        "cause": causes,
        "effect": effects,
        "counted": _counted(pairs, couplings),
        "tests": _tests(pairs, entries, fedgc, inference),
        "entries": given,
        "geometry": [_geometry(layout, c, e) for c, e in zip(causes, effects, strict=True)],
        "maxWidth": layout.max_width if layout else 1.0,
        "alpha": float(inference.get("alpha", 0.05)),
        "correction": str(inference.get("correction", "bh")),
        "confidence": float(inference.get("confidence", 0.95)),
        "mostRows": MAX_ROWS,
    }


def to_script_text(payload: Mapping[str, Any]) -> str:
    """JSON that cannot end its script element, whatever names it holds."""
    text = json.dumps(payload, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _tests(
    pairs: pd.DataFrame,
    entries: pd.DataFrame | None,
    fedgc: pd.DataFrame | None,
    inference: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """The run's own test first, then what else its files allow."""
    strength = _numbers(pairs, "strength")
    if not has_test(pairs):
        return [{"id": "none", "label": "FedGC's estimate, not tested", "strength": strength}]
    kind = str(inference.get("test", "debiased"))
    measured = {
        "strength": strength,
        "low": _numbers(pairs, "ci_low"),
        "high": _numbers(pairs, "ci_high"),
    }
    if measured["low"] is None or measured["high"] is None:
        del measured["low"], measured["high"]
    out: list[dict[str, Any]] = [
        {
            "id": kind,
            "label": LABELS.get(kind, "edge test"),
            **measured,
            "statistic": _numbers(pairs, "statistic"),
            "df": _numbers(pairs, "df"),
            "p": _numbers(pairs, "p_value"),
        }
    ]
    if entries is not None and not entries.empty:
        p = _smallest_entry(pairs, entries)
        out.append({"id": "entries", "label": "smallest entry (Bonferroni)", **measured, "p": p})
    if fedgc is not None:
        order = pd.MultiIndex.from_arrays([pairs["cause"], pairs["effect"]])
        own = fedgc.set_index(["cause", "effect"]).reindex(order).reset_index()
        out.append(
            {"id": "fedgc", "label": "FedGC, not tested", "strength": _numbers(own, "strength")}
        )
    return out


def _smallest_entry(pairs: pd.DataFrame, entries: pd.DataFrame) -> list[float | None]:
    """Smallest p-value of a pair's entries times their number: finds one strong entry."""
    groups = entries.groupby(["cause", "effect"], sort=False)["p_value"]
    bound = (groups.min() * groups.size()).clip(upper=1.0)
    order = pd.MultiIndex.from_arrays([pairs["cause"], pairs["effect"]])
    table = pd.DataFrame({"p": bound.reindex(order).to_numpy()})
    table.loc[pairs["p_value"].isna().to_numpy(), "p"] = np.nan  # refused as a whole
    return _numbers(table, "p") or []


def _entries(pairs: pd.DataFrame, entries: pd.DataFrame) -> dict[str, Any]:
    """Entries sorted by pair; those of pair i are start[i] … start[i + 1] − 1."""
    place = {pair: i for i, pair in enumerate(zip(pairs["cause"], pairs["effect"], strict=True))}
    owner = np.array(
        [place[str(c), str(e)] for c, e in zip(entries["cause"], entries["effect"], strict=True)],
        dtype=np.int64,
    )
    ordered = entries.iloc[np.argsort(owner, kind="stable")]
    start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(pairs)))])
    return {
        "start": start.tolist(),
        "row": ordered["row"].tolist(),
        "col": ordered["col"].tolist(),
        "estimate": _numbers(ordered, "estimate", digits=9),
        "low": _numbers(ordered, "ci_low", digits=9),
        "high": _numbers(ordered, "ci_high", digits=9),
        "p": _numbers(ordered, "p_value", digits=9),
    }


def _counted(pairs: pd.DataFrame, couplings: Any) -> list[bool]:
    if couplings is None or couplings == "all":
        return [True] * len(pairs)
    wanted = {(str(cause), str(effect)) for cause, effect in couplings}
    return [pair in wanted for pair in zip(pairs["cause"], pairs["effect"], strict=True)]


def _geometry(layout: Any, cause: int, effect: int) -> list[float]:
    """Start, control and tip of an arrow, and the distance of its clients."""
    curve = curve_between(layout, cause, effect, 1.0)
    p, q = layout.positions[cause], layout.positions[effect]
    numbers = (*curve.start, *curve.control, *curve.head[0], float(np.hypot(q.x - p.x, q.y - p.y)))
    return [round(x, 2) for x in numbers]


def _numbers(
    table: pd.DataFrame, column: str, digits: int | None = None
) -> list[float | int | None] | Any:
    """Values of a column, null where there is none; None when the column is absent or empty."""
    if column not in table.columns:
        return None
    values = table[column].to_numpy(dtype=float, na_value=np.nan)
    if not np.isfinite(values).any():
        return None if column in ("ci_low", "ci_high", "p_value") else [None] * len(values)
    plain = [None if not np.isfinite(x) else float(x) for x in values]
    if column == "df":
        return [None if x is None else int(x) for x in plain]
    if digits is not None:
        return [None if x is None else float(f"{x:.{digits}g}") for x in plain]
    return plain
