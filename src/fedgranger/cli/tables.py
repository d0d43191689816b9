"""Tables for the terminal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape
from rich.table import Table

from fedgranger.inference.edges import EDGE_COLUMNS
from fedgranger.report.headline import absence
from fedgranger.results import Result

QUESTIONS = {
    "debiased": "does the cause's latent state drive the effect's, measurement noise taken out",
    "readings": (
        "do the cause's past states help to predict the effect beyond its own past and the other "
        "clients"
    ),
}

__all__ = [
    "bytes_table",
    "edge_table",
    "format_size",
    "headline",
    "ledger_table",
    "score_table",
]


def headline(result: Result) -> str:
    """How many edges were found, and at what level; or why none was tested."""
    facts = result.manifest["inference"]
    edges = result.edges()
    if result.inference is None:
        how = "ranked by strength; none was tested" if result.granger is not None else "none tested"
        return f"{len(edges)} possible edges, {how}."
    count = int(edges["is_edge"].fillna(False).to_numpy(dtype=np.bool_).sum())
    correction = {
        "bh": "false discovery rate",
        "by": "false discovery rate under any dependence",
        "holm": "chance of any false edge",
        "none": "level of every single test",
    }[facts["correction"]]
    tested = int(np.isfinite(edges["p_value"].to_numpy(dtype=np.float64)).sum())
    left = "" if tested == len(edges) else f", {len(edges) - tested} of them not tested"
    found = (
        f"{count} of {len(edges)} possible edges are supported ({correction} {facts['alpha']:g})"
        f"{left}."
    )
    return " ".join([found, *_question(facts), *absence(result.manifest)])


def _question(facts: dict[str, Any]) -> list[str]:
    """Which question was tested and why that one, where the run had to choose."""
    reason = facts.get("test_reason")
    if reason is None:
        return []
    return [f"Tested: {QUESTIONS[facts['test']]}. Why this: {reason}."]


def edge_table(edges: pd.DataFrame, limit: int | None, fedgc: pd.DataFrame | None = None) -> Table:
    """Edges in the order given; columns without any value are left out, as are the statistics.

    Args:
        edges: a sorted edge table.
        limit: how many rows.
        fedgc: FedGC's own edges, shown beside.
    """
    shown = edges.head(limit if limit is not None else len(edges))
    columns = [
        name
        for name in EDGE_COLUMNS
        if name not in ("statistic", "df") and bool(edges[name].notna().any())
    ]
    table = Table(box=None, header_style="bold")
    for name in columns:
        is_name = name in ("cause", "effect")
        table.add_column(name, justify="left" if is_name else "right", no_wrap=not is_name)
    beside = {}
    if fedgc is not None:
        table.add_column("fedgc", justify="right", no_wrap=True)
        keys = zip(fedgc["cause"], fedgc["effect"], strict=True)
        beside = dict(zip(keys, fedgc["strength"], strict=True))
    for _, row in shown.iterrows():
        cells = [_cell(row[name]) for name in columns]
        if fedgc is not None:
            cells.append(_cell(beside.get((row["cause"], row["effect"]))))
        table.add_row(*cells)
    return table


def score_table(scores: dict[str, Any]) -> Table:
    """Scores per estimate and level; what is undefined or was not decided is a dash."""
    columns = {
        "F1": "f1",
        "AUC-ROC": "auc_roc",
        "AUC-PR": "auc_pr",
        "SHD": "shd",
        "FP": "fp",
        "FN": "fn",
        "FDR": "fdr",
        "type I": "type_1_error",
        "power": "power",
    }
    levels = {"edges": "edges", "entries_across": "entries across", "entries_all": "all entries"}
    table = Table(box=None, header_style="bold")
    for name in ("estimate", "level", "true", *columns):
        table.add_column(name, justify="left" if name in ("estimate", "level") else "right")
    for kind in ("debiased", "readings", "asymptotic", "fedgc"):
        for level, label in levels.items():
            if kind in scores:
                score = scores[kind][level]
                counts = f"{score['num_true']}/{score['num_possible']}"
                values = (_cell(score.get(key), "–") for key in columns.values())
                table.add_row(kind, label, counts, *values)
    return table


def bytes_table(sent: dict[str, dict[str, int]]) -> Table:
    """What each client sent and received."""
    table = Table(box=None, header_style="bold")
    for name in ("client", "up/step", "down/step", "up total", "down total"):
        table.add_column(name, justify="left" if name == "client" else "right")
    for client, row in sent.items():
        table.add_row(
            escape(client),
            f"{row['up_per_step']} B",
            f"{row['down_per_step']} B",
            format_size(row["up_total"]),
            format_size(row["down_total"]),
        )
    return table


def ledger_table(totals: dict[str, dict[str, int]]) -> Table:
    """Messages and bytes of every client of a federated run."""
    table = Table(box=None, header_style="bold")
    for name in ("client", "messages", "up", "down", "refused", "repeated"):
        table.add_column(name, justify="left" if name == "client" else "right")
    for client, row in totals.items():
        table.add_row(
            escape(client),
            str(row["messages_up"]),
            format_size(row["bytes_up"]),
            format_size(row["bytes_down"]),
            str(row["refused"]),
            str(row["repeated"]),
        )
    return table


def format_size(count: int) -> str:
    """A number of bytes as people say it."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _cell(value: Any, empty: str = "") -> str:
    if value is None or pd.isna(value):
        return empty
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "<1e-99" if 0 < value < 1e-99 else f"{value:.3g}"
    return escape(str(value))
