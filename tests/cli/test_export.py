"""`fedgranger export`, and known graphs in `fedgranger evaluate`."""

import json

import networkx as nx
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from tests.configs import formula_config

runner = CliRunner()


def call(*args):
    return runner.invoke(app, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of three clients, one of them with an awkward name, and what is true of it."""
    folder = tmp_path_factory.mktemp("export")
    panel, truth = fg.simulate(clients=("a", "b", 'c "<&'), num_steps=1000, edges=2, seed=1)
    fg.fit(panel, formula_config(state_dim=2, passes=2, tolerance=0.0)).save(folder / "run")
    truth.write(folder / "truth.json")
    return folder


def test_every_format_into_a_file_and_to_the_terminal(run, tmp_path):
    edges = fg.Result.load(run / "run").edges().query("is_edge")
    found = set(zip(edges["cause"], edges["effect"], strict=True))
    assert found
    for kind in ("graphml", "dot", "json", "csv"):
        path = tmp_path / "new" / f"graph.{kind}"
        written = call("export", run / "run", "--format", kind, "--out", path)
        assert written.exit_code == 0, written.stderr
        assert "written to" in written.stderr
        printed = call("export", run / "run", "--format", kind)
        assert printed.output == path.read_text()
    assert set(nx.read_graphml(tmp_path / "new" / "graph.graphml").edges) == found
    links = json.loads((tmp_path / "new" / "graph.json").read_text())
    assert set(nx.node_link_graph(links, edges="links").edges) == found
    table = pd.read_csv(tmp_path / "new" / "graph.csv")
    assert list(table.columns) == list(edges.columns)
    everything = call("export", run / "run", "--format", "csv", "--all-edges").output
    assert len(everything.splitlines()) == 7
    few = call("export", run / "run", "--format", "csv", "--alpha", 1e-300, "--correction", "holm")
    assert len(few.output.splitlines()) < 1 + len(found) + 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--format", "svg"], "--format is 'svg'"),
        (["--format", "csv", "--alpha", "2"], "alpha is 2"),
        (["--format", "csv", "--correction", "odd"], "odd"),
        (["--format", "csv", "--out", "FOLDER"], "is a folder"),
    ],
)
def test_wrong_options(run, tmp_path, options, expected):
    options = [str(tmp_path) if option == "FOLDER" else option for option in options]
    result = call("export", run / "run", *options)
    assert result.exit_code == 2
    assert expected in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_no_run(tmp_path):
    result = call("export", tmp_path / "none", "--format", "csv")
    assert result.exit_code == 2
    assert "no such run folder" in result.stderr


@pytest.mark.parametrize("kind", ["graphml", "json", "csv"])
def test_evaluate_takes_a_known_graph(run, tmp_path, kind):
    """The scores of edges equal those against truth.json when the graph is the truth."""
    truth = fg.Truth.read(run / "truth.json")
    expected = json.loads(
        call("evaluate", run / "run", "--truth", run / "truth.json", "--json").output
    )
    path = tmp_path / f"known.{kind}"
    graph = nx.DiGraph(truth.edges)
    graph.add_nodes_from(truth.clients)
    if kind == "graphml":
        nx.write_graphml(graph, path)
    elif kind == "json":
        path.write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    else:
        pd.DataFrame(truth.edges, columns=["cause", "effect"]).to_csv(path, index=False)
    outcome = call("evaluate", run / "run", "--truth", path, "--json")
    assert outcome.exit_code == 0, outcome.stderr
    scores = json.loads(outcome.output)
    for estimate in ("debiased", "fedgc"):
        assert scores[estimate]["edges"] == expected[estimate]["edges"]
        assert not {"entries_across", "entries_all"} & set(scores[estimate])
    assert scores["debiased"]["coverage"]["all_entries"] is None
    printed = call("evaluate", run / "run", "--truth", path)
    assert printed.exit_code == 0
    assert "2 of 6 pairs are edges" in printed.output
    assert "entries across" not in printed.output
    assert "entries across" in call("evaluate", run / "run", "--truth", run / "truth.json").output


@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_dot_is_refused_with_the_formats_that_are_read(run, tmp_path, command):
    (tmp_path / "known.dot").write_text("digraph { a -> b }")
    words = ["--truth"] if command == "evaluate" else []
    result = call(command, run / "run", *words, tmp_path / "known.dot")
    assert result.exit_code == 2
    assert "must end in one of .json, .csv, .graphml" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_evaluate_refuses_a_graph_of_others(run, tmp_path):
    (tmp_path / "known.csv").write_text("cause,effect\na,b\na,zebra\n")
    result = call("evaluate", run / "run", "--truth", tmp_path / "known.csv")
    assert result.exit_code == 2
    assert "line 3: client 'zebra' is not in the run" in result.stderr
    (tmp_path / "known.csv").write_text("cause,effect\na,b\n")
    result = call("evaluate", run / "run", "--truth", tmp_path / "known.csv")
    assert result.exit_code == 0
    assert "does not name 'c \"<&'" in result.stderr
