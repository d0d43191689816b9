"""One scorer for edges and entries, against a known truth.

Three levels: client edges; entries of the blocks across clients; all P² entries with the blocks
within clients, which are always true (the way the paper's table counts).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fedgranger.data.truth import Truth
from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.errors import DataError, RunError
from fedgranger.inference.decision import adjust
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.results import Result


def evaluate(result: Result, truth: Truth) -> dict[str, Any]:
    """Score a run, both estimates where it has both.

    An entry counts as true when its block is a true edge, so the score does not need the clients
    to have found the states in the coordinates of the simulation. Coverage of the true values is
    scored only when the local models were given, because only then the coordinates agree.
    """
    if set(result.clients) != set(truth.clients):
        odd = sorted(set(result.clients) ^ set(truth.clients))
        raise DataError(
            f"the run and the truth have different clients, for example '{odd[0]}'; "
            "give the truth.json that belongs to the data"
        )
    if result.inference is None and result.granger is None:
        raise RunError("the run has neither tests nor FedGC's estimate, so nothing can be scored")
    scores: dict[str, Any] = {
        "num_clients": len(truth.clients),
        "num_true_edges": len(truth.edges),
        "alpha": result.config.alpha,
        "correction": result.config.correction,
    }
    if result.inference is not None:
        kind = result.inference.facts.test
        scores[kind] = _score_tested(result, result.inference, truth)
    if result.granger is not None:
        scores["fedgc"] = _score_fedgc(result, result.granger, truth)
    return scores


def score(
    is_true: np.ndarray,
    strength: np.ndarray,
    is_found: np.ndarray | None = None,
    p_value: np.ndarray | None = None,
    alpha: float = 0.05,
) -> dict[str, Any]:
    """Ranking scores of `strength`, decision scores of `is_found`, error rates of `p_value`.

    Without any true edge, finding none is perfect (F1 = 1) and finding one is worthless (F1 = 0);
    AUCs are None where one of the two classes is empty, rates where nothing is counted.

    Args:
        is_true: the truth.
        strength: larger means more likely.
        is_found: the decisions, after any correction.
        p_value: raw p-values, for type-I error and power at `alpha`; NaN where not computed.
        alpha: level of the single test.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score  # slow to import

    num_true, num_all = int(is_true.sum()), len(is_true)
    defined = 0 < num_true < num_all
    out: dict[str, Any] = {
        "num_true": num_true,
        "num_possible": num_all,
        "auc_roc": float(roc_auc_score(is_true, strength)) if defined else None,
        "auc_pr": float(average_precision_score(is_true, strength)) if defined else None,
        "base_rate": num_true / num_all if num_all else None,
    }
    if is_found is not None:
        fp, fn = int((is_found & ~is_true).sum()), int((~is_found & is_true).sum())
        num_found = int(is_found.sum())
        out |= {
            "f1": _f1(is_true, is_found) if num_all else 1.0,
            "fp": fp,
            "fn": fn,
            "shd": fp + fn,
            "fdr": fp / num_found if num_found else 0.0,
        }
    if p_value is not None:
        known = ~np.isnan(p_value)
        out |= {
            "type_1_error": _share(p_value[known & ~is_true] <= alpha),
            "power": _share(p_value[known & is_true] <= alpha),
        }
    return out


def _score_tested(result: Result, found: EdgeInference, truth: Truth) -> dict[str, Any]:
    config = result.config
    edges = result.edges()
    is_edge = edges["is_edge"].fillna(False).to_numpy(dtype=np.bool_)
    out: dict[str, Any] = {
        "edges": score(
            pairs_are_true(edges, truth),
            -edges["p_value"].fillna(1.0).to_numpy(),
            is_edge,
            edges["p_value"].to_numpy(),
            config.alpha,
        )
    }
    is_true, is_within = _entry_truth(result, truth, found.transition.shape[1])
    for level, keep in (("entries_across", ~is_within), ("entries_all", np.ones_like(is_within))):
        p = found.p_value[keep]
        decided = np.nan_to_num(adjust(p, config.correction), nan=1.0) <= config.alpha
        out[level] = score(is_true[keep], -np.nan_to_num(p, nan=1.0), decided, p, config.alpha)
    out["coverage"] = _coverage(result, truth)
    return out


def _score_fedgc(result: Result, granger: np.ndarray, truth: Truth) -> dict[str, Any]:
    edges = result.edges(estimate="fedgc")
    is_true, is_within = _entry_truth(result, truth, len(granger))
    size = np.abs(granger)
    return {
        "edges": score(pairs_are_true(edges, truth), edges["strength"].to_numpy()),
        "entries_across": score(is_true[~is_within], size[~is_within]),
        "entries_all": score(is_true.reshape(-1), size.reshape(-1)),
    }


def _coverage(result: Result, truth: Truth) -> dict[str, float | None]:
    """Share of intervals that hold the true value: of zero entries, and of all when comparable."""
    entries = result.entries()
    null = ~pairs_are_true(entries, truth)
    low, high = entries["ci_low"].to_numpy(), entries["ci_high"].to_numpy()
    out: dict[str, float | None] = {
        "null_entries": _share((low[null] <= 0) & (high[null] >= 0)),
        "all_entries": None,
    }
    methods = {one.state_model for one in result.manifest.data.clients.values()}
    tested = result.manifest.inference
    if (
        methods <= {"given", "known"}
        and tested.lags == 1
        and EDGE_TESTS[tested.test].estimates_transition
    ):
        true = true_entries(entries, truth)
        out["all_entries"] = _share((low <= true) & (true <= high))
    return out


def true_entries(entries: pd.DataFrame, truth: Truth) -> np.ndarray:
    """The true value of every row of an entry table, in the coordinates of the simulation.

    Columns come lag after lag; an edge is at the lag of its dead time, and zero at the others.
    """
    places = (entries[name] for name in ("effect", "cause", "row", "col"))
    values = []
    for effect, cause, i, j in zip(*places, strict=True):
        lag, state = divmod(int(j), truth.state_dims[cause])
        values.append(truth.block(effect, cause)[i, state] if lag == truth.dead_time else 0.0)
    return np.array(values)


def pairs_are_true(table: pd.DataFrame, truth: Truth) -> np.ndarray:
    """Whether the (cause, effect) of every row is a true edge."""
    edges = set(truth.edges)
    return np.array(
        [pair in edges for pair in zip(table["cause"], table["effect"], strict=True)],
        dtype=np.bool_,
    )


def _entry_truth(result: Result, truth: Truth, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Bool matrices: the entry's block is true; the entry lies within a client."""
    edges = set(truth.edges)
    owner = np.repeat(np.arange(len(result.clients)), result.state_dims)
    lags = width // len(owner)
    columns = np.tile(owner, lags)
    linked = np.array(
        [[(cause, effect) in edges for cause in result.clients] for effect in result.clients]
    )
    lag, is_within = np.repeat(np.arange(lags), len(owner)), owner[:, None] == columns[None, :]
    is_true = linked[np.ix_(owner, columns)] & (lag == truth.dead_time)
    return is_true | (is_within & (lag == 0)), is_within


def _f1(is_true: np.ndarray, is_found: np.ndarray) -> float:
    from sklearn.metrics import f1_score  # slow to import

    # The stubs know only the words that zero_division may be, not the numbers.
    return float(f1_score(is_true, is_found, zero_division=1.0))  # pyright: ignore[reportArgumentType]


def _share(flags: np.ndarray) -> float | None:
    return float(flags.mean()) if len(flags) else None
