"""Exports are read back by networkx, by our own reader and by strict parsers."""

import csv
import io
import json
import math
import re

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.data.known_graph import read_known_graph
from fedgranger.errors import ConfigError
from fedgranger.export import (
    FORMATS,
    export_text,
    to_csv,
    to_dot,
    to_graphml,
    to_networkx,
    to_node_link,
)
from tests.fake_runs import made_manifest, made_result, pairs_of, table_of

HOSTILE = (
    'pump "A"',
    "<b>&amp;</b>",
    "line\nbreak",
    "back\\slash\\",
    "back\\new",
    "graph",
    "Größe 温度 🌡",
    "a->b; --x",
    ",comma, ",
    "tab\tand'quote",
    "cr\rlf",
    "NA",
)


def make_result(clients=("a", "b", "c"), p_values=None, test="debiased", sensors=True):
    """A run with p-values by pair; strengths 1, 2, 3, ... in the order of the table."""
    known, count = p_values or {}, len(pairs_of(clients))
    edges = table_of(
        clients,
        strength=np.arange(1.0, count + 1),
        ci_low=np.arange(count) + 0.5,
        ci_high=np.arange(count) + 1.5,
        df=4,
        p_value=[known.get(pair, 0.9) for pair in pairs_of(clients)],
    )
    facts = {"num_sensors": 8} if sensors else {}
    return made_result(
        clients,
        edges,
        manifest=made_manifest(clients, facts, inference={"test": test}),
        config=fg.RunConfig(correction="none", test=test),
    )


@pytest.fixture
def result():
    return make_result(p_values={("a", "b"): 0.01, ("b", "c"): 1e-120, ("c", "a"): math.nan})


def ring():
    return {pair: 0.001 for pair in zip(HOSTILE, [*HOSTILE[1:], HOSTILE[0]], strict=True)}


ATTRIBUTES = {"strength", "ci_low", "ci_high", "df", "p_value", "q_value", "is_edge"}


def read_networkx(result, kind, **choice):
    if kind == "object":
        return to_networkx(result, **choice)
    if kind == "graphml":
        return nx.parse_graphml(to_graphml(result, **choice))
    return nx.node_link_graph(json.loads(export_text(result, "json", **choice)), edges="links")


@pytest.mark.parametrize("kind", ["object", "graphml", "json"])
def test_networkx_reads_the_same_graph(result, kind):
    graph = read_networkx(result, kind)
    assert graph.is_directed()
    assert list(graph.nodes) == ["a", "b", "c"]
    assert graph.nodes["b"] == {"sensors": 8, "state_dim": 2}
    assert set(graph.edges) == {("a", "b"), ("b", "c")}
    table = result.edges().set_index(["cause", "effect"])
    for pair in graph.edges:
        assert set(graph.edges[pair]) == ATTRIBUTES
        for name, value in graph.edges[pair].items():
            assert value == table.loc[pair, name]
            assert isinstance(value, bool if name == "is_edge" else int if name == "df" else float)
    assert graph.graph["is_tested"] is True
    assert graph.graph["alpha"] == 0.05


@pytest.mark.parametrize("kind", ["object", "graphml", "json"])
def test_what_is_missing_is_left_out(result, kind):
    graph = read_networkx(result, kind, all_edges=True)
    assert len(graph.edges) == 6
    assert set(graph.edges["c", "a"]) == ATTRIBUTES - {"p_value", "q_value", "is_edge"}
    assert graph.edges["a", "c"]["is_edge"] is False


def test_sensors_of_a_federated_run_are_unknown():
    graph = to_networkx(make_result(sensors=False), all_edges=True)
    assert graph.nodes["a"] == {"state_dim": 2}


@pytest.mark.parametrize("format_name", FORMATS)
def test_no_word_for_not_a_number(result, format_name):
    text = export_text(result, format_name, all_edges=True)
    assert "nan" not in text.lower()
    assert "<NA>" not in text
    infinite = make_result()
    infinite.inference.edges.loc[0, "ci_high"] = math.inf
    assert "inf" not in export_text(infinite, format_name, all_edges=True).lower()


@pytest.mark.parametrize("kind", ["object", "graphml", "json"])
def test_hostile_names_survive_networkx(kind):
    graph = read_networkx(make_result(HOSTILE, ring()), kind)
    assert tuple(graph.nodes) == HOSTILE
    assert set(graph.edges) == set(ring())


@pytest.mark.parametrize("all_edges", [False, True])
@pytest.mark.parametrize("format_name", ["graphml", "json", "csv"])
def test_hostile_names_survive_our_reader(tmp_path, format_name, all_edges):
    path = tmp_path / f"graph.{format_name}"
    text = export_text(make_result(HOSTILE, ring()), format_name, all_edges=all_edges)
    path.write_bytes(text.encode())
    known = read_known_graph(path, HOSTILE)
    assert known.edges == set(ring())
    assert set(known.clients) == set(HOSTILE)


