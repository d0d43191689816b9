"""Tables for the terminal."""

from __future__ import annotations

from typing import Any

import pandas as pd
from rich.markup import escape
from rich.table import Table

__all__ = ["bytes_table", "edge_table", "score_table"]


def edge_table(edges: pd.DataFrame, limit: int | None) -> Table:
    """Edges, strongest first; columns without any value are left out."""
    shown = edges.sort_values("strength", ascending=False, kind="stable").head(limit)
    columns = [name for name in edges.columns if edges[name].notna().any()]
    table = Table(box=None, header_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name in ("cause", "effect") else "right")
    for _, row in shown.iterrows():
        table.add_row(*(_cell(row[name]) for name in columns))
    return table


def score_table(scores: dict[str, Any]) -> Table:
    """Scores per level; undefined ones say so."""
    table = Table(box=None, header_style="bold")
    for name in ("level", "true", "possible", "AUC-ROC", "AUC-PR", "AUC-PR by chance"):
        table.add_column(name, justify="left" if name == "level" else "right")
    for level, label in (("edges", "client edges"), ("entries", "entries across clients")):
        score = scores[level]
        table.add_row(
            label,
            str(score["num_true"]),
            str(score["num_possible"]),
            *(_cell(score[key], "undefined") for key in ("auc_roc", "auc_pr", "base_rate")),
        )
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
            _size(row["up_total"]),
            _size(row["down_total"]),
        )
    return table


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _cell(value: Any, empty: str = "") -> str:
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return empty
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape(str(value))
