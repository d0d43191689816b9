"""Graphs of the compared methods for root causes: on a made chain a → b → c."""

import json
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from fedgranger.inference.reference import learn_reference
from fedgranger.rca import SCORERS, gather
from fedgranger_research.added_noise import sent_states
from fedgranger_research.baselines.method_list import find_methods
from fedgranger_research.baselines.method_protocol import BaselineError, Method
from fedgranger_research.reproduction.compared_graphs import NO_GRAPH, comparison
from fedgranger_research.reproduction.root_cause_accuracy import collect_accuracy
from fedgranger_research.reproduction.root_cause_methods import (
    COEFFICIENTS,
    NAMES,
    GraphScores,
    block_norms,
    find_graphs,
    graph_rows,
)
from tests.anomalies import made_panel

CHAIN = np.array([[False, False, False], [True, False, False], [False, True, False]])
FAST = ("debiased", "fedpc", "fedpc-horizontal", "fdbnl-horizontal")


@pytest.fixture(scope="module")
def run(normal_run):
    return normal_run


@pytest.fixture(scope="module")
def source(run):
    with jax.enable_x64(True):
        return sent_states(made_panel(1500), run.config, {})


@pytest.fixture(scope="module")
def shocked():
    return made_panel(300, seed=1, shocked="b", at=100, length=50)


def refusing(columns, options):
    """A method that wants more clients than there are."""
    raise BaselineError("two clients are not enough")


def windows_of(*roots):
    return [
        {"run": "r", "instance": str(k), "roots": root, "start": 100, "end": 149}
        for k, root in enumerate(roots)
    ]


def made_table(rows, machine="m"):
    return pd.DataFrame(rows).assign(dataset="made", part="test", split="test", machine=machine)


def test_every_name_is_a_method():
    assert set(find_methods(NAMES)) == set(NAMES)
    assert set(NAMES) >= COEFFICIENTS


def test_graphs_of_the_chain(source):
    graphs = {graph.name: graph for graph in find_graphs(source, find_methods(FAST))}
    assert np.array_equal(graphs["debiased"].is_edge, CHAIN)
    assert np.array_equal(graphs["fedpc-horizontal"].is_edge & CHAIN, CHAIN)
    assert not graphs["fedpc"].is_edge.any()  # clients hold their own states only
    for graph in graphs.values():
        assert np.array_equal(graph.strengths > 0, graph.is_edge)
        assert graph.facts["edges"] == graph.is_edge.sum()
        assert graph.seconds > 0
    own = graphs["fdbnl-horizontal"].strengths[1, 0]
    refitted = learn_reference(source, CHAIN).cross[1, 0]
    assert graphs["debiased"].strengths[1, 0] == pytest.approx(abs(refitted))
    assert own != pytest.approx(abs(refitted))  # a penalised coefficient of its own


def test_block_norms_by_hand():
    matrix = np.array([[3.0, 4.0, 1.0], [0.0, 0.0, 2.0], [6.0, 8.0, 5.0]])
    expected = [[5.0, np.sqrt(5.0)], [10.0, 5.0]]
    assert block_norms(matrix, np.array([0, 0, 1])) == pytest.approx(np.array(expected))


def test_the_states_are_those_of_the_run(run, source):
    tested = np.zeros((3, 3), dtype=bool)
    edges = run.edges()
    for row in edges.loc[edges["is_edge"].astype(bool)].to_dict("records"):
        tested[source.names.index(row["effect"]), source.names.index(row["cause"])] = True
    assert np.array_equal(learn_reference(source, tested).cross, run.reference.cross)


def test_scores_are_those_of_the_library(run, source, shocked):
    graphs = find_graphs(source, find_methods(("debiased", "fedpc")))
    rows = GraphScores(run, source, graphs).rows(shocked, windows_of("b"))
    found = {row["method"]: np.array(json.loads(row["scores"])) for row in rows}
    window = gather(run, shocked).steps(slice(100, 150))
    assert np.array_equal(tuple(run.clients), rows[0]["clients"].split(";"))
    surprise = SCORERS["surprise"](window, CHAIN)
    assert found["fedpc, our score"] == pytest.approx(surprise)  # no edge: the surprise alone
    assert np.array_equal(found["fedpc, paper's score"], np.zeros(3))
    assert np.argmax(found["debiased, our score"]) == 1
    assert found["debiased, our score"][2] < surprise[2] - 0.1  # b explains c
    paper = SCORERS["paper"](window, graphs[0].strengths)
    assert found["debiased, paper's score"] == pytest.approx(paper)


def test_a_refusal_is_a_row_that_has_its_reason(run, source, shocked):
    methods = {
        "no": Method(refusing, {}, "vertical", "refuses"),
        **find_methods(("fedpc", "debiased")),
    }
    graphs = find_graphs(source, methods)
    assert [graph.status == "refused" for graph in graphs] == [True, False, False]
    rows = GraphScores(run, source, graphs).rows(shocked, windows_of("b", "a"))
    table = collect_accuracy([made_table(rows)]).set_index(["roots", "method"]).loc["single"]
    assert table.loc["no, paper's score", "count"] == 0
    assert table.loc["no, paper's score", "refused"] == 2
    assert np.isnan(table.loc["no, our score", "ac1"])
    assert table.loc["fedpc, paper's score", "ac1"] == pytest.approx(1 / 3)  # a tie of three
    assert table.loc["fedpc, paper's score", "undefined"] == 1.0
    assert table.loc["chance", "count"] == 2
    lines = comparison(table.reset_index())
    assert any(line.startswith("| no |") and "two clients are not" in line for line in lines)
    assert any(line.startswith("| fedpc | 0 of 6 | 0.333") for line in lines)
    assert "No edge between clients: fedpc." in lines[-1]
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


def test_a_method_that_refuses_one_machine_is_judged_on_the_others(run, source, shocked):
    made = find_graphs(source, find_methods(("debiased",)))
    gone = [made[0]._replace(status="refused", reason="too short")]
    tables = [
        made_table(GraphScores(run, source, graphs).rows(shocked, windows_of("b")), machine)
        for machine, graphs in (("one", gone), ("two", made))
    ]
    whole = collect_accuracy(tables)
    ours = whole.loc[(whole["method"] == "debiased, our score") & (whole["roots"] == "single")]
    assert ours[["count", "refused", "fits", "edges", "ac1"]].to_numpy().tolist() == [
        [1, 1, 2, 2, 1]
    ]
    lines = comparison(whole.loc[whole["roots"] == "single"])
    assert "refused for 1 of 2: too short" in "\n".join(lines)


def test_rows_of_a_data_set(run, shocked):
    instances = pd.DataFrame(
        [
            {"instance_id": "1", "run": "r", "split": "test", "start": 100, "end": 149}
            | {"root_clients": "b"},
            {"instance_id": "2", "run": "other", "split": "test", "start": 0, "end": 9}
            | {"root_clients": "a"},
        ]
    )
    recording = SimpleNamespace(name="r", split="test", panel=shocked)
    dataset: Any = SimpleNamespace(train=made_panel(1500), runs=(recording,), instances=instances)
    rows = graph_rows(dataset, run, ("fedpc", "debiased"))
    assert [row["method"] for row in rows] == [
        "fedpc, paper's score",
        "fedpc, our score",
        "debiased, paper's score",
        "debiased, our score",
    ]
    assert {row["roots"] for row in rows} == {"b"}
    table = collect_accuracy([made_table(rows)])
    assert NO_GRAPH not in "\n".join(comparison(table.loc[table["roots"] == "single"]))
