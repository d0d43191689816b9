"""Compare found edges with a known truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fedgranger.data.truth import Truth
from fedgranger.errors import DataError
from fedgranger.results import Result

__all__ = ["evaluate", "score_ranking"]


def evaluate(result: Result, truth: Truth) -> dict[str, Any]:
    """Score the ranking of client edges and of single entries across clients.

    An entry counts as true when its block is a true edge, so the score does not need the clients
    to have found the states in the coordinates of the simulation.
    """
    if set(result.clients) != set(truth.clients):
        odd = sorted(set(result.clients) ^ set(truth.clients))
        raise DataError(
            f"the run and the truth have different clients, for example '{odd[0]}'; "
            "give the truth.json that belongs to the data"
        )
    edges, entries = result.edges(), result.entries()
    return {
        "num_clients": len(truth.clients),
        "num_true_edges": len(truth.edges),
        "edges": score_ranking(_is_true(edges, truth), edges["strength"].to_numpy()),
        "entries": score_ranking(
            _is_true(entries, truth), np.abs(entries["estimate"].to_numpy())
        ),
    }


def score_ranking(is_true: np.ndarray, score: np.ndarray) -> dict[str, Any]:
    """AUC-ROC and AUC-PR of a score; None where one of the two classes is empty.

    `base_rate` is the AUC-PR of a random ranking.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score  # slow to import

    num_true, num_all = int(is_true.sum()), len(is_true)
    defined = 0 < num_true < num_all
    return {
        "num_true": num_true,
        "num_possible": num_all,
        "auc_roc": float(roc_auc_score(is_true, score)) if defined else None,
        "auc_pr": float(average_precision_score(is_true, score)) if defined else None,
        "base_rate": num_true / num_all,
    }


def _is_true(table: pd.DataFrame, truth: Truth) -> np.ndarray:
    edges = set(truth.edges)
    return np.array(
        [pair in edges for pair in zip(table["cause"], table["effect"], strict=True)],
        dtype=np.bool_,
    )
