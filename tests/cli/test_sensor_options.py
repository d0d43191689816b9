"""Odd sensors on the command line: one sentence and exit code 2, or a note that says what was done.

Nothing is written when data are refused.
"""

import html
import json

import pytest
from typer.testing import CliRunner

from fedgranger.cli.app import app
from tests.odd_sensors import odd_folder

FAST = ("--state-dim", "2", "--solver", "none", "--test", "debiased", "--lags", "1")
pytestmark = pytest.mark.filterwarnings("ignore::fedgranger.errors.InferenceWarning")


def invoke(*args):
    outcome = CliRunner().invoke(app, [str(arg) for arg in args])
    assert "Traceback" not in outcome.output
    return outcome, " ".join(outcome.output.split())


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("code", (), "client 'a': column 'x' is -9999 in 5 of 400 rows, the first is data row 31"),
        ("code", (), "pass missing='mask' (--missing mask)"),
        ("clock", (), "client 'a': column 'x' rises in every row, typically by 0.5 (3 to 202.5)"),
        ("clock", (), "pass it as the time column (--time-column x) or leave it out"),
        ("holes", (), "client 'a', column 'x': 390 of 400 samples are missing"),
        (
            "counter",
            ("--difference", "a.z"),
            "names 'a.z', which is no sensor (did you mean 'a.x'?)",
        ),
        ("counter", ("--difference", "none,a.x"), "contradicts itself"),
        ("counter", ("--leave-out", "z"), "--leave-out) names 'z', which is no sensor"),
        ("counter", ("--suspect", "drop"), "suspect is 'drop'; choose one of error, keep"),
        (
            "clock",
            ("--suspect", "keep", "--difference", "a.x"),
            "sensor 'x' changes by the same amount in every row (0.5)",
        ),
    ],
)
def test_refused_in_one_sentence(tmp_path, kind, options, words):
    data = odd_folder(tmp_path / "data", kind)
    outcome, said = invoke("fit", data, "--out", tmp_path / "run", *options, *FAST)
    assert outcome.exit_code == 2
    assert words in said
    assert said.count("error:") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("code", ("--missing", "mask"), "'x' is -9999 in 5 of 400 rows"),
        ("counter", (), "'x' counts: it rises"),
        ("counter", (), "change per row used; --difference none switches this off"),
        ("walk", (), "'x' wanders without coming back"),
        ("slow", (), "--difference auto,a.x uses the change per row"),
        ("stuck", (), "'x' stands still at 0.25 for 60 % of the rows"),
        ("stuck", ("--leave-out", "a.x"), "client 'a': left out as asked for: 'x'"),
        ("holes", ("--missing", "mask"), "'x' has no sample in 98 % of the client's rows"),
    ],
)
def test_done_and_said(tmp_path, kind, options, words):
    """In the output of fit, in its manifest, report and diagnose."""
    data, run = odd_folder(tmp_path / "data", kind), tmp_path / "run"
    outcome, said = invoke("fit", data, "--out", run, *options, *FAST)
    assert outcome.exit_code == 0, outcome.output
    assert words in said
    manifest = json.loads((run / "manifest.json").read_text())
    assert any(words in note for note in manifest["data"]["notes"])
    assert words in html.unescape((run / "report.html").read_text())
    outcome, said = invoke("diagnose", run)
    assert words in said


def test_new_data_are_differenced_with_the_runs_treatment(tmp_path):
    """A meter's reading does not matter, its change does."""
    data, run = odd_folder(tmp_path / "data", "reset"), tmp_path / "run"
    outcome, _ = invoke("fit", data, "--out", run, *FAST)
    assert outcome.exit_code == 0, outcome.output
    new = odd_folder(tmp_path / "new", "reset", seed=2)
    lines = (new / "a.csv").read_text().splitlines()
    rows = [line.rsplit(",", 1) for line in lines[1:]]

    def ranked(offset):
        shifted = [f"{rest},{float(x) + offset(k)}" for k, (rest, x) in enumerate(rows)]
        (new / "a.csv").write_text("\n".join([lines[0], *shifted]) + "\n")
        outcome, _ = invoke("rca", run, "--data", new, "--window", "95:110", "--json")
        assert outcome.exit_code == 0, outcome.output
        return json.loads(outcome.stdout)["windows"][0]["ranking"]

    calm = ranked(lambda _: 0.0)
    assert ranked(lambda _: 4096.0) == calm
    jump = ranked(lambda k: 500.0 * (k >= 100))
    assert jump[0]["client"] == "a"
    assert jump[0]["surprise"] > 20 * max(row["surprise"] for row in calm)
