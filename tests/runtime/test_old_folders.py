"""Run folders that earlier versions wrote still open, with the commands that read one.

`run_0_1_0` was written by version 0.1.0 (commit 4d76166): two simulated clients, 300 steps, `fit
--solver newton --state-dim 1`. `run_format_1` was written by commit 5bba1d5, the last one whose
manifest says no format: 400 steps, the same with `--copies 20 --test auto --alpha 0.1`.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from fedgranger.errors import RunError
from fedgranger.manifest_types import FORMAT

FOLDERS = [Path(__file__).with_name(name) for name in ("run_0_1_0", "run_format_1")]
OLD, UNMARKED = FOLDERS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_its_numbers_are_those_of_its_files(folder):
    result = fg.Result.load(folder)
    assert result.clients == ("client1", "client2")
    table = result.edges()
    written = {tuple(line.split(",")[:2]): line.split(",") for line in
               (folder / "edges.csv").read_text().splitlines()[1:]}  # fmt: skip
    assert len(table) == 2
    for row in table.itertuples():
        assert float(written[row.cause, row.effect][2]) == pytest.approx(row.strength, rel=1e-12)
    assert np.isfinite(result.granger).all()
    assert result.monitors.keys() == {"client1", "client2"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
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
def test_commands_read_it(tmp_path, words, folder):
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    known = {"RUN": str(run), "OUT": str(tmp_path / "x.graphml")}
    done = CliRunner().invoke(app, [known.get(word, word) for word in words])
    assert done.exit_code == 0, done.output


def test_what_it_cannot_have_is_said_in_a_sentence(tmp_path):
    done = CliRunner().invoke(app, ["audit", str(OLD)])
    assert done.exit_code == 2
    assert "no copies with shifted clocks; fit with test='auto'" in done.output


def test_its_record_has_the_names_of_today_and_is_written_as_such(tmp_path):
    """All else in it is what the file says; names of old are read in one place."""
    written = json.loads((UNMARKED / "manifest.json").read_text())
    assert "format" not in written
    result = fg.Result.load(UNMARKED)
    record, sent = result.manifest, written.pop("bytes")
    for name, old in sent.items():
        assert record.bytes[name].bytes_up == old["up_total"] > 0
        assert record.bytes[name].bytes_down == old["down_total"] > 0
        assert "up_total" not in record.bytes[name]
    assert {key: record[key] for key in written} == written
    assert record.inference.beside.audit.quantiles.level
    assert result.inference.facts is record.inference
    response = next(iter(record.inference.sensor_responses.values()))
    assert response.effect_sensor == result.responses()["effect_sensor"].iloc[0]
    result.save(tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text())["format"] == FORMAT
    assert fg.Result.load(tmp_path).manifest.bytes == record.bytes


def test_a_format_of_later_versions_is_refused(tmp_path):
    shutil.copytree(OLD, tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**written, "format": FORMAT + 1}))
    with pytest.raises(
        RunError, match=f"has format {FORMAT + 1}, this version of fedgranger reads"
    ):
        fg.Result.load(tmp_path / "run")
