"""Known graphs from every kind of file, and each way in which a file can be wrong."""

import json

import pytest

import fedgranger as fg
from fedgranger.data.known_graph import read_known_graph
from fedgranger.errors import DataError

EDGES = {("a", "b"), ("b", "c")}
GRAPHML = """<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d0" for="edge" attr.name="is_edge" attr.type="boolean"/>
  <key id="d1" for="node" attr.name="is_edge" attr.type="boolean"/>
  <graph edgedefault="directed">
    <node id="a"><data key="d1">false</data></node><node id="b"/><node id="c"/>
    EDGES
  </graph>
</graphml>
"""


def graphml(*edges):
    return GRAPHML.replace("EDGES", "".join(edges))


def node_link(links, nodes="abc", **more):
    edges = [dict(zip(("source", "target", "is_edge"), link, strict=False)) for link in links]
    return json.dumps({"nodes": [{"id": name} for name in nodes], "links": edges, **more})


def read(tmp_path, name, text, clients=None):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return read_known_graph(path, clients)


GOOD = {
    "plain.csv": "cause,effect\na,b\nb,c\n",
    "marked.csv": "is_edge,effect,cause,p\ntrue,b,a,0\nno,a,c,1\n1,c,b,\n\n",
    "excel.csv": "\ufeffCause,Effect\r\na,b\r\nb,c\r\n",
    "g.graphml": graphml('<edge source="a" target="b"/>', '<edge source="b" target="c"/>'),
    "marked.xml": graphml(
        '<edge source="a" target="b"><data key="d0">true</data></edge>',
        '<edge source="b" target="c"><data key="d0">1</data></edge>',
        '<edge source="c" target="a"><data key="d0">false</data></edge>',
    ),
    "own.graphml": graphml(
        '<edge source="a" target="b" directed="true"/>', '<edge source="b" target="c"/>'
    ),
    "d3.json": node_link(["ab", "bc"]),
    "networkx.json": node_link(["ab", "bc"], directed=True).replace('"links"', '"edges"'),
    "marked.json": node_link([("a", "b", True), ("b", "c", True), ("c", "a", False)]),
}


@pytest.mark.parametrize("name", GOOD)
def test_the_same_graph_from_every_kind(tmp_path, name):
    graph = read(tmp_path, name, GOOD[name], ["a", "b", "c"])
    assert graph.edges == EDGES
    assert set(graph.clients) == {"a", "b", "c"}
    assert graph.truth is None


def test_truth(tmp_path):
    _, truth = fg.simulate(3, 50, seed=1)
    truth.write(tmp_path / "truth.json")
    graph = read_known_graph(tmp_path / "truth.json")
    assert graph.edges == set(truth.edges)
    assert graph.clients == truth.clients
    assert (graph.truth.transition == truth.transition).all()


def test_clients_without_edges_are_known_where_a_file_lists_them(tmp_path):
    assert read(tmp_path, "g.json", node_link(["ab"])).clients == ("a", "b", "c")
    assert read(tmp_path, "g.xml", graphml()).clients == ("a", "b", "c")
    assert read(tmp_path, "g.csv", "cause,effect\na,b\n").clients == ("a", "b")


def test_no_edges(tmp_path):
    assert read(tmp_path, "g.csv", "cause,effect\n").edges == frozenset()
    assert read(tmp_path, "g.json", node_link([])).edges == frozenset()
    assert read(tmp_path, "g.graphml", graphml()).edges == frozenset()


