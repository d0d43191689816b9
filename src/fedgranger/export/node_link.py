"""Node-link JSON, as d3 and `networkx.node_link_graph(data, edges="links")` read it."""

from __future__ import annotations

from typing import Any, Unpack

from fedgranger.export.graph import Choice, collect_graph
from fedgranger.results import Result

__all__ = ["to_node_link"]


def to_node_link(result: Result, **choice: Unpack[Choice]) -> dict[str, Any]:
    """Return the graph as a dictionary that `json.dumps` can write.

    Args:
        result: the run.
        **choice: `alpha`, `correction`, `all_edges`, see `collect_graph`.
    """
    graph = collect_graph(result, **choice)
    return {
        "directed": True,
        "multigraph": False,
        "graph": dict(graph.facts),
        "nodes": [{"id": name, **values} for name, values in graph.clients.items()],
        "links": [
            {"source": cause, "target": effect, **values} for cause, effect, values in graph.edges
        ],
    }
