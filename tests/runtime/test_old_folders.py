"""A run folder that version 0.1.0 wrote still opens, with the commands that read one.

`run_0_1_0` was written by commit 4d76166: two simulated clients, 300 steps, `fit --solver newton
--state-dim 1`.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app

OLD = Path(__file__).with_name("run_0_1_0")


def test_its_numbers_are_those_of_its_files():
    result = fg.Result.load(OLD)
    assert result.clients == ("client1", "client2")
    table = result.edges()
    written = {tuple(line.split(",")[:2]): line.split(",") for line in
               (OLD / "edges.csv").read_text().splitlines()[1:]}  # fmt: skip
    assert len(table) == 2
    for row in table.itertuples():
        assert float(written[row.cause, row.effect][2]) == pytest.approx(row.strength, rel=1e-12)
    assert np.isfinite(result.granger).all()
    assert result.monitors.keys() == {"client1", "client2"}


@pytest.mark.parametrize(
    "words",
    [
        ["edges", "RUN"],
        ["diagnose", "RUN"],
        ["report", "RUN"],
        ["compare", "RUN", "RUN"],
        ["export", "RUN", "--format", "graphml", "--out", "OUT"],
    ],
    ids=lambda words: words[0],
)
def test_commands_read_it(tmp_path, words):
    run = tmp_path / "run"
    shutil.copytree(OLD, run)
    known = {"RUN": str(run), "OUT": str(tmp_path / "x.graphml")}
    done = CliRunner().invoke(app, [known.get(word, word) for word in words])
    assert done.exit_code == 0, done.output


def test_what_it_cannot_have_is_said_in_a_sentence(tmp_path):
    done = CliRunner().invoke(app, ["audit", str(OLD)])
    assert done.exit_code == 2
    assert "no copies with shifted clocks; fit with test='auto'" in done.output
