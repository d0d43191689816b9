"""Root causes between real processes: the simulator and provisioned parties, as in one process."""

import json
import subprocess

import pytest
from typer.testing import CliRunner

from fedgranger.cli.app import app
from tests.anomalies import NAMES, made_panel
from tests.federation.flare import ENVIRONMENT, FEDGRANGER, RealFederation
from tests.federation.watched import NEW, TRAINING

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

WATCHED = "watch = true\nsmallest_sensors_per_state = 1\n"
FIT = ("--solver", "none", "--state-dim", "1")


def command(*words):
    done = subprocess.run(
        [*FEDGRANGER, *map(str, words)],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == (4 if words[0] == "rca" else 0), done.stderr  # 4: an alarm
    return done.stdout


def shared(text):
    """An analysis without the names and levels of sensors, which a server does not know."""
    found = json.loads(text)
    found.pop("excursions", None)
    for window in found["windows"]:
        window.pop("since", None)
        for row in window["ranking"]:
            row.pop("sensors", None)
        words = window["evidence"]
        own = ("Its most surprising", "had left its usual level")
        window["evidence"] = [one for one in words if not any(text in one for text in own)]
    return found


@pytest.mark.slow  # FLARE's simulator, twice
def test_the_simulator_finds_the_root_cause_that_one_process_finds(tmp_path):
    TRAINING.write(tmp_path / "data")
    NEW.write(tmp_path / "new")
    command("fit", tmp_path / "data", "--out", tmp_path / "run", "--runtime", "flare", *FIT)
    one = ("rca", tmp_path / "run", "--data", tmp_path / "new", "--json")
    texts = command(*one, "--runtime", "flare"), command(*one)
    assert shared(texts[0]) == shared(texts[1])
    levels = [json.loads(text)["excursions"] for text in texts]
    assert levels[0] == levels[1]


@pytest.mark.slow  # real FLARE processes; a run and two watches
def test_provisioned_sites_watch_their_new_data_and_are_told_the_alarm(tmp_path):
    NEW.write(tmp_path / "new")
    with RealFederation(TRAINING, tmp_path, policy=WATCHED) as federation:
        done = federation.command("run", "--out", str(tmp_path / "run"), "--state-dim", "1")
        assert done.returncode == 0, done.stderr
        done = federation.command("watch", str(tmp_path / "run"))
        assert done.returncode == 0, done.stderr
        assert "alarm at step 16" in done.stdout
        done = federation.command("watch", str(tmp_path / "run"), "--json")
        assert json.loads(done.stdout) == json.loads((tmp_path / "run" / "rca.json").read_text())
        for name in NAMES:
            state = federation.kits[name] / "fedgranger-state"
            (alarm,) = json.loads((state / "alarms.json").read_text())
            assert alarm["ranking"][0]["client"] == "b"
            assert "'b' comes first in" in (state / "log.txt").read_text()
    command("fit", tmp_path / "data", "--out", tmp_path / "alone", *FIT)
    command("rca", tmp_path / "alone", "--data", tmp_path / "new")
    texts = [(tmp_path / name / "rca.json").read_text() for name in ("run", "alone")]
    assert shared(texts[0]) == shared(texts[1])
    assert 'id="root-cause"' in (tmp_path / "run" / "report.html").read_text()


def test_the_command_refuses_a_run_of_one_process(tmp_path):
    from tests.anomalies import made_run

    made_run(300).save(tmp_path / "run")
    made_panel(10).write(tmp_path / "data")
    outcome = CliRunner().invoke(app, ["federation", "watch", str(tmp_path), str(tmp_path / "run")])
    assert outcome.exit_code == 2
    assert "was not made between parties; use 'fedgranger rca" in " ".join(outcome.output.split())
