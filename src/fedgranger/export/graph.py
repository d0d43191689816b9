"""`Graph`: clients and edges of a run as plain values, the common source of every format."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pandas as pd

from fedgranger.config import check_choice
from fedgranger.errors import ConfigError
from fedgranger.inference.answer import count_edges, nothing_tested
from fedgranger.inference.decision import CORRECTIONS
from fedgranger.results import Result

__all__ = ["Choice", "Graph", "Scalar", "check_names", "collect_graph"]

Scalar = bool | int | float | str


class Choice(TypedDict, total=False):
    """Which edges to export; the keyword arguments of every `to_` function.

    Attributes:
        alpha: level for `is_edge`; default the run's own.
        correction: for `q_value`; default the run's own.
        all_edges: every pair of clients, not only the supported ones.
    """

    alpha: float | None
    correction: str | None
    all_edges: bool


class Graph(NamedTuple):
    """A directed graph whose attributes are plain values; what is missing has no key.

    Attributes:
        clients: attributes (`sensors`, `state_dim`) by name, in the order of the run.
        edges: (cause, effect, attributes), attributes named like the columns of `Result.edges`.
        columns: names of the attributes of edges, also of those without any value.
        facts: what holds for the whole graph: `is_tested`, `alpha`, `correction`, the counts
            `num_pairs`, `num_tested` and `num_edges`, `fedgranger_version`.
    """

    clients: dict[str, dict[str, Scalar]]
    edges: tuple[tuple[str, str, dict[str, Scalar]], ...]
    columns: tuple[str, ...]
    facts: dict[str, Scalar]


def collect_graph(
    result: Result,
    *,
    alpha: float | None = None,
    correction: str | None = None,
    all_edges: bool = False,
) -> Graph:
    """Take clients and edges from a run, with every column of its edge table.

    Args:
        result: the run.
        alpha: level for `is_edge`; default the run's own.
        correction: for `q_value`; default the run's own.
        all_edges: every pair of clients, not only the supported ones.

    Raises:
        ConfigError: the run has no tests and this was not taken into account.
    """
    is_tested = result.inference is not None
    if alpha is not None and not 0 < alpha < 1:
        raise ConfigError(f"alpha is {alpha}; it must lie between 0 and 1 (exclusive)")
    if correction is not None:
        check_choice("correction", correction, CORRECTIONS)
    if not is_tested and (alpha is not None or correction is not None):
        raise ConfigError("alpha and correction need a run with tests; fit with test='debiased'")
    if not is_tested and not all_edges:
        reason = nothing_tested(result.manifest.get("inference", {}))
        raise ConfigError(
            f"nothing was tested ({reason}), so no edge is known to exist; ask for all edges "
            "(--all-edges) to get every pair, without numbers"
        )
    table = result.edges(alpha=alpha, correction=correction)
    counts = count_edges(table)
    if not all_edges:
        table = table[table["is_edge"].fillna(False).to_numpy(dtype=np.bool_)]
    columns = [str(name) for name in table.columns if name not in ("cause", "effect")]
    rows = zip(*(table[name] for name in ("cause", "effect", *columns)), strict=True)
    edges = tuple(
        (str(cause), str(effect), _present(dict(zip(columns, values, strict=True))))
        for cause, effect, *values in rows
    )
    facts = {
        "is_tested": is_tested,
        "alpha": (result.config.alpha if alpha is None else alpha) if is_tested else None,
        "correction": (correction or result.config.correction) if is_tested else None,
        "num_pairs": counts.possible,
        "num_tested": counts.tested,
        "num_edges": counts.found,
        "fedgranger_version": result.manifest.get("fedgranger_version"),
    }
    return Graph(_clients(result), edges, tuple(columns), _present(facts))


def check_names(graph: Graph, illegal: re.Pattern[str], what: str) -> None:
    """Refuse client names that a format has no way to write."""
    for name in graph.clients:
        found = illegal.search(name)
        if found:
            raise ConfigError(
                f"client {name!r}: the character {found.group()!r} cannot be written in {what}; "
                "use the format json or rename the client"
            )


def _clients(result: Result) -> dict[str, dict[str, Scalar]]:
    """A federated run does not know its clients' sensors."""
    known = result.manifest.get("data", {}).get("clients", {})
    return {
        name: _present({"sensors": known.get(name, {}).get("num_sensors"), "state_dim": dim})
        for name, dim in zip(result.clients, result.state_dims, strict=True)
    }


def _present(values: dict[str, Any]) -> dict[str, Scalar]:
    """Plain Python values; what is missing or not finite is left out."""
    plain = {name: _plain(value) for name, value in values.items()}
    return {name: value for name, value in plain.items() if value is not None}


def _plain(value: Any) -> Scalar | None:
    if value is None or pd.isna(value):
        return None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return str(value)
