r"""The graphs of the compared methods, used for root causes: with the paper's score and with ours.

Every method gets the states that the clients send in normal operation and gives edges between
clients. A graph is used twice:

- the paper's score needs strengths, \(\lVert A_{ij}\rVert_F\) over the edges found: the method's
  own coefficients where it has them (`COEFFICIENTS`), and for tests, whose scores are statistics,
  a least-squares model of the states with these edges;
- ours needs possible causes: what they explain of a client is not blamed on it
  (`inference.reference`).

A method in which clients hold their own states only ("vertical") finds no edge between clients.
Without edges all of the paper's scores are zero, so nobody is ranked, and ours is the surprise
alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from threadpoolctl import threadpool_limits

from fedgranger.data.panel import Panel
from fedgranger.inference.reference import Reference, learn_reference
from fedgranger.inference.states import StateSource
from fedgranger.rca import SCORERS, Evidence, gather
from fedgranger.results import Result
from fedgranger_research.added_noise import sent_states
from fedgranger_research.baselines.method_list import find_methods
from fedgranger_research.baselines.method_protocol import BaselineError, EdgeScores, Method
from fedgranger_research.baselines.method_trials import run_method
from fedgranger_research.baselines.problems import columns_of, with_truth
from fedgranger_research.datasets import PreparedDataset

COEFFICIENTS = frozenset(
    {
        *("fedgc", "feddag", "feddag-horizontal", "notears-admm", "notears-admm-horizontal"),
        *("fdbnl", "fdbnl-horizontal"),
    }
)
"""Methods whose score of an entry is the size of a coefficient."""
NAMES = (
    *("fedgc", "asymptotic", "debiased", "fedpc", "feddag", "notears-admm", "fdbnl"),
    *("fedpc-horizontal", "feddag-horizontal", "notears-admm-horizontal", "fdbnl-horizontal"),
)
SCORES = {"paper": "paper's score", "unexplained": "our score"}


class Graph(NamedTuple):
    """What a method found.

    Attributes:
        name: of the method.
        is_edge: between clients, without the diagonal.
        strengths: of these edges, 0 elsewhere.
        seconds: of the fit.
        status: of the fit; "refused" when there is no graph.
        reason: why it was refused.
    """

    name: str
    is_edge: Bool[np.ndarray, "effect cause"]
    strengths: Float[np.ndarray, "effect cause"]
    seconds: float
    status: str
    reason: str = ""

    @property
    def key(self) -> bytes:
        """Equal for graphs with the same edges; empty when there is no graph."""
        return b"" if self.status == "refused" else self.is_edge.tobytes()

    @property
    def facts(self) -> dict[str, Any]:
        """Columns of every row that this graph gives."""
        M = len(self.is_edge)
        return {
            "graph": self.name,
            "edges": float(self.is_edge.sum()) if self.key else np.nan,
            "possible_edges": M * (M - 1),
            "seconds": self.seconds,
            "status": self.status,
            "reason": self.reason,
        }


def find_graphs(source: StateSource, methods: Mapping[str, Method]) -> list[Graph]:
    """The graph of every method; one that refuses the states has its reason and no edges."""
    found = []
    for name, method in methods.items():
        try:
            problem = with_truth(columns_of(source), ())
            answer = run_method(name, method, problem)
        except (BaselineError, np.linalg.LinAlgError) as error:
            nothing = np.zeros((len(source.names), len(source.names)))
            found.append(Graph(name, nothing > 0, nothing, np.nan, "refused", str(error)))
            continue
        is_edge = answer.is_client_edge & ~np.eye(len(source.names), dtype=np.bool_)
        strengths = _strengths(name, answer, is_edge, source)
        found.append(Graph(name, is_edge, strengths, answer.seconds, answer.status))
    return found


def _strengths(
    name: str, answer: EdgeScores, is_edge: np.ndarray, source: StateSource
) -> np.ndarray:
    """Frobenius norms of the blocks, from the entries that the method keeps."""
    if name in COEFFICIENTS:
        matrix = np.where(answer.is_edge, answer.score, 0.0)
    else:
        matrix = _expectations(source, is_edge).cross
    return np.where(is_edge, block_norms(matrix, source.owner), 0.0)


def block_norms(matrix: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """[m, n]: Frobenius norm of the entries with rows of client m and columns of client n."""
    clients = np.arange(owner.max() + 1)
    is_of = (owner[:, None] == clients).astype(np.float64)
    return np.sqrt(is_of.T @ np.square(matrix) @ is_of)


def _expectations(source: StateSource, is_edge: np.ndarray) -> Reference:
    with threadpool_limits(1):
        return learn_reference(source, is_edge)


class GraphScores:
    """Scores windows of new data with every graph; what equal graphs share is computed once."""

    def __init__(self, result: Result, source: StateSource, graphs: Sequence[Graph]) -> None:
        """Learn what each graph lets a client expect of the others."""
        self._result, self._graphs = result, graphs
        made = {graph.key: graph.is_edge for graph in graphs if graph.key}
        self._references = {key: _expectations(source, edges) for key, edges in made.items()}

    def rows(self, panel: Panel, windows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """One row per window, graph and score; "" in place of the scores of a refusal.

        Args:
            panel: new data.
            windows: with `start` and `end` (inclusive), and what their rows keep.
        """
        evidence = {
            key: gather(replace(self._result, reference=reference), panel)
            for key, reference in self._references.items()
        }
        out = []
        for window in windows:
            steps = slice(window["start"], window["end"] + 1)
            kept = {key: window[key] for key in window if key not in ("start", "end")}
            parts = {key: whole.steps(steps) for key, whole in evidence.items()}
            for graph in self._graphs:
                for score, words in SCORES.items():
                    row = {
                        "method": f"{graph.name}, {words}",
                        "clients": ";".join(self._result.clients),
                        "score": score,
                        "scores": _values(score, parts.get(graph.key), graph),
                    }
                    out.append(kept | row | graph.facts)
        return out


def _values(score: str, part: Evidence | None, graph: Graph) -> str:
    return "" if part is None else json.dumps(SCORERS[score](part, graph.strengths).tolist())


def graph_rows(
    dataset: PreparedDataset, result: Result, names: Iterable[str] = NAMES
) -> list[dict[str, Any]]:
    """Rows of all anomalies of a data set, for each of these methods and both scores."""
    with jax.enable_x64(True):
        source = sent_states(dataset.train, result.config, {})
    scores = GraphScores(result, source, find_graphs(source, find_methods(names)))
    out = []
    for run in dataset.runs:
        own = (dataset.instances["run"] == run.name) & (dataset.instances["split"] == run.split)
        windows = [
            {
                "split": run.split,
                "run": run.name,
                "instance": instance["instance_id"],
                "roots": instance["root_clients"],
                "start": instance["start"],
                "end": instance["end"],
            }
            for instance in dataset.instances.loc[own].to_dict("records")
        ]
        if windows:
            out += scores.rows(run.panel, windows)
    return out
