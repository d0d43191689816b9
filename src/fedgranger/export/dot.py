"""DOT, for Graphviz."""

from __future__ import annotations

import re
from typing import Unpack

from fedgranger.export.graph import Choice, Scalar, check_names, collect_graph
from fedgranger.results import Result

__all__ = ["to_dot"]

NOT_TEXT = re.compile("\x00")
THINNEST, THICKEST = 1.0, 5.0


def to_dot(result: Result, **choice: Unpack[Choice]) -> str:
    """Return the text of a DOT file; arrows are drawn thicker the stronger the edge.

    Args:
        result: the run.
        **choice: `alpha`, `correction`, `all_edges`, see `collect_graph`.

    Raises:
        ConfigError: a name has a character that DOT does not allow.
    """
    graph = collect_graph(result, **choice)
    check_names(graph, NOT_TEXT, "DOT")
    strengths = [values.get("strength", 0.0) for _, _, values in graph.edges]
    strongest = max((float(value) for value in strengths), default=0.0)
    lines = [f"  graph{_attributes(graph.facts)};"]
    for name, values in graph.clients.items():
        # Graphviz reads entities such as &lt; in what it draws, but not in names.
        label = _quote(name.replace("&", "&amp;"))
        lines.append(f"  {_quote(name)}{_attributes(values, f'label={label}')};")
    for (cause, effect, values), strength in zip(graph.edges, strengths, strict=True):
        share = float(strength) / strongest if strongest else 0.0
        width = f"penwidth={THINNEST + (THICKEST - THINNEST) * share:.3g}"
        lines.append(f"  {_quote(cause)} -> {_quote(effect)}{_attributes(values, width)};")
    return "\n".join(["digraph fedgranger {", *lines, "}"]) + "\n"


def _attributes(values: dict[str, Scalar], *more: str) -> str:
    return f" [{', '.join([*more, *(f'{name}={_value(v)}' for name, v in values.items())])}]"


def _value(value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _quote(repr(value) if isinstance(value, float) else str(value))  # 1e-9 is no DOT number


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
