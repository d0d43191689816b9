"""A known graph to compare a run with, from any of the files people keep graphs in.

Read are `truth.json`, edge lists (.csv), GraphML, node-link JSON and the subset of DOT that
`fedgranger export` writes. An edge whose attribute `is_edge` is false is not an edge.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from fedgranger.data.truth import Truth
from fedgranger.errors import DataError

__all__ = ["KnownGraph", "read_known_graph"]

WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class KnownGraph(NamedTuple):
    """Who drives whom, according to a file.

    Attributes:
        clients: names, in the order of the file.
        edges: (cause, effect) pairs.
        truth: the whole content of a `truth.json`, or None for other files.
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
    """Content before it is checked; no clients means that the file does not list them."""

    edges: list[_Edge]
    clients: list[str] | None
    truth: Truth | None = None


def read_known_graph(path: str | Path, clients: Collection[str] | None = None) -> KnownGraph:
    """Read a known graph; the kind of file follows from its name.

    Args:
        path: a .json (truth or node-link), .csv, .graphml (or .xml), .dot (or .gv) file.
        clients: names that may occur, if they are known.

    Raises:
        DataError: the file cannot be read, names unknown clients, has an edge twice, a client
            that drives itself, or edges without direction.
    """
    path = Path(path)
    readers = {
        ".json": _read_json,
        ".csv": _read_csv,
        ".graphml": _read_graphml,
        ".xml": _read_graphml,
        ".dot": _read_dot,
        ".gv": _read_dot,
    }
    if path.suffix.lower() not in readers:
        raise DataError(
            f"{path}: not a graph we can read by its name; use one of {', '.join(readers)}"
        )
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason}); save it as UTF-8") from None
    return _checked(path, readers[path.suffix.lower()](path, text), clients)


def _checked(path: Path, file: _File, allowed: Collection[str] | None) -> KnownGraph:
    named = [name for edge in file.edges for name in (edge.cause, edge.effect)]
    clients = tuple(dict.fromkeys(named if file.clients is None else file.clients))
    if file.clients is not None and len(clients) < len(file.clients):
        twice = next(name for name in clients if file.clients.count(name) > 1)
        raise DataError(f"{path}: client '{twice}' is listed twice; leave one of them out")
    says = any(edge.is_edge is not None for edge in file.edges)
    seen: dict[tuple[str, str], str] = {}
    edges = set()
    for edge in file.edges:
        pair, where = (edge.cause, edge.effect), f"{path}, {edge.place}"
        for name in pair:
            if name not in clients:
                raise DataError(
                    f"{where}: client '{name}' is not among those that the file lists"
                    f"{_similar(name, clients)}; list it or correct the name"
                )
            _check_allowed(where, name, allowed)
        if edge.cause == edge.effect:
            raise DataError(f"{where}: '{edge.cause}' drives itself; leave such edges out")
        if pair in seen:
            raise DataError(
                f"{where}: the edge '{edge.cause}' -> '{edge.effect}' was already given in "
                f"{seen[pair]}; leave one of them out"
            )
        seen[pair] = edge.place
        if _is_edge(where, edge.is_edge, required=says):
            edges.add(pair)
    for name in clients:
        _check_allowed(str(path), name, allowed)
    return KnownGraph(clients, frozenset(edges), file.truth)


def _check_allowed(where: str, name: str, allowed: Collection[str] | None) -> None:
    if allowed is not None and name not in allowed:
        raise DataError(
            f"{where}: client '{name}' is not in the run{_similar(name, allowed)}; "
            f"its clients are {', '.join(allowed)}"
        )