@pytest.mark.parametrize("all_edges", [False, True])
def test_hostile_names_survive_dot(all_edges):
    text = to_dot(make_result(HOSTILE, ring()), all_edges=all_edges)
    assert "is_tested=true" in text
    name = r'"((?:[^"\\]|\\.)*)"'
    edges = {
        tuple(re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), name) for name in pair)
        for *pair, rest in re.findall(rf"^  {name} -> {name}( \[.*);$", text, re.MULTILINE)
        if "is_edge=true" in rest
    }
    assert edges == set(ring())


def test_truth_values_are_written_as_xml_has_them(result):
    assert "True" not in to_graphml(result)  # igraph and Gephi read `true`
    assert ">true<" in to_graphml(result)


def test_graphml_survives_a_networkx_file(tmp_path):
    nx.write_graphml(to_networkx(make_result(HOSTILE, ring())), tmp_path / "g.graphml")
    assert read_known_graph(tmp_path / "g.graphml").edges == set(ring())


def test_csv_has_every_column_and_full_precision(result):
    rows = list(csv.DictReader(io.StringIO(to_csv(result, all_edges=True), newline="")))
    assert list(rows[0]) == list(result.edges().columns)
    by_pair = {(row["cause"], row["effect"]): row for row in rows}
    assert float(by_pair["b", "c"]["p_value"]) == 1e-120
    assert by_pair["c", "a"]["is_edge"] == by_pair["c", "a"]["q_value"] == ""
    again = pd.read_csv(io.StringIO(to_csv(result)))
    assert again["is_edge"].tolist() == [True, True]


def test_dot_draws_strong_edges_thick(result):
    text = to_dot(result)
    assert text.startswith("digraph fedgranger {\n")
    widths = {
        line.split(" [")[0].strip(): float(line.split("penwidth=")[1].split(",")[0])
        for line in text.splitlines()
        if "->" in line
    }
    strengths = result.edges().set_index(["cause", "effect"])["strength"]
    assert widths['"b" -> "c"'] == 5
    share = strengths["a", "b"] / strengths["b", "c"]
    assert widths['"a" -> "b"'] == pytest.approx(1 + 4 * share, abs=0.01)


def test_dot_quotes_names():
    text = to_dot(make_result(HOSTILE, ring()))
    assert r'"pump \"A\"" -> "<b>&amp;</b>"' in text
    assert 'label="<b>&amp;amp;</b>"' in text  # Graphviz reads entities in what it draws
    assert r'"line\nbreak" -> "back\\slash\\"' in text
    assert len(text.splitlines()) == 3 + 2 * len(HOSTILE) + text.count("\r")


def test_level_and_correction(result):
    assert set(to_networkx(result, alpha=0.005).edges) == {("b", "c")}
    for alpha, expected in ((0.055, {("a", "b"), ("b", "c")}), (0.045, {("b", "c")})):
        holm = to_networkx(result, correction="holm", alpha=alpha)  # 5 x 0.01 is the second q
        assert set(holm.edges) == expected
        assert holm.graph["correction"] == "holm"
        assert holm.graph["alpha"] == alpha
    for wrong in ({"alpha": 0.0}, {"alpha": 2}, {"correction": "odd"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            to_networkx(result, **wrong)


def test_a_run_without_tests_has_no_edges_to_export():
    untested = make_result(test="none")
    with pytest.raises(ConfigError, match="--all-edges"):
        to_node_link(untested)
    with pytest.raises(ConfigError, match="tests"):
        to_node_link(untested, alpha=0.1, all_edges=True)
    graph = to_node_link(untested, all_edges=True)
    assert len(graph["links"]) == 6
    assert all("is_edge" not in link for link in graph["links"])
    assert graph["graph"]["is_tested"] is False


@pytest.mark.parametrize("format_name", ["graphml", "json", "csv"])
def test_untested_pairs_are_not_taken_for_edges(tmp_path, format_name):
    path = tmp_path / f"g.{format_name}"
    path.write_text(export_text(make_result(test="none"), format_name, all_edges=True))
    with pytest.raises(ValueError, match=r"is_tested is false|is_edge is empty"):
        read_known_graph(path)


@pytest.mark.parametrize(
    ("name", "formats"),
    [("bell\x07", ["graphml"]), ("nul\x00", ["graphml", "dot", "csv"])],
)
def test_characters_that_a_format_cannot_hold(name, formats):
    result = make_result((name, "b"))
    for format_name in formats:
        with pytest.raises(ConfigError, match="format json"):
            export_text(result, format_name, all_edges=True)
    nodes = json.loads(export_text(result, "json", all_edges=True))["nodes"]
    assert nodes[0]["id"] == name


def test_unknown_format(result):
    with pytest.raises(ConfigError, match="format"):
        export_text(result, "svg")
