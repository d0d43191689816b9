"""`fedgranger rca`: windows by steps and by time, alarms, what it writes and refuses."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from fedgranger.cli.app import app
from fedgranger.results import Result
from tests.anomalies import made_panel, made_run


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("rca")
    made_run().save(root / "run")
    made_panel(400, seed=1, shocked="b", at=200).write(root / "new")
    made_panel(300, seed=2).write(root / "calm")
    return root


def invoke(*args):
    return CliRunner().invoke(app, ["rca", *map(str, args)])


def test_window_is_ranked_with_evidence_and_shown_in_the_report(folders):
    run = folders / "run"
    outcome = invoke(run, "--data", folders / "new", "--window", "200:300")
    assert outcome.exit_code == 0, outcome.output
    assert "window 200:300: b (first in" in outcome.output
    assert "b's own one-step errors are" in outcome.output
    found = json.loads((run / "rca.json").read_text())
    assert found["windows"][0]["ranking"][0]["client"] == "b"
    assert 'id="root-cause"' in (run / "report.html").read_text()


def test_times_name_the_same_window_as_steps(folders):
    by = {}
    for text in ("200:300", "200/299"):
        outcome = invoke(folders / "run", "--data", folders / "new", "--window", text, "--json")
        assert outcome.exit_code == 0, outcome.output
        by[text] = json.loads(outcome.output)["windows"][0]["ranking"]
    assert by["200:300"] == by["200/299"]


def test_alarms_without_a_window(folders):
    outcome = invoke(folders / "run", "--data", folders / "new", "--batch", 20)
    assert "alarm at step 20" in outcome.output
    found = json.loads((folders / "run" / "rca.json").read_text())
    assert found["windows"][0]["ranking"][0]["client"] == "b"
    assert len(found["windows"]) == 1
    outcome = invoke(folders / "run", "--data", folders / "calm")
    assert "No client left its normal range" in outcome.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--window", "5:3"], "is not inside the data, which have steps 0:400"),
        (["--window", "x"], "is neither steps such as 160:960"),
        (["--window", "1/2/3"], "is neither steps"),
        (["--window", "390:500"], "is not inside the data"),
        (["--scorer", "best"], "scorer is 'best'; choose"),
    ],
)
def test_wrong_options_are_refused(folders, options, words):
    before = (folders / "run" / "manifest.json").stat().st_mtime_ns
    outcome = invoke(folders / "run", "--data", folders / "new", *options)
    assert outcome.exit_code == 2
    assert words in " ".join(outcome.output.split())
    assert "Traceback" not in outcome.output
    assert (folders / "run" / "manifest.json").stat().st_mtime_ns == before


def test_other_folders_are_refused(folders, tmp_path):
    made_panel(50).select(["a", "b"]).write(tmp_path / "two")
    outcome = invoke(folders / "run", "--data", tmp_path / "two", "--window", "0:50")
    assert outcome.exit_code == 2
    assert "lack client 'c'" in outcome.output
    outcome = invoke(tmp_path, "--data", folders / "new")
    assert outcome.exit_code == 2
    assert "not a finished run" in " ".join(outcome.output.split())
    federated = tmp_path / "federated"  # its server knows nothing of what is normal
    replace(Result.load(folders / "run"), monitors={}, reference=None).save(federated)
    outcome = invoke(federated, "--data", folders / "new", "--window", "0:50")
    assert outcome.exit_code == 2
    assert "no model of normal operation" in " ".join(outcome.output.split())
