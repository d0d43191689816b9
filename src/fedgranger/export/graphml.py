"""GraphML, for Gephi, Cytoscape, yEd, igraph and networkx."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Unpack
from xml.etree import ElementTree

from fedgranger.export.graph import Choice, Scalar, check_names, collect_graph
from fedgranger.results import Result

__all__ = ["to_graphml"]

NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
KINDS = (("boolean", (bool,)), ("long", (int,)), ("double", (int, float)))


def to_graphml(result: Result, **choice: Unpack[Choice]) -> str:
    """Return the text of a GraphML file; the id of a node is the client's name.

    Args:
        result: the run.
        **choice: `alpha`, `correction`, `all_edges`, see `collect_graph`.

    Raises:
        ConfigError: a name has a character that XML does not allow.
    """
    graph = collect_graph(result, **choice)
    check_names(graph, NOT_XML, "XML")
    root = ElementTree.Element("graphml", xmlns=NAMESPACE)
    keys = {
        "graph": _declare(root, "graph", [graph.facts]),
        "node": _declare(root, "node", graph.clients.values()),
        "edge": _declare(root, "edge", [values for _, _, values in graph.edges]),
    }
    body = ElementTree.SubElement(root, "graph", edgedefault="directed")
    _describe(body, keys["graph"], graph.facts)
    for name, values in graph.clients.items():
        _describe(ElementTree.SubElement(body, "node", id=name), keys["node"], values)
    for cause, effect, values in graph.edges:
        edge = ElementTree.SubElement(body, "edge", source=cause, target=effect)
        _describe(edge, keys["edge"], values)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _declare(
    root: ElementTree.Element, what: str, found: Iterable[dict[str, Scalar]]
) -> dict[str, str]:
    """Declare every attribute that has a value, with the narrowest type that holds them all."""
    values: dict[str, list[Scalar]] = {}
    for attributes in found:
        for name, value in attributes.items():
            values.setdefault(name, []).append(value)
    keys = {}
    for name, seen in values.items():
        keys[name] = f"{what}_{name}"
        declared = {"id": keys[name], "for": what, "attr.name": name, "attr.type": _kind(seen)}
        ElementTree.SubElement(root, "key", declared)
    return keys


def _kind(values: list[Scalar]) -> str:
    types = {type(value) for value in values}
    return next((kind for kind, allowed in KINDS if types <= set(allowed)), "string")


def _describe(
    element: ElementTree.Element, keys: dict[str, str], values: dict[str, Scalar]
) -> None:
    for name, value in values.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        ElementTree.SubElement(element, "data", key=keys[name]).text = text
