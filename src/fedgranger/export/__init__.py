"""The graph of a run for other tools: networkx, d3, GraphML, Graphviz, spreadsheets."""

from fedgranger.export.dot import to_dot
from fedgranger.export.formats import FORMATS, export_text
from fedgranger.export.graph import Graph, collect_graph
from fedgranger.export.graphml import to_graphml
from fedgranger.export.network import to_networkx
from fedgranger.export.node_link import to_node_link
from fedgranger.export.table import to_csv

__all__ = [
    "FORMATS",
    "Graph",
    "collect_graph",
    "export_text",
    "to_csv",
    "to_dot",
    "to_graphml",
    "to_networkx",
    "to_node_link",
]
