"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape
from rich.table import Table

from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.inference.answer import (
    absence,
    answer_sentence,
    question_sentences,
    untested_reasons,
)
from fedgranger.inference.audit_words import reservation
from fedgranger.inference.edge_tables import EDGE_COLUMNS
from fedgranger.results import Result
from fedgranger.text import format_bytes, format_digits

NAMED = 8
RANKING = "'fedgranger edges RUN --estimate fedgc' lists FedGC's own ranking, which is no test."


def headline(result: Result) -> str:
    """How many edges were found, at what level, by which test and why; or why none was tested."""
    facts = result.manifest["inference"]
    edges = result.edges()
    asked = [RANKING] if result.inference is None and result.granger is not None else []
    doubt = reservation(facts)
    sentences = [answer_sentence(edges, facts), *asked, *question_sentences(facts)]
    caution = [f"Caution: {doubt}"] if doubt else []
    return " ".join([*sentences, *absence(result.manifest), *caution])


def untested_lines(edges: pd.DataFrame, facts: Mapping[str, Any]) -> list[str]:
    """One line per reason with the pairs it kept from being tested."""
    pairs: dict[str, list[str]] = {}
    rows = zip(edges["cause"], edges["effect"], untested_reasons(edges, facts), strict=True)
    for cause, effect, reason in rows:
        if reason is not None:
            pairs.setdefault(reason, []).append(f"{cause} -> {effect}")
    return [
        f"not tested: {', '.join(names[:NAMED])}"
        + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        + f": {reason}"
        for reason, names in pairs.items()
    ]


def edge_table(edges: pd.DataFrame, limit: int | None) -> Table:
    """Edges in the order given; columns without any value are left out, as are the statistics.

    A pair without a p-value is marked "not tested", unless none has one.

    Args:
        edges: a sorted edge table.
        limit: how many rows.
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
    for _, row in shown.iterrows():
        empty = "not tested" if _cell(row["p_value"]) == "" else ""
        table.add_row(*(_cell(row[name], empty if name == "is_edge" else "") for name in columns))
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
    for kind in (*EDGE_TESTS, "fedgc"):
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
            format_bytes(row["up_total"]),
            format_bytes(row["down_total"]),
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
            format_bytes(row["bytes_up"]),
            format_bytes(row["bytes_down"]),
            str(row["refused"]),
            str(row["repeated"]),
        )
    return table


def _cell(value: Any, empty: str = "") -> str:
    if value is None or pd.isna(value):
        return empty
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float):
        return format_digits(value)
    return escape(str(value))