def _similar(name: str, names: Collection[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def _is_edge(where: str, value: Any, *, required: bool) -> bool:
    if value is None and not required:
        return True
    if value is None or str(value).strip() == "":
        raise DataError(
            f"{where}: is_edge is empty, so it is not known whether this is an edge; write true "
            "or false, or export without --all-edges"
        )
    word = str(value).strip().lower()
    if word not in WORDS:
        raise DataError(f"{where}: is_edge is '{value}'; write true or false")
    return WORDS[word]


def _check_tested(path: Path, value: Any) -> None:
    """A run without tests can be exported with all pairs, which are not edges for that."""
    if str(value).lower() == "false":
        raise DataError(
            f"{path}: exported from a run without tests (is_tested is false), so it does not say "
            "which edges exist; export a run with tests"
        )


def _read_csv(path: Path, text: str) -> _File:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    edges, line = [], 1
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        for name in ("cause", "effect"):
            if header.count(name) != 1:
                raise DataError(
                    f"{path}, line 1: one column '{name}' is needed; the first line must name the "
                    "columns cause,effect and, if you like, is_edge"
                )
        line = reader.line_num + 1
        for row in reader:
            if row and len(row) != len(header):
                raise DataError(
                    f"{path}, line {line}: {len(row)} cells for {len(header)} columns; "
                    "put names with commas in quotes"
                )
            if row:
                cells = dict(zip(header, row, strict=True))
                edge = _Edge(cells["cause"], cells["effect"], cells.get("is_edge"), f"line {line}")
                if not edge.cause.strip() or not edge.effect.strip():
                    raise DataError(f"{path}, {edge.place}: cause or effect is empty; fill it in")
                edges.append(edge)
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {line}: not readable as CSV ({error})") from None
    return _File(edges, None)


def _read_json(path: Path, text: str) -> _File:
    try:
        table = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: cannot be read as JSON ({error}); export it again") from None
    if not isinstance(table, dict) or "nodes" not in table:
        if isinstance(table, dict) and {"clients", "transition"} & set(table):
            truth = Truth.read(path)
            places = enumerate(truth.edges, start=1)
            edges = [_Edge(cause, effect, None, f"edge {k}") for k, (cause, effect) in places]
            return _File(edges, list(truth.clients), truth)
        raise DataError(
            f"{path}: neither a truth.json (key 'clients' or 'transition' is missing) nor "
            "node-link JSON (key 'nodes' is missing); give one of them"
        )
    if table.get("directed") is False:
        raise _without_direction(path, "key 'directed' is false")
    _check_tested(path, _dictionary(table.get("graph")).get("is_tested"))
    links = table.get("links", table.get("edges"))
    if not isinstance(links, list) or not isinstance(table["nodes"], list):
        raise DataError(f"{path}: 'nodes' and 'links' must be lists; export it again")
    edges = []
    for k, link in enumerate(links, start=1):
        link = _dictionary(link)
        names = [_text(path, f"link {k}", key, link.get(key)) for key in ("source", "target")]
        edges.append(_Edge(names[0], names[1], link.get("is_edge"), f"link {k}"))
    nodes = enumerate(table["nodes"], start=1)
    return _File(
        edges, [_text(path, f"node {k}", "id", _dictionary(n).get("id")) for k, n in nodes]
    )


def _dictionary(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(path: Path, place: str, key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise DataError(f"{path}, {place}: '{key}' is {value!r}; it must be a client's name")
    return value


def _without_direction(path: Path, place: str) -> DataError:
    return DataError(
        f"{path}, {place}: the graph has no directions; Granger causality goes from a cause to an "
        "effect, so give a directed graph"
    )


def _read_graphml(path: Path, text: str) -> _File:
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise DataError(f"{path}: not valid XML ({error}); export it again") from None
    graphs = root.findall("{*}graph")
    if len(graphs) != 1:
        raise DataError(f"{path}: {len(graphs)} <graph> elements; one GraphML graph is needed")
    names_of_keys = {key.get("id"): key.get("attr.name") for key in root.findall("{*}key")}

    def value(element: ElementTree.Element, name: str) -> str | None:
        for data in element.findall("{*}data"):
            if names_of_keys.get(data.get("key")) == name:
                return data.text or ""
        return None

    _check_tested(path, value(graphs[0], "is_tested"))
    edges = []
    for k, edge in enumerate(graphs[0].findall("{*}edge"), start=1):
        if edge.get("directed", graphs[0].get("edgedefault")) in ("undirected", "false"):
            raise _without_direction(path, f"edge {k}")
        names = [_text(path, f"edge {k}", key, edge.get(key)) for key in ("source", "target")]
        edges.append(_Edge(names[0], names[1], value(edge, "is_edge"), f"edge {k}"))
    nodes = enumerate(graphs[0].findall("{*}node"), start=1)
    return _File(edges, [_text(path, f"node {k}", "id", node.get("id")) for k, node in nodes])


DOT_TOKEN = re.compile(
    r'(?P<space>\s+|//[^\n]*|/\*.*?\*/|^\#[^\n]*)|(?P<quoted>"(?:[^"\\]|\\.)*")'
    r"|(?P<mark>->|--|[{}\[\];,=])|(?P<word>[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*|-?[.\d]+)",
    re.DOTALL | re.MULTILINE,
)
DOT_ESCAPES = {'\\"': '"', "\\\\": "\\", "\\n": "\n"}


class _Token(NamedTuple):
    text: str
    kind: str | None  # quoted, mark or word
    line: int

    def is_mark(self, marks: str) -> bool:
        return self.kind == "mark" and self.text in marks.split()


class _Statement(NamedTuple):
    """Two or more names make edges; none are attributes of the graph or defaults."""

    names: list[str]
    values: dict[str, str]
    line: int


def _read_dot(path: Path, text: str) -> _File:
    """Walk over `digraph name { a [x=1]; a -> b -> c [is_edge=true]; }`."""
    tokens = list(_dot_tokens(path, text))
    undirected = next((token.line for token in tokens if token.is_mark("--")), None)
    words = [token.text.lower() for token in tokens if token.kind == "word"][:2]
    kind = words[1:] if words[:1] == ["strict"] else words[:1]
    if undirected is not None or kind == ["graph"]:
        raise _without_direction(path, f"line {undirected or 1}")
    opening = next((k for k, token in enumerate(tokens[:4]) if token.is_mark("{")), None)
    if kind != ["digraph"] or opening is None or not tokens[-1].is_mark("}"):
        raise _not_our_dot(path, 1, "the file must be one 'digraph name { ... }'")
    clients: dict[str, None] = {}
    edges = []
    for names, values, line in _statements(path, tokens[opening + 1 : -1]):
        if not names:
            _check_tested(path, values.get("is_tested"))
        clients |= dict.fromkeys(names)
        edges += [
            _Edge(cause, effect, values.get("is_edge"), f"line {line}")
            for cause, effect in pairwise(names)
        ]
    return _File(edges, list(clients))


def _statements(path: Path, tokens: list[_Token]) -> Iterator[_Statement]:
    rest = [*tokens, _Token(";", "mark", tokens[-1].line if tokens else 1)]
    rest.reverse()  # so that pop() takes the next one

    def take(marks: str = "") -> _Token:
        token = rest.pop() if len(rest) > 1 else rest[0]
        if (token.kind == "mark") != bool(marks) or (marks and not token.is_mark(marks)):
            raise _not_our_dot(path, token.line, f"'{token.text}' was not expected")
        return token

    while len(rest) > 1:
        if rest[-1].is_mark("; ,"):
            rest.pop()
            continue
        first = take()
        is_default = first.kind == "word" and first.text.lower() in ("graph", "node", "edge")
        names, values = [] if is_default else [first.text], {}
        if rest[-1].is_mark("="):  # an attribute of the graph
            take("=")
            yield _Statement([], {first.text: take().text}, first.line)
            continue
        while rest[-1].is_mark("->"):
            take("->")
            names.append(take().text)
        while rest[-1].is_mark("["):
            take("[")
            while not rest[-1].is_mark("]"):
                key = take().text
                take("=")
                values[key] = take().text
                if rest[-1].is_mark("; ,"):
                    take("; ,")
            take("]")
        yield _Statement(names, values, first.line)


def _dot_tokens(path: Path, text: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        found = DOT_TOKEN.match(text, position)
        if found is None:
            raise _not_our_dot(path, line, f"{text[position]!r} was not expected")
        token = found.group()
        if found.lastgroup == "quoted":
            token = re.sub(r'\\["\\n]', lambda m: DOT_ESCAPES[m.group()], token[1:-1])
        if found.lastgroup != "space":
            yield _Token(token, found.lastgroup, line)
        line += found.group().count("\n")
        position = found.end()


def _not_our_dot(path: Path, line: int, what: str) -> DataError:
    return DataError(
        f"{path}, line {line}: {what}; only the simple DOT that 'fedgranger export' writes is read "
        "(no subgraphs, ports or HTML), so convert the file to GraphML or csv"
    )
