"""`fedgranger benchmark` as a user runs it."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from fedgranger_research.baselines.method_list import installed_methods, missing_package
from fedgranger_research.reproduction import method_settings
from fedgranger_research.reproduction.causal_discovery import causal_discovery_item, collect
from fedgranger_research.reproduction.runner import reproduce
from fedgranger_research.reproduction.scenario_grid import AXES, METHODS, grid_item, markdown

ROOT = Path(__file__).parents[2]
FAST = "granger-pairs,debiased"


def call(*args):
    return CliRunner().invoke(app, ["benchmark", *(str(arg) for arg in args)])


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plant")
    panel, truth = fg.simulate(3, 500, edges=[("client1", "client2")], seed=1)
    for client in panel:
        table = pd.DataFrame(client.values, columns=list(client.sensors))
        table.to_csv(folder / f"{client.name}.csv", index=False)
    return folder, truth


def test_synthetic_data_are_compared_and_kept(tmp_path, monkeypatch):
    first = call("--methods", FAST, "--data-sets", 2, "--out", tmp_path)
    assert first.exit_code == 0, first.output + first.stderr
    names = {path.name for path in tmp_path.iterdir()}
    assert {f"causal-discovery.{kind}" for kind in ("csv", "md", "png", "svg")} <= names
    table = pd.read_csv(tmp_path / "causal-discovery.csv")
    assert set(table["method"]) == {"granger-pairs", "debiased"}
    assert (table["data_sets"] == 2).all()

    def again(*_):
        raise AssertionError("computed a second time")

    monkeypatch.setattr(method_settings, "score_trial", again)
    second = call("--methods", FAST, "--data-sets", 2, "--out", tmp_path)
    assert second.exit_code == 0
    assert second.output == first.output


def test_a_folder_without_and_with_a_truth(plant, tmp_path):
    folder, truth = plant
    done = call("--methods", FAST, "--data", folder, "--out", tmp_path / "a")
    assert done.exit_code == 0, done.output + done.stderr
    assert "true edges are not known" in done.output
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["edges.csv"]
    truth.write(tmp_path / "truth.json")
    done = call("--methods", FAST, "--data", folder, "--truth", tmp_path / "truth.json",
                "--out", tmp_path / "b")  # fmt: skip
    assert done.exit_code == 0, done.output + done.stderr
    edges = pd.read_csv(tmp_path / "b" / "edges.csv")
    found = edges.loc[(edges["method"] == "debiased") & edges["is_edge"]]
    assert ("client1", "client2") in set(zip(found["cause"], found["effect"], strict=True))
    assert len(pd.read_csv(tmp_path / "b" / "scores.csv")) == 6


@pytest.mark.slow  # draws with matplotlib, 2 s
def test_the_grid_is_drawn(tmp_path):
    done = call("grid", "--methods", FAST, "--axes", "strength,latent_driver", "--quick",
                "--out", tmp_path)  # fmt: skip
    assert done.exit_code == 0, done.output + done.stderr
    assert (tmp_path / "grid.png").read_bytes()[:4] == b"\x89PNG"
    table = pd.read_csv(tmp_path / "grid.csv")
    assert set(table["axis"]) == {"strength", "latent_driver"}
    assert set(table["value"].astype(str)) == {"0.125", "0.25", "no", "yes"}


@pytest.mark.slow  # 2.5 s; the parts are in test_problems.py and, on recordings, in tests/research
def test_recordings_join_the_grid(plant, tmp_path):
    folder, _ = plant
    done = call("grid", "--methods", FAST, "--axes", "none", "--quick", "--recordings",
                folder, "--out", tmp_path)  # fmt: skip
    assert done.exit_code == 0, done.output + done.stderr
    table = pd.read_csv(tmp_path / "grid.csv")
    rows = table.loc[table["axis"] == "recordings"]
    assert len(rows) == len(table)
    assert list(dict.fromkeys(rows["value"])) == ["no edge", "one odd client", "one edge added"]
    assert rows["size"].notna().all()


def test_false_edges_on_recordings_are_printed_with_refusals():
    kinds = ("no edge", "one odd client", "one edge added")
    base = {"axis": "recordings", "mode": "central", "data_sets": 4, "f1": 0.5}
    rows = [
        base | {"method": name, "value": kind, "refused": refused, "size": size, "power": power}
        for name, refused, size, power in (
            ("a", 0, 0.25, 0.75),
            ("b", 2, 0.0, 0.5),
            ("c", 4, np.nan, np.nan),
        )
        for kind in kinds
    ]
    lines = markdown(pd.DataFrame(rows)).splitlines()
    assert lines[2] == "| a | 0.25 | 0.25 | 0.25 | 3 of 4 |"
    assert lines[3] == "| b | 0.00 (2 refused) | 0.00 (2 refused) | 0.00 (2 refused) | 1 of 2 |"
    assert lines[4] == "| c | – | – | – | – |"
    assert "4 panels of each kind" in lines[-1]


@pytest.mark.slow  # one item twice, with processes that import everything
def test_two_processes_give_what_one_gives(tmp_path):
    item = causal_discovery_item(2, ["granger-pairs"])
    one, two = (reproduce(item, tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    pd.testing.assert_frame_equal(one.drop(columns="seconds"), two.drop(columns="seconds"))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--methods", "magic"], "no method 'magic'; choose among fedgc"),
        (["--methods", ","], "--methods is empty"),
        (["--truth", "x.json"], "--truth belongs to a folder of data"),
        (["--add", "nowhere.py"], "'nowhere.py' does not exist"),
        (["--data", "nowhere"], "nowhere"),
        (["grid", "--axes", "colour"], "--axes has 'colour'; choose among num_steps"),
        (["grid", "--axes", "none"], "--axes leaves nothing to compare"),
        (["grid", "--recordings", "nowhere"], "'nowhere' does not exist"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(tmp_path, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    done = call(*args)
    assert done.exit_code == 2, done.output
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_peer_that_is_not_installed(tmp_path, monkeypatch):
    if missing_package("var-lingam") is None:
        pytest.skip("lingam is installed")
    monkeypatch.chdir(tmp_path)
    done = call("--methods", "var-lingam")
    assert done.exit_code == 2
    assert "pip install 'fedgranger[peers]'" in done.stderr
    assert "var-lingam" not in installed_methods()


def test_pcmci_without_its_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tigramite", None)
    done = call("--add", ROOT / "benchmarks" / "pcmci_method.py", "--methods", "pcmci")
    assert done.exit_code == 2
    assert "needs the package tigramite" in done.stderr
    assert "make bench-peers" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_the_users_that_fails(tmp_path):
    for text, words in (("1 / 0", "ZeroDivisionError"), ("METHODS = 3", "has no dict METHODS")):
        (tmp_path / "mine.py").write_text(text)
        done = call("--add", tmp_path / "mine.py", "--methods", "debiased")
        assert done.exit_code == 2
        assert words in done.stderr


def test_every_axis_has_the_papers_setting():
    for item in grid_item(1).settings():
        assert item.method in METHODS
    usual = grid_item(1, ["debiased"]).settings()
    for axis in AXES:
        own = [setting for setting in usual if setting.axis == axis]
        assert sum(not setting.scenario.differences for setting in own) == 1, axis


def test_modes_are_in_order():
    row = {"seed": 0, "status": "direct", "seconds": 1.0, "messages": 1.0, "bytes_sent": 1.0}
    row |= dict.fromkeys(("f1", "auc_roc", "auc_pr", "shd", "fp", "fn", "size", "power"), 0.5)
    rows = [
        row | {"method": mode, "mode": mode, "level": level}
        for level in ("clients", "entries", "paper")
        for mode in ("central", "horizontal", "vertical")
    ]
    table = collect([pd.DataFrame(rows)])
    assert table["mode"].tolist() == 3 * ["vertical", "horizontal", "central"]
    assert table["level"].tolist() == list(np.repeat(["paper", "entries", "clients"], 3))
