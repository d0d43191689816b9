"""`fedgranger compare` as a user meets it."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from tests.configs import formula_config

runner = CliRunner()


def call(*args):
    return runner.invoke(app, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    panel, truth = fg.simulate(clients=("a", "b", "c"), num_steps=1000, edges=2, seed=1)
    config = {"state_dim": 2, "passes": 2, "tolerance": 0.0}
    first = fg.fit(panel, formula_config(**config))
    first.save(folder / "first")
    strict = formula_config(**config, alpha=1e-300, correction="holm")
    dataclasses.replace(first, config=strict).save(folder / "strict")
    untested = {**first.manifest, "inference": {"test": "none"}}
    dataclasses.replace(first, inference=None, manifest=untested).save(folder / "untested")
    fg.fit(panel.select(["a", "b"]), formula_config(**config)).save(folder / "pair")
    truth.write(folder / "truth.json")
    return folder, truth


def test_against_itself(runs):
    folder, _ = runs
    result = call("compare", folder / "first", folder / "first")
    assert result.exit_code == 0, result.stderr
    assert "0 appeared and 0 disappeared, of 6 possible between 3 common clients." in result.output
    assert "the same data, the same options" in result.output
    assert "->" in result.output


def test_other_level(runs):
    folder, _ = runs
    result = call("compare", folder / "first", folder / "strict")
    assert result.exit_code == 0
    assert "disappeared" in result.output
    assert "the same data, different options:" in result.output
    assert "correction  bh" in result.output
    assert "own levels" in result.output
    table = json.loads(call("compare", folder / "first", folder / "strict", "--json").output)
    assert {row["change"] for row in table["edges"]} == {"disappeared"}
    assert table["settings"]["correction"] == ["bh", "holm"]
    assert table["is_same_data"] is True
    same = call(
        "compare", folder / "first", folder / "strict", "--json", "--all", "--alpha", 0.05,
        "--correction", "bh",
    )  # fmt: skip
    table = json.loads(same.output)
    assert len(table["edges"]) == 6
    assert {row["change"] for row in table["edges"]} == {"stayed", "absent"}
    assert {row["intervals"] for row in table["edges"]} <= {"overlap", None}


def test_other_clients(runs):
    folder, _ = runs
    result = call("compare", folder / "first", folder / "pair")
    assert result.exit_code == 0
    assert "client 'c' is only in 1" in result.output
    assert "different data" in result.output


def test_known_graph(runs):
    folder, truth = runs
    result = call("compare", folder / "first", folder / "truth.json", "--all")
    assert result.exit_code == 0, result.stderr
    assert "of 2 known edges confirmed" in result.output
    assert "options" not in result.output
    table = json.loads(call("compare", folder / "first", folder / "truth.json", "--json").output)
    known = {(r["cause"], r["effect"]) for r in table["edges"] if r["change"] != "extra"}
    assert known == set(truth.edges)


def test_an_exported_run_agrees_with_it(runs, tmp_path):
    folder, _ = runs
    for kind in ("graphml", "json", "csv"):
        path = tmp_path / f"graph.{kind}"
        assert call("export", folder / "first", "--format", kind, "--out", path).exit_code == 0
        table = json.loads(call("compare", folder / "first", path, "--json").output)
        assert {row["change"] for row in table["edges"]} == {"confirmed"}


@pytest.mark.parametrize("columns", [80, 120])
def test_no_row_is_folded(runs, columns, monkeypatch):
    from fedgranger.cli import compare_screen
    from fedgranger.cli.console import Console

    folder, _ = runs
    console = Console(width=columns, highlight=False)
    monkeypatch.setattr(compare_screen, "out", console)
    with console.capture() as capture:
        call("compare", folder / "first", folder / "first", "--all")
    rows = [line for line in capture.get().splitlines() if " -> " in line]
    assert len(rows) == 6
    assert max(map(len, rows)) <= columns
    assert all(row.split()[0] in ("stayed", "absent") for row in rows)
    assert all(row.split()[-1] == "overlap" for row in rows)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["first", "none"], "none: no such run folder"),
        (["truth.json", "first"], "give the run folder first"),
        (["first", "untested"], "the second run has no edge tests"),
        (["first", "strange.txt"], "must end in one of"),
        (["first", "first", "--alpha", "2"], "--alpha is 2"),
        (["first", "first", "--correction", "odd"], "odd"),
        (["first", "other.csv"], "line 2: client 'zebra' is not in the run"),
    ],
)
def test_wrong_input(runs, args, expected):
    folder, _ = runs
    (folder / "strange.txt").write_text("x")
    (folder / "other.csv").write_text("cause,effect\na,zebra\n")
    names = [folder / arg if arg[0].isalpha() and arg != "odd" else arg for arg in args]
    result = call("compare", *names)
    assert result.exit_code == 2
    assert expected in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
