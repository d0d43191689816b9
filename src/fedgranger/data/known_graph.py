"""A known graph to compare a run with: `truth.json`, .csv, and by networkx GraphML and node-link.

An edge whose attribute `is_edge` is false is not an edge.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fedgranger.data.truth import Truth
from fedgranger.errors import DataError
from fedgranger.text import counted, did_you_mean

WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class KnownGraph(NamedTuple):
    """Who drives whom, (cause, effect), according to a file.

    Clients are in the order of the file; of a `truth.json` the whole content is kept.
    """

    clients: tuple[str, ...]
    edges: frozenset[tuple[str, str]]
    truth: Truth | None = None


class _Edge(NamedTuple):
    cause: str
    effect: str
    is_edge: Any  # None where the file has no such column
    place: str


class _File(NamedTuple):
    """Content before it is checked; clients by the number of times that the file lists them."""

    edges: list[_Edge]
    clients: dict[str, int]
    truth: Truth | None = None


def read_known_graph(path: str | Path, clients: Collection[str] | None = None) -> KnownGraph:
    """Read a .json (truth or node-link), .csv or .graphml (or .xml) file.

    If `clients` are given, no other names may occur.

    Raises:
        DataError: the file cannot be read, names unknown clients, has an edge twice, a client
            that drives itself, or edges without direction.
    """
    path = Path(path)
    kinds = {".json": _read_json, ".csv": _read_csv}
    kinds |= {".graphml": _read_graphml, ".xml": _read_graphml}
    if path.suffix.lower() not in kinds:
        raise DataError(f"{path}: the name of a known graph must end in one of {', '.join(kinds)}")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason}); save it as UTF-8") from None
    return _checked(path, kinds[path.suffix.lower()](path, text), clients)


def _checked(path: Path, file: _File, allowed: Collection[str] | None) -> KnownGraph:
    listed = [name for name, times in file.clients.items() if times]
    known = listed if allowed is None else allowed
    in_file = ("among those that the file lists", "list it or correct the name")
    in_run = ("in the run", f"its clients are {', '.join(known)}")
    has_marks = any(edge.is_edge is not None for edge in file.edges)
    seen: dict[tuple[str, str], str] = {}
    edges = set()
    for edge in file.edges:
        pair, where = (edge.cause, edge.effect), f"{path}, {edge.place}"
        for name in pair:
            _check_name(where, name, listed, *in_file)
            _check_name(where, name, known, *in_run)
        if edge.cause == edge.effect:
            raise DataError(f"{where}: '{edge.cause}' drives itself; leave such edges out")
        if pair in seen:
            raise DataError(
                f"{where}: the edge '{edge.cause}' -> '{edge.effect}' was already given in "
                f"{seen[pair]}; leave one of them out"
            )
        seen[pair] = edge.place
        if not has_marks or _is_edge(where, edge.is_edge):
            edges.add(pair)
    for name in listed:
        if file.clients[name] > 1:
            raise DataError(f"{path}: client '{name}' is listed twice; leave one of them out")
        _check_name(str(path), name, known, *in_run)
    return KnownGraph(tuple(listed), frozenset(edges), file.truth)


def _check_name(where: str, name: str, names: Collection[str], where_not: str, remedy: str) -> None:
    if name not in names:
        hint = did_you_mean(name, names)
        raise DataError(f"{where}: client '{name}' is not {where_not}{hint}; {remedy}")


def _is_edge(where: str, value: Any) -> bool:
    word = "" if value is None else str(value).strip().lower()
    if not word:
        raise DataError(
            f"{where}: is_edge is empty, so it is not known whether this is an edge; write true "
            "or false, or export without --all-edges"
        )
    if word not in WORDS:
        raise DataError(f"{where}: is_edge is '{value}'; write true or false")
    return WORDS[word]


def _read_csv(path: Path, text: str) -> _File:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    edges = []
    try:
        header = [name.strip().lower() for name in next(rows, [])]
        for name in ("cause", "effect"):
            if header.count(name) != 1:
                raise DataError(
                    f"{path}, line 1: one column '{name}' is needed; the first line must name the "
                    "columns cause,effect and, if you like, is_edge"
                )
        for row in filter(None, rows):
            place = f"line {rows.line_num}"
            if len(row) != len(header):
                raise DataError(
                    f"{path}, {place}: {counted(len(row), 'cell')} for {len(header)} columns; "
                    "put names with commas in quotes"
                )
            cells = dict(zip(header, row, strict=True))
            if not cells["cause"].strip() or not cells["effect"].strip():
                raise DataError(f"{path}, {place}: cause or effect is empty; fill it in")
            edges.append(_Edge(cells["cause"], cells["effect"], cells.get("is_edge"), place))
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num}: not readable as CSV ({error})") from None
    return _File(edges, dict.fromkeys((name for edge in edges for name in edge[:2]), 1))


def _read_json(path: Path, text: str) -> _File:
    with _refusing(path, "JSON"):
        table = json.loads(text)
    keys = set(table) if isinstance(table, dict) else set()
    if "nodes" not in keys and keys & {"clients", "transition"}:
        truth = Truth.read(path)
        edges = [_Edge(*pair, None, f"edge {k}") for k, pair in enumerate(truth.edges, start=1)]
        return _File(edges, Counter(truth.clients), truth)
    if "nodes" not in keys:
        raise DataError(
            f"{path}: neither a truth.json (key 'clients' or 'transition' is missing) nor "
            "node-link JSON (key 'nodes' is missing); give one of them"
        )
    import networkx

    with _refusing(path, "node-link JSON"):
        links = table["links" if "links" in keys or "edges" not in keys else "edges"]
        table |= {"multigraph": True, "links": [{**v, "key": k} for k, v in enumerate(links)]}
        graph = networkx.node_link_graph(table, directed=True, edges="links")
        return _from_networkx(
            path, graph, Counter(_name(path, v.get("id")) for v in table["nodes"])
        )


def _read_graphml(path: Path, text: str) -> _File:
    if "<!ENTITY" in text:  # a few nested ones make gigabytes of a small file
        raise DataError(f"{path}: defines XML entities, which a graph does not need; remove them")
    from networkx import GraphMLReader

    names: list[str] = []

    def take(name: str | None) -> str:
        names.append(_name(path, name))
        return names[-1]

    # A key of its own for every edge, so that none replaces another with the same id.
    reader = GraphMLReader(take, lambda _: object(), force_multigraph=True)
    text = text.replace("<graphml>", f'<graphml xmlns="{reader.NS_GRAPHML}">')
    with _refusing(path, "GraphML"), warnings.catch_warnings(action="ignore"):
        graphs = list(reader(string=text))
        if len(graphs) != 1:
            raise DataError(f"{path}: {len(graphs)} <graph> elements; one GraphML graph is needed")
        ends = graphs[0].degree  # every <node> and every end of an edge names a client once
        return _from_networkx(path, graphs[0], {n: k - ends[n] for n, k in Counter(names).items()})


@contextlib.contextmanager
def _refusing(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a damaged file makes a reader raise into a sentence."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or repr(error)
        raise DataError(f"{path}: cannot be read as {kind} ({reason}); export it again") from None


def _name(path: Path, name: Any) -> str:
    if not isinstance(name, str):
        raise DataError(f"{path}: a node or an end of an edge is {name!r}; give a client's name")
    return name


def _from_networkx(path: Path, graph: Any, clients: dict[str, int]) -> _File:
    if not graph.is_directed():
        raise DataError(
            f"{path}: the graph has no directions; Granger causality goes from a cause to an "
            "effect, so give a directed graph"
        )
    if str(graph.graph.get("is_tested")).lower() == "false":  # then every pair is exported
        raise DataError(
            f"{path}: exported from a run without tests (is_tested is false), so it does not say "
            "which edges exist; export a run with tests"
        )
    edges = [
        _Edge(_name(path, u), _name(path, v), values.get("is_edge"), f"edge '{u}' -> '{v}'")
        for u, v, values in graph.edges(data=True)
    ]
    return _File(edges, clients)
