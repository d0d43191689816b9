"""The graph as a networkx object; networkx is an optional dependency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from fedgranger.errors import ConfigError
from fedgranger.export.graph import Choice, collect_graph
from fedgranger.results import Result

if TYPE_CHECKING:
    import networkx

__all__ = ["to_networkx"]


def to_networkx(result: Result, **choice: Unpack[Choice]) -> networkx.DiGraph:
    """Return a `networkx.DiGraph` with the attributes of clients and edges.

    Args:
        result: the run.
        **choice: `alpha`, `correction`, `all_edges`, see `collect_graph`.

    Raises:
        ConfigError: networkx is not installed.
    """
    try:
        import networkx
    except ModuleNotFoundError:
        raise ConfigError(
            "to_networkx needs networkx, which is not installed; pip install 'fedgranger[graph]'"
        ) from None
    graph = collect_graph(result, **choice)
    out = networkx.DiGraph()
    out.graph.update(graph.facts)
    for name, values in graph.clients.items():
        out.add_node(name)
        out.nodes[name].update(values)
    for cause, effect, values in graph.edges:
        out.add_edge(cause, effect)
        out.edges[cause, effect].update(values)
    return out
