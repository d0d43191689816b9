"""What `fedgranger evaluate` shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedgranger.cli.console import out, print_json, print_note
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.cli.tables import score_table
from fedgranger.data.known_graph import read_known_graph
from fedgranger.data.truth import Truth
from fedgranger.disk import write_text
from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.evaluation.metrics import evaluate as score
from fedgranger.results import Result
from fedgranger.text import format_digits

ENTRY_LEVELS = ("entries_across", "entries_all")


def show_scores(result: Result, run: Path, truth: Path, *, json_output: bool) -> None:
    """Scores against what is known, in a table or as JSON; they are written to the run too."""
    known = read_known_graph(truth)
    scores = _score_edges(result, truth) if known.truth is None else score(result, known.truth)
    text = json.dumps(scores, indent=1) + "\n"
    write_text(run / "evaluation.json", text)
    if json_output:
        print_json(scores)
        return
    out.print(_edge_score_table(scores) if known.truth is None else score_table(scores))
    tested = next((scores[kind] for kind in EDGE_TESTS if kind in scores), {})
    coverage = tested.get("coverage", {})
    for name, label in (("null_entries", "zero entries"), ("all_entries", "all entries")):
        if coverage.get(name) is not None:
            out.print(f"intervals that hold the true value, {label}: {coverage[name]:.3f}")


def _score_edges(result: Result, path: Path) -> dict[str, Any]:
    """Scores against a graph that says nothing about entries: only those of whole edges."""
    known = read_known_graph(path, result.clients)
    dims = dict(zip(result.clients, result.state_dims, strict=True))
    entries = np.full((sum(dims.values()), sum(dims.values())), np.nan)
    scores = score(result, Truth(result.clients, tuple(sorted(known.edges)), entries, dims))
    for kind in (*EDGE_TESTS, "fedgc"):
        for level in ENTRY_LEVELS:
            scores.get(kind, {}).pop(level, None)
        scores.get(kind, {}).get("coverage", {})["all_entries"] = None
    silent = [f"'{name}'" for name in result.clients if name not in known.clients]
    if silent:
        print_note(f"{path} does not name {', '.join(silent)}: taken as without edges")
    return scores


def _edge_score_table(scores: dict[str, Any]) -> NarrowTable:
    """One column per estimate; what is undefined or was not decided is a dash."""
    kinds = [kind for kind in (*EDGE_TESTS, "fedgc") if kind in scores]
    labels = {
        "F1": "f1",
        "AUC-ROC": "auc_roc",
        "AUC-PR": "auc_pr",
        "edges not found": "fn",
        "false edges": "fp",
        "share of false edges": "fdr",
        "type I error": "type_1_error",
        "power": "power",
    }
    edges = scores[kinds[0]]["edges"]
    rows = (
        (label, *(format_digits(scores[kind]["edges"].get(key)) for kind in kinds))
        for label, key in labels.items()
    )
    first = f"{edges['num_true']} of {edges['num_possible']} pairs are edges"
    return NarrowTable((first, *kinds), rows, left=(first,))