BAD = {
    # unknown clients
    "unknown.csv": ("cause,effect\na,b\na,bb\n", ["line 3", "'bb' is not in the run", "mean 'b'"]),
    "unknown.json": (node_link(["ab", "ax"], "abcx"), ["edge 'a' -> 'x'", "'x' is not in the run"]),
    "lone.json": (node_link(["ab"], "abx"), ["'x' is not in the run", "a, b, c"]),
    "unlisted.json": (node_link(["ab", "xa"]), ["edge 'x' -> 'a'", "'x' is not among", "list it"]),
    "unlisted.graphml": (
        graphml('<edge source="a" target="q"/>'),
        ["edge 'a' -> 'q'", "'q' is not among", "list it"],
    ),
    # duplicates
    "twice.csv": ("cause,effect\na,b\nb,a\na,b\n", ["line 4", "'a' -> 'b'", "in line 2"]),
    "nodes.json": (node_link(["ab"], "abb"), ["'b' is listed twice"]),
    # no direction
    "undirected.json": (node_link(["ab"], directed=False), ["no directions", "directed graph"]),
    "undirected.graphml": (
        graphml('<edge source="a" target="b"/>').replace('"directed"', '"undirected"'),
        ["no directions", "directed graph"],
    ),
    "halfway.graphml": (
        graphml('<edge source="a" target="b" directed="false"/>'),
        ["directed=false", "directed graph"],
    ),
    "twice.graphml": (
        graphml('<edge id="1" source="a" target="b"/>', '<edge id="1" source="a" target="b"/>'),
        ["'a' -> 'b'", "already given"],
    ),
    "nodes.graphml": (graphml('<node id="b"/>'), ["'b' is listed twice"]),
    # self-loops
    "self.csv": ("cause,effect\nb,b\n", ["line 2", "'b' drives itself"]),
    "self.json": (node_link(["aa"]), ["edge 'a' -> 'a'", "drives itself"]),
    # is_edge
    "empty.csv": ("cause,effect,is_edge\na,b,true\na,c,\n", ["line 3", "is_edge is empty"]),
    "word.csv": ("cause,effect,is_edge\na,b,maybe\n", ["line 2", "'maybe'", "true or false"]),
    "some.json": (
        node_link([("a", "b", True), ("b", "c")]),
        ["edge 'b' -> 'c'", "is_edge is empty"],
    ),
    # form
    "header.csv": ("from,to\na,b\n", ["line 1", "'cause'", "cause,effect"]),
    "nothing.csv": ("", ["line 1", "'cause'"]),
    "cells.csv": ("cause,effect\na,b,c\n", ["line 2", "3 cells for 2 columns"]),
    "blank.csv": ("cause,effect\na,\n", ["line 2", "empty"]),
    "quote.csv": ('cause,effect\na,"b\n', ["line 2", "CSV"]),
    "broken.json": ("{", ["JSON"]),
    "other.json": ("[1]", ["truth.json", "node-link"]),
    "ids.json": (json.dumps({"nodes": [{"id": 3}], "links": []}), ["a node", "is 3", "name"]),
    "links.json": (json.dumps({"nodes": []}), ["'links'"]),
    "half.json": (json.dumps({"clients": ["a"]}), ["'edges' is missing"]),
    "broken.graphml": ("<graphml>", ["GraphML", "no element found"]),
    "empty.graphml": ("<graphml/>", ["0 <graph> elements"]),
    "ends.graphml": (graphml('<edge source="a"/>'), ["an end of an edge is None"]),
    "two.graphml": (
        graphml().replace("</graph>", "</graph><graph edgedefault='directed'/>"),
        ["2 <graph> elements"],
    ),
    "ends.json": (node_link([("a",)]), ["node-link", "'target'"]),
    "number.json": (node_link([("a", 7)]), ["an end of an edge is 7"]),
    "facts.json": (node_link(["ab"], graph=[1]), ["node-link"]),
    "scalar.json": (json.dumps({"nodes": 1, "links": []}), ["node-link"]),
    "deep.json": ("[" * 100_000, ["JSON"]),
    "word.graphml": (
        graphml('<edge source="a" target="b"><data key="d0">maybe</data></edge>'),
        ["GraphML", "'maybe'"],
    ),
    "key.graphml": (graphml('<edge source="a" target="b"><data key="d9"/></edge>'), ["no key d9"]),
    "laughs.graphml": (
        '<!DOCTYPE g [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>' + graphml().split("?>")[1],
        ["entities"],
    ),
    "groups.graphml": (
        graphml(
            "<node id='g' yfiles.foldertype='group'><graph edgedefault='directed'>" * 2000
            + "</graph></node>" * 2000
        ),
        ["GraphML", "recursion"],
    ),
    "graph.svg": ("<svg/>", [".json, .csv, .graphml"]),
    "graph.dot": ("digraph { a -> b }", ["must end in one of .json, .csv, .graphml, .xml"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_in_one_sentence(tmp_path, name):
    text, words = BAD[name]
    with pytest.raises(DataError) as caught:
        read(tmp_path, name, text, ["a", "b", "c"])
    message = str(caught.value)
    assert message.startswith(str(tmp_path / name))
    assert "\n" not in message
    for word in words:
        assert word in message


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv: cannot be read"):
        read_known_graph(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes("cause,effect\ngröße,b\n".encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8"):
        read_known_graph(tmp_path / "latin.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=r"folder\.csv"):
        read_known_graph(tmp_path / "folder.csv")
