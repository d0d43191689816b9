"""Results on the terminal: what several commands print alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from rich.markup import escape

from fedgranger.cli.console import out, print_line
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.inference.answer import (
    absence,
    answer_sentence,
    question_sentences,
    untested_reasons,
)
from fedgranger.inference.audit_words import reservation
from fedgranger.inference.edge_tables import EDGE_COLUMNS
from fedgranger.inference.followed_edges import followed_edges
from fedgranger.manifest_types import SentFacts
from fedgranger.results import Result
from fedgranger.tested_facts import InferenceFacts
from fedgranger.text import format_bytes, format_digits

if TYPE_CHECKING:
    from fedgranger.rca import Ranking

NAMED = 8
LESS_NEEDED = ("delay", "ci_low", "ci_high", "strength", "p_value", "q_value")
"""Columns that a narrow terminal leaves out, first of all the first; is_edge stays."""
RANKING = "'fedgranger edges RUN --estimate fedgc' lists FedGC's own ranking, which is not a test."

NO_ALARM = (
    "No alarm: no client left its normal range from one step to the next. If the level of a sensor "
    "has slowly shifted, the log of its own site names it; no other party can know."
)


def headline(result: Result) -> str:
    """How many edges were found, at what level, by which test and why; or why none was tested."""
    facts = result.manifest.inference
    edges = result.edges()
    asked = [RANKING] if result.inference is None and result.granger is not None else []
    doubt = reservation(facts)
    sentences = [answer_sentence(edges, facts), *asked, *question_sentences(facts)]
    caution = [f"Caution: {doubt}"] if doubt else []
    return " ".join([*sentences, *absence(result.manifest), *caution])


def untested_lines(edges: pd.DataFrame, facts: InferenceFacts) -> list[str]:
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


def edge_table(edges: pd.DataFrame, limit: int | None) -> NarrowTable:
    """Edges in the order given; columns without any value are left out, as are the statistics.

    A pair without a p-value is marked "not tested", unless none has one.
    """
    shown = edges.head(limit if limit is not None else len(edges))
    columns = [
        name
        for name in EDGE_COLUMNS
        if name not in ("statistic", "df") and bool(edges[name].notna().any())
    ]
    rows = []
    for _, row in shown.iterrows():
        empty = "not tested" if _cell(row["p_value"]) == "" else ""
        rows.append([_cell(row[name], empty if name == "is_edge" else "") for name in columns])
    return NarrowTable(columns, rows, left=("cause", "effect"), drop=LESS_NEEDED)


def over_time_table(table: pd.DataFrame, limit: int | None) -> NarrowTable:
    """One line per edge, most certain first: when it is there, and how strong at most."""
    names = ("cause", "effect", "over time", "found from - to")
    lines = [
        (
            *(escape(edge.cause), escape(edge.effect), edge.path, edge.when),
            *(_cell(edge.least), _cell(edge.most)),
            _cell(edge.p_value if np.isfinite(edge.p_value) else None),
        )
        for edge in followed_edges(table, limit)
    ]
    return NarrowTable((*names, "least", "most", "p_value"), lines, left=names)


def score_table(scores: dict[str, Any]) -> NarrowTable:
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
    rows = []
    for kind in (*EDGE_TESTS, "fedgc"):
        for level, label in levels.items() if kind in scores else ():
            score = scores[kind][level]
            counts = f"{score['num_true']}/{score['num_possible']}"
            values = (_cell(score.get(key), "–") for key in columns.values())
            rows.append((kind, label, counts, *values))
    names = ("estimate", "level")
    return NarrowTable((*names, "true", *columns), rows, left=names)


def bytes_table(sent: Mapping[str, SentFacts]) -> NarrowTable:
    """What each client sent and received."""
    rows = (
        (
            escape(client),
            f"{row.up_per_step} B",
            f"{row.down_per_step} B",
            format_bytes(row.bytes_up),
            format_bytes(row.bytes_down),
        )
        for client, row in sent.items()
    )
    return NarrowTable(("client", "up/step", "down/step", "up total", "down total"), rows)


def ledger_table(totals: Mapping[str, SentFacts]) -> NarrowTable:
    """Messages and bytes of every client of a federated run."""
    rows = (
        (
            escape(client),
            str(row.messages_up),
            format_bytes(row.bytes_up),
            format_bytes(row.bytes_down),
            str(row.refused),
            str(row.repeated),
        )
        for client, row in totals.items()
    )
    return NarrowTable(("client", "messages", "up", "down", "refused", "repeated"), rows)


def print_rankings(
    found: Sequence[Ranking], top: int, path: Path, levels: Sequence[str] | None = None
) -> None:
    """Every ranking of suspects with its evidence, and where they were written.

    Then the sentences on the sensors' levels, which between parties only a sensor's site knows.
    """
    if not found and levels is None:
        print_line(NO_ALARM)
    for ranking in found:
        out.print(f"[bold]{escape(ranking.name)}[/]: ", end="")
        if not ranking.is_defined:
            print_line(ranking.evidence[0])
            continue
        out.print(_verdict(ranking), soft_wrap=True)
        out.print(_suspects(ranking, top))
        for sentence in ranking.evidence:
            print_line(f"  {sentence}")
        out.print()
    for sentence in levels or ():
        print_line(sentence)
    print_line(f"written to {path} and the report")


def _verdict(ranking: Ranking) -> str:
    """The main suspect and how often it leads; nobody where no client left its range."""
    if ranking.is_calm:
        return "no client left its normal range here"
    share = ranking.table["probability"].iloc[0]
    sure = f" (first in {100 * share:.0f} % of resamples)" if np.isfinite(share) else ""
    return f"[bold]{escape(ranking.first)}[/]{sure}"


def _suspects(ranking: Ranking, top: int) -> NarrowTable:
    columns = ("score", "95 % range", "first", "surprise", "explained", "mostly by", "onset")
    rows = []
    for row in ranking.table.head(top).to_dict("records"):
        explained = row["explained"] if np.isfinite(row["explained"]) else 0.0
        is_sure = np.isfinite(row["probability"])
        is_named = isinstance(row["explained_by"], str) and explained > 0.005
        cells = (
            escape(str(row["client"])),
            f"{row['score']:.2f}",
            f"{row['ci_low']:.2f} to {row['ci_high']:.2f}" if is_sure else "–",
            f"{100 * row['probability']:.0f} %" if is_sure else "–",
            f"{row['surprise']:.3g}" if np.isfinite(row["surprise"]) else "not seen",
            f"{100 * explained:.0f} %",
            escape(row["explained_by"]) if is_named else "–",
            f"step {row['onset']:.0f}" if np.isfinite(row["onset"]) else "–",
        )
        rows.append(cells)
    return NarrowTable(("client", *columns), rows, left=("client", "mostly by"))


def _cell(value: Any, empty: str = "") -> str:
    if value is None or pd.isna(value):
        return empty
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float):
        return format_digits(value)
    return escape(str(value))
