"""The graph of a run for other tools: as a networkx object, or as the text of a file.

Every function takes the run and `alpha`, `correction`, `all_edges` as in `Choice`. Client names
that a format cannot hold are refused with a `ConfigError`; networkx writes GraphML and node-link
JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
import pandas as pd

from fedgranger.edge_test_kinds import CORRECTIONS
from fedgranger.errors import ConfigError
from fedgranger.inference.answer import count_edges, nothing_tested
from fedgranger.option_fields import check_choice, check_level
from fedgranger.results import Result
from fedgranger.run_folder import plain_cell

if TYPE_CHECKING:
    import networkx

Scalar = bool | int | float | str
NOT_TEXT = re.compile("\x00")
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
THINNEST, THICKEST = 1.0, 5.0


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

    Returns:
        rows of `Result.edges`, and `is_tested`, `alpha`, `correction`, `num_pairs`, `num_tested`,
        `num_edges` and `fedgranger_version` by name.

    Raises:
        ConfigError: the run has no tests and this was not taken into account.
    """
    is_tested = result.inference is not None
    check_level("alpha", alpha)
    if correction is not None:
        check_choice("correction", correction, CORRECTIONS)
    if not is_tested and (alpha is not None or correction is not None):
        raise ConfigError("alpha and correction need a run with tests; fit with test='debiased'")
    if not is_tested and not all_edges:
        reason = nothing_tested(result.manifest.inference)
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
        "fedgranger_version": result.manifest.fedgranger_version,
    }
    if not all_edges:
        table = table.loc[table["is_edge"].fillna(False).to_numpy(dtype=np.bool_)]
    return table, _plain_values(facts)


def to_networkx(result: Result, **choice: Unpack[Choice]) -> networkx.DiGraph:
    """Return a `networkx.DiGraph`; edges have the columns of `Result.edges` as attributes."""
    import networkx

    table, facts = choose_edges(result, **choice)
    graph = networkx.DiGraph()
    graph.graph.update(facts)
    known = result.manifest.data.clients
    for name, dim in zip(result.clients, result.state_dims, strict=True):
        sensors = known[name].num_sensors if name in known else None  # unknown between parties
        graph.add_node(name, **_plain_values({"sensors": sensors, "state_dim": dim}))
    for row in table.to_dict("records"):
        values = _plain_values(row)
        graph.add_edge(values.pop("cause"), values.pop("effect"), **values)
    return graph


def to_graphml(result: Result, **choice: Unpack[Choice]) -> str:
    """Return the text of a GraphML file; the id of a node is the client's name."""
    from networkx import GraphMLWriter

    class Writer(GraphMLWriter):
        """Writes `true`, as XML has it, where networkx writes `True`."""

        def add_data(
            self, name: str, element_type: type, value: str, scope: Any = "all", default: Any = None
        ) -> Any:
            text = value.lower() if element_type is bool else value
            return super().add_data(name, element_type, text, scope, default)

    graph = to_networkx(result, **choice)
    _check_names(result, NOT_XML, "XML")
    text = str(Writer(graph, infer_numeric_types=True))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'


def to_node_link(result: Result, **choice: Unpack[Choice]) -> dict[str, Any]:
    """Return what d3 and `networkx.node_link_graph(data, edges="links")` read."""
    import networkx

    return networkx.node_link_data(to_networkx(result, **choice), edges="links")


def to_dot(result: Result, **choice: Unpack[Choice]) -> str:
    """Return the text of a DOT file; arrows are drawn thicker the stronger the edge."""
    graph = to_networkx(result, **choice)
    _check_names(result, NOT_TEXT, "DOT")
    strengths = [float(values.get("strength", 0.0)) for _, _, values in graph.edges(data=True)]
    strongest = max(strengths, default=0.0) or 1.0
    lines = [f"  graph{_attributes(graph.graph)};"]
    for name, values in graph.nodes(data=True):
        # Graphviz reads entities such as &lt; in what it draws, but not in names.
        label = _quote(name.replace("&", "&amp;"))
        lines.append(f"  {_quote(name)}{_attributes(values, f'label={label}')};")
    for (cause, effect, values), strength in zip(graph.edges(data=True), strengths, strict=True):
        width = f"penwidth={THINNEST + (THICKEST - THINNEST) * strength / strongest:.3g}"
        lines.append(f"  {_quote(cause)} -> {_quote(effect)}{_attributes(values, width)};")
    return "\n".join(["digraph fedgranger {", *lines, "}"]) + "\n"


def to_csv(result: Result, **choice: Unpack[Choice]) -> str:
    """Return one line per edge with all columns of `Result.edges`; missing values are empty.

    Names that a spreadsheet would compute stand behind an apostrophe.
    """
    table, _ = choose_edges(result, **choice)
    _check_names(result, NOT_TEXT, "a text file")
    rows = [[str(name) for name in table.columns]]
    for row in table.to_dict("records"):
        values = _plain_values(row)
        values |= {name: plain_cell(str(values[name])) for name in ("cause", "effect")}
        rows.append([_text(values.get(name, "")) for name in rows[0]])
    return "".join(",".join(_csv_cell(cell) for cell in row) + "\n" for row in rows)


def to_json(result: Result, **choice: Unpack[Choice]) -> str:
    """Return node-link JSON in ASCII, so that file names that are not valid text survive."""
    return json.dumps(to_node_link(result, **choice), indent=1, allow_nan=False) + "\n"


FORMATS = {"graphml": to_graphml, "dot": to_dot, "json": to_json, "csv": to_csv}


def export_text(result: Result, format_name: str, **choice: Unpack[Choice]) -> str:
    """Return the graph in one of `FORMATS`."""
    check_choice("format", format_name, tuple(FORMATS))
    return FORMATS[format_name](result, **choice)


def _check_names(result: Result, illegal: re.Pattern[str], what: str) -> None:
    """Refuse client names that a format has no way to write."""
    for name in result.clients:
        found = illegal.search(name)
        if found:
            raise ConfigError(
                f"client {name!r}: the character {found.group()!r} cannot be written in {what}; "
                "use the format json or rename the client"
            )


def _attributes(values: dict[str, Scalar], *more: str) -> str:
    pairs = (  # numbers are quoted: 1e-9 is none in DOT
        f"{name}={_text(value) if isinstance(value, bool) else _quote(str(value))}"
        for name, value in values.items()
    )
    return f" [{', '.join([*more, *pairs])}]"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _csv_cell(text: str) -> str:
    """The csv module of Python 3.11 leaves a lone carriage return without quotes."""
    if re.search(r'[,"\r\n]|^\s|\s$', text):
        return '"' + text.replace('"', '""') + '"'
    return text


def _plain_values(values: Mapping[Any, Any]) -> dict[str, Scalar]:
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
