"""The edges of a run that are to be exported, and the same as a networkx object."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
import pandas as pd

from fedgranger.errors import ConfigError
from fedgranger.inference.answer import count_edges, nothing_tested
from fedgranger.inference.decision import CORRECTIONS
from fedgranger.option_fields import check_choice
from fedgranger.results import Result

if TYPE_CHECKING:
    import networkx

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


def choose_edges(
    result: Result,
    *,
    alpha: float | None = None,
    correction: str | None = None,
    all_edges: bool = False,
) -> tuple[pd.DataFrame, dict[str, Scalar]]:
    """Take the rows of a run's edge table, and what holds for the whole graph.

    Args:
        result: the run.
        alpha: level for `is_edge`; default the run's own.
        correction: for `q_value`; default the run's own.
        all_edges: every pair of clients, not only the supported ones.

    Returns:
        rows of `Result.edges`, and `is_tested`, `alpha`, `correction`, `num_pairs`, `num_tested`,
        `num_edges` and `fedgranger_version` by name.

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
    facts = {
        "is_tested": is_tested,
        "alpha": (result.config.alpha if alpha is None else alpha) if is_tested else None,
        "correction": (correction or result.config.correction) if is_tested else None,
        "num_pairs": counts.possible,
        "num_tested": counts.tested,
        "num_edges": counts.found,
        "fedgranger_version": result.manifest.get("fedgranger_version"),
    }
    if not all_edges:
        table = table.loc[table["is_edge"].fillna(False).to_numpy(dtype=np.bool_)]
    return table, plain_values(facts)


def to_networkx(result: Result, **choice: Unpack[Choice]) -> networkx.DiGraph:
    """Return a `networkx.DiGraph`; edges have the columns of `Result.edges` as attributes.

    Args:
        result: the run.
        **choice: `alpha`, `correction`, `all_edges`, see `choose_edges`.
    """
    import networkx

    table, facts = choose_edges(result, **choice)
    graph = networkx.DiGraph()
    graph.graph.update(facts)
    known = result.manifest.get("data", {}).get("clients", {})
    for name, dim in zip(result.clients, result.state_dims, strict=True):
        sensors = known.get(name, {}).get("num_sensors")  # not known in a federated run
        graph.add_node(name, **plain_values({"sensors": sensors, "state_dim": dim}))
    for row in table.to_dict("records"):
        values = plain_values(row)
        graph.add_edge(values.pop("cause"), values.pop("effect"), **values)
    return graph


def plain_values(values: Mapping[Any, Any]) -> dict[str, Scalar]:
    """Turn numpy's values into Python's; what is missing or not finite is left out."""
    plain = {str(name): _plain(value) for name, value in values.items()}
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
