"""The graph of a run as the text of a file; networkx writes GraphML and node-link JSON.

Every function takes the run and `alpha`, `correction`, `all_edges` as in `choose_edges`. Client
names that a format cannot hold are refused with a `ConfigError`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Unpack

from fedgranger.errors import ConfigError
from fedgranger.export.chosen_edges import Choice, Scalar, choose_edges, plain_values, to_networkx
from fedgranger.option_fields import check_choice
from fedgranger.results import Result
from fedgranger.run_folder import plain_cell

NOT_TEXT = re.compile("\x00")
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
THINNEST, THICKEST = 1.0, 5.0


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
        values = plain_values(row)
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
    pairs = (f"{name}={_dot_value(value)}" for name, value in values.items())
    return f" [{', '.join([*more, *pairs])}]"


def _dot_value(value: Scalar) -> str:
    return _text(value) if isinstance(value, bool) else _quote(str(value))  # 1e-9 is no DOT number


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
