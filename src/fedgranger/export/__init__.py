"""The graph of a run for other tools: networkx, d3, GraphML, Graphviz, spreadsheets."""

from fedgranger.export.formats import (
    FORMATS,
    export_text,
    to_csv,
    to_dot,
    to_graphml,
    to_networkx,
    to_node_link,
)

__all__ = [
    "FORMATS",
    "export_text",
    "to_csv",
    "to_dot",
    "to_graphml",
    "to_networkx",
    "to_node_link",
]
