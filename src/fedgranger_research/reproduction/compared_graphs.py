"""The table of root causes by compared graph: the paper's score beside ours, and the floors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

HEAD = (
    "| graph | edges | paper's score: AC@1 (95 %) | AC@2 | balanced | no ranking | "
    "our score: AC@1 (95 %) | AC@2 | balanced | seconds | fit |"
)
NO_GRAPH = "no graph: largest d/τ; largest surprise"
FLOORS = {
    NO_GRAPH: ("deviation", "surprise"),
    "always the most frequent root": ("constant", "constant"),
    "chance": ("chance", "chance"),
}
"""Per row that needs no graph, the methods that stand in the columns of the two scores."""


def comparison(rows: pd.DataFrame) -> list[str]:
    """Lines of markdown for the rows of one data set, part and kind of roots."""
    at = {row["method"]: row for row in rows.to_dict("records")}
    compared = rows.loc[rows["graph"].notna()]
    out = [HEAD, "|" + "---|" * HEAD.count(" | ") + "---|"]
    for graph in compared["graph"].drop_duplicates():
        own = compared.loc[compared["graph"] == graph].set_index("score")
        paper, ours = (own.loc[score].to_dict() for score in ("paper", "unexplained"))
        count = paper["refused"] + paper["count"]
        if not paper["count"]:
            reason = f"refused: {paper['reason']}"
            out.append(_line(graph, "–", *["–"] * 8, reason))
            continue
        edges = f"{paper['edges']:.3g} of {paper['possible_edges']:.0f}"
        seconds = f"{paper['seconds']:.2g}"
        out.append(_line(graph, edges, *_both(paper, ours), seconds, _fit(paper, count)))
    for name, (paper, ours) in FLOORS.items():
        if paper in at and ours in at:
            out.append(_line(name, "–", *_both(at[paper], at[ours]), "–", "–"))
    empty = compared.loc[compared["edges"] == 0, "graph"].drop_duplicates()
    if len(empty):
        out += ["", _about_empty(list(empty))]
    return out


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _both(paper: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """The cells of the two scores."""
    return [
        *(_first(paper), f"{paper['ac2']:.3f}", f"{paper['balanced_ac1']:.3f}"),
        f"{100 * paper['undefined']:.0f} %",
        *(_first(ours), f"{ours['ac2']:.3f}", f"{ours['balanced_ac1']:.3f}"),
    ]


def _first(row: dict[str, Any]) -> str:
    if not np.isfinite(row["ac1_low"]):
        return f"{row['ac1']:.3f}"
    return f"{row['ac1']:.3f} ({row['ac1_low']:.2f}–{row['ac1_high']:.2f})"


def _fit(row: dict[str, Any], count: float) -> str:
    """How the fits ended, and how many anomalies have no graph."""
    parts = []
    if row["stopped"]:
        parts.append(f"not converged in {row['stopped']:.0f} of {row['fits']:.0f}")
    if row["refused"]:
        parts.append(f"refused for {row['refused']:.0f} of {count:.0f}: {row['reason']}")
    return "; ".join(parts) or "ok"


def _about_empty(names: list[str]) -> str:
    return (
        f"No edge between clients: {', '.join(names)}. With such a graph the paper's score is zero "
        "for everybody, which is chance, and ours is the surprise alone. It cannot be otherwise "
        "for a method in which each client holds its own states only (fedpc, feddag, notears-admm "
        "and fdbnl without -horizontal)."
    )
