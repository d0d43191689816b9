"""Scores of a method against the truth: as the paper counted, and fairly.

- `paper`: all entries, the blocks within clients included; F1 of the decisions, and the area under
  the curves of the 0/1 decisions for every method but FedGC and the library's tests, whose
  continuous scores are used. This is how the paper's table can be reconstructed: two different
  areas in one column.
- `entries`: entries across clients only, the continuous score of every method.
- `clients`: ordered pairs of different clients, the continuous score of every method.

Size is the share of absent edges that a method reports by its own decision, power that of present
ones: the same definition for methods with and without p-values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedgranger.evaluation.metrics import score
from fedgranger_research.baselines.method_protocol import BaselineError, EdgeScores
from fedgranger_research.baselines.ours import METHODS as OURS
from fedgranger_research.baselines.problems import Problem

LEVELS = ("paper", "entries", "clients")
MEASURES = ("f1", "auc_roc", "auc_pr", "shd", "fp", "fn", "size", "power")


def score_method(name: str, found: EdgeScores, problem: Problem) -> list[dict[str, Any]]:
    """One row per level, with `MEASURES`; None where one is not defined."""
    check_shapes(name, found, problem)
    owner = problem.owner
    across = owner[:, None] != owner
    apart = ~np.eye(len(problem.columns.names), dtype=np.bool_)
    counted = problem.is_known[np.ix_(owner, owner)]
    continuous = found.score if name in OURS else found.is_edge.astype(np.float64)
    parts = {
        "paper": (problem.is_true, continuous, found.is_edge, counted),
        "entries": (problem.is_true, found.score, found.is_edge, counted & across),
        "clients": (
            problem.is_client_true,
            found.client_score,
            found.is_client_edge,
            problem.is_known & apart,
        ),
    }
    rows = []
    for level, (truth, strength, decided, where) in parts.items():
        is_true, is_found = truth[where], decided[where]
        found_scores = score(is_true, strength[where], is_found)
        rates = {
            "size": _share(is_found[~is_true]),
            "power": _share(is_found[is_true]),
        }
        values = found_scores | rates
        rows.append({"level": level} | {measure: values[measure] for measure in MEASURES})
    return rows


def check_shapes(name: str, found: EdgeScores, problem: Problem) -> None:
    """Refuse an answer that does not fit the columns, before anything is scored.

    Raises:
        BaselineError: names the method, the field, what was given and what is needed.
    """
    P, M = sum(problem.columns.dims), len(problem.columns.names)
    shapes = {"score": P, "is_edge": P, "client_score": M, "is_client_edge": M}
    for field, size in shapes.items():
        value = np.asarray(getattr(found, field))
        if value.shape != (size, size):
            raise BaselineError(
                f"method '{name}': {field} has shape {value.shape}, ({size}, {size}) is needed; "
                "rows are effects, columns are causes"
            )
        if field.startswith("is_") and value.dtype != np.bool_:
            raise BaselineError(
                f"method '{name}': {field} has type {value.dtype}, bool is needed; compare the "
                "score with your threshold"
            )
        if not np.isfinite(value).all():
            raise BaselineError(
                f"method '{name}': {field} has entries that are not finite; give 0 where the "
                "method says nothing"
            )


def _share(flags: np.ndarray) -> float | None:
    return float(flags.mean()) if len(flags) else None
