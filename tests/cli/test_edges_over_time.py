"""`fedgranger edges --over-time`: from the option of a fit to table, file and picture."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from fedgranger.errors import RunError


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "160"})


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """A run of hourly data that follows its edges through three stretches."""
    folder = tmp_path_factory.mktemp("followed")
    panel, _ = fg.simulate(2, 900, edges=[("client1", "client2")], seed=7)
    hours = np.datetime64("2026-03-01T00", "ns") + np.arange(900) * np.timedelta64(1, "h")
    arrays = {name: panel[name].values for name in panel.names}
    fg.Panel.from_arrays(arrays, time=hours).write(folder / "data")
    words = ("--state-dim", 2, "--solver", "none", "--test", "debiased", "--period", "none")
    done = call("fit", folder / "data", "--out", folder / "run", *words, "--time-windows", 3)
    assert done.exit_code == 0, done.output
    return folder / "run"


def test_terminal_shows_when_an_edge_is_there(followed):
    done = call("edges", followed, "--over-time")
    assert done.exit_code == 0, done.output
    assert "3 stretches from 2026-03-01T00:00:00 to 2026-04-07T11:00:00" in done.stdout
    lines = [line.strip() for line in done.stdout.splitlines()]
    line = next(line for line in lines if line.startswith("client1"))
    assert "###" in line
    assert "2026-03-01T00:00:00 to 2026-04-07T11:00:00" in line
    assert "..." in next(line for line in lines if line.startswith("client2"))


def test_file_python_and_json_say_the_same(followed):
    result = fg.Result.load(followed)
    table = result.edges_over_time()
    written = pd.read_csv(followed / "edges_over_time.csv")
    np.testing.assert_allclose(written["strength"], table["strength"])
    assert written["start"].tolist() == table["start"].tolist()
    rows = json.loads(call("edges", followed, "--over-time", "--json").stdout)
    assert [row["is_edge"] for row in rows] == table["is_edge"].tolist()
    one = result.edges_over_time(cause="client1", effect="client2")
    assert len(one) == 3
    assert one["is_edge"].all()
    with pytest.raises(RunError, match="no client 'x'"):
        result.edges_over_time(cause="x")


def test_saved_again_it_is_the_same(followed, tmp_path):
    result = fg.Result.load(followed)
    result.save(tmp_path / "again")
    pd.testing.assert_frame_equal(
        fg.Result.load(tmp_path / "again").edges_over_time(), result.edges_over_time()
    )


def test_picture(followed, tmp_path):
    pytest.importorskip("matplotlib")
    done = call("edges", followed, "--over-time", "--picture", tmp_path / "edges.svg")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "edges.svg").read_text().startswith("<?xml")
    refused = call("edges", followed, "--over-time", "--picture", tmp_path / "edges.doc")
    assert refused.exit_code == 2
    assert "end its name with .png, .svg or .pdf" in " ".join(refused.output.split())
    ax = fg.plot.bands(fg.Result.load(followed), cause="client1")
    assert len(ax.get_lines()) == 1
    assert len(ax.collections) == 3


def test_what_does_not_go_together_is_refused(followed):
    for words, sentence in (
        (("--over-time", "--alpha", "0.01"), "has the level, correction and test of the run"),
        (("--picture", "x.svg"), "--picture is for --over-time"),
    ):
        done = call("edges", followed, *words)
        assert done.exit_code == 2
        assert sentence in " ".join(done.output.split())


def test_a_run_that_did_not_follow_its_edges_says_what_to_do(followed, tmp_path):
    result = fg.Result.load(followed)
    config = dataclasses.replace(result.config, time_windows=0)
    without = result.inference._replace(over_time=None)
    dataclasses.replace(result, inference=without, config=config).save(tmp_path / "run")
    done = call("edges", tmp_path / "run", "--over-time")
    assert done.exit_code == 2
    assert "fit with time_windows=8" in " ".join(done.output.split())


def test_of_a_nonlinear_run_only_the_linear_influence_is_followed(tmp_path):
    panel, _ = fg.simulate(2, 300, seed=1)
    panel.write(tmp_path / "data")
    words = ("--test", "nonlinear", "--solver", "none", "--state-dim", 1, "--lags", 1)
    more = ("--time-windows", 2, "--weighting", "ewma", "--weighting-span", 100, "--copies", 20)
    done = call("fit", tmp_path / "data", "--out", tmp_path / "run", *words, *more)
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "edges over time follow the linear influence alone" in said
    assert "the nonlinear test, whose edges these are" in said
    assert "the readings' test, whose" not in said
    assert "does not pass its checks" not in said
    shown = " ".join(call("edges", tmp_path / "run", "--over-time").stdout.split())
    assert "Edges over time follow the linear influence alone" in shown
