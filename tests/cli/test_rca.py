"""`fedgranger rca`: windows by steps and by time, alarms, what it writes and refuses."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedgranger.cli.app import app
from fedgranger.results import Result
from tests.anomalies import made_panel, slow_panel


@pytest.fixture(scope="module")
def folders(normal_run, tmp_path_factory):
    root = tmp_path_factory.mktemp("rca")
    normal_run.save(root / "run")
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
    assert "No alarm: no client surprised its model" in outcome.output
    assert "no sensor strayed from its usual level" in outcome.output
    assert outcome.exit_code == 0


def test_a_slow_shift_is_no_all_clear(slow_run, tmp_path):
    """A lasting shift that comes slowly: no alarm, but it is said, written and on the page."""
    run, new = tmp_path / "run", tmp_path / "new"
    slow_run.save(run)
    slow_panel(600, seed=2, shift=-4.0, at=300).write(new)
    outcome = invoke(run, "--data", new)
    assert outcome.exit_code == 0, outcome.output
    words = (
        r"No alarm: .* But q\.s\d lay [34]\.\d+ s\.d\. below its usual level from 3\d\d to 5\d\d\."
    )
    assert re.search(words, " ".join(outcome.output.split()))
    found = json.loads((run / "rca.json").read_text())
    assert found["windows"] == []
    first = found["excursions"][0]
    assert {one["client"] for one in found["excursions"]} == {"q"}
    assert 300 <= first["first"] < 360
    assert first["size"] < -3
    assert first["text"] in (run / "report.html").read_text()
    outcome = invoke(run, "--data", new, "--window", "400:600", "--json")
    assert {one["client"] for one in json.loads(outcome.stdout)["excursions"]} == {"q"}
    outcome = invoke(run, "--data", new, "--window", "0:300")
    assert "No sensor strayed from its usual level" in outcome.output


def let_grow(monkeypatch, folder, panel, stops):
    """Write the first rows, more of them whenever the command sleeps, and then press Ctrl-C."""
    turns = iter(stops)

    def next_turn(_seconds):
        stop = next(turns, None)
        if stop is None:
            raise KeyboardInterrupt
        shutil.rmtree(folder, ignore_errors=True)
        panel.slice(0, stop).write(folder)

    next_turn(0)
    monkeypatch.setattr("time.sleep", next_turn)


def test_a_slow_shift_is_said_once_while_files_are_followed(slow_run, tmp_path, monkeypatch):
    run, new = tmp_path / "run", tmp_path / "new"
    slow_run.save(run)
    let_grow(monkeypatch, new, slow_panel(600, seed=2, shift=-4.0, at=300), (400, 500, 600))
    outcome = invoke(run, "--data", new, "--follow", "--every", "0.5")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.count("q.s1 lay") == 1
    assert "0 alarms, strayed from their usual level: q.s1, q.s2, q.s3" in outcome.output


@pytest.fixture
def slow_fault(slow_run, tmp_path):
    """A shift of 8 s.d. over 60 rows raises three alarms, hundreds of calm rows apart."""
    run, new = tmp_path / "run", tmp_path / "new"
    slow_run.save(run)
    slow_panel(1000, seed=2, shift=-8.0, at=300).write(new)
    return run, new


def test_a_slow_fault_is_one_incident_that_says_since_when(slow_fault):
    run, new = slow_fault
    outcome = invoke(run, "--data", new)
    assert outcome.exit_code == 4
    text = " ".join(outcome.output.split())
    assert re.search(
        r"q\.s\d had left its usual level by 3[2-4]\d, before the alarm at 363\.", text
    )
    assert "raised again 2 times, last at step 877, while a sensor was still away" in text
    (window,) = json.loads((run / "rca.json").read_text())["windows"]
    assert 320 < window["since"] < 345
    assert window["again"] == ["alarm at step 634", "alarm at step 877"]
    assert window["evidence"][-1] in (run / "report.html").read_text()
    assert f"alarm at step 363, since {window['since']}" in invoke(run, "--history").output


def test_alarms_that_turn_out_to_be_one_incident_leave_the_history(slow_fault):
    run, new = slow_fault
    invoke(run, "--data", new)
    path = run / "incidents.jsonl"
    (entry,) = (json.loads(line) for line in path.read_text().splitlines())
    alone = {**entry, "name": "alarm at step 877"}
    path.write_text(json.dumps(alone) + "\n" + json.dumps({**alone, "data": "other"}) + "\n")
    invoke(run, "--data", new)
    found = json.loads(invoke(run, "--history", "--json").output)
    assert [one["name"] for one in found] == ["alarm at step 877", "alarm at step 363"]
    assert found[0]["data"] == "other"


def test_an_alarm_of_the_same_incident_is_one_line_while_files_are_followed(
    slow_fault, monkeypatch
):
    run, new = slow_fault
    let_grow(monkeypatch, new, slow_panel(1000, seed=2, shift=-8.0, at=300), (450, 700, 1000))
    outcome = invoke(run, "--data", new, "--follow", "--every", "0.5")
    assert outcome.exit_code == 4, outcome.output
    assert outcome.output.count("(first in") == 1
    assert "alarm at step 634: the same incident as 'alarm at step 363'" in outcome.output
    assert "3 alarms of 1 incident" in outcome.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--window", "5:3"], "--window '5:3' ends before it begins; give the earlier end first"),
        (["--window", "30/20"], "--window '30/20' ends before it begins"),
        (["--window", "400:410"], "is not inside the data, which have steps 0:400"),
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


@pytest.fixture
def stamped(folders, tmp_path):
    """The same data with time stamps, one a minute, and a copy of the run for them alone."""
    panel = made_panel(400, seed=1, shocked="b", at=200)
    clock = np.datetime64("2026-03-01T00:00:00", "ns") + np.arange(400) * np.timedelta64(1, "m")
    replace(panel, time=clock).write(tmp_path / "new")
    result = Result.load(folders / "run")
    normal = result.manifest["normal"] | {"interval": 60e9}
    replace(result, manifest={**result.manifest, "normal": normal}).save(tmp_path / "run")
    return tmp_path


def test_alarms_have_clock_times_sensors_and_an_exit_status(stamped):
    outcome = invoke(stamped / "run", "--data", stamped / "new")
    assert outcome.exit_code == 4
    assert re.search(r"alarm at step 20\d, 2026-03-01 03:2\d:00: b", outcome.output)
    assert re.search(r"left its normal range at 2026-03-01 03:2\d:00 \(step", outcome.output)
    first = json.loads((stamped / "run" / "rca.json").read_text())["windows"][0]["ranking"][0]
    panel = made_panel(400, seed=1, shocked="b", at=200)
    assert first["sensors"].split(" (×")[0] in panel["b"].sensors
    calm = invoke(stamped / "run", "--data", stamped / "new", "--window", "0:150")
    assert calm.exit_code == 0


def test_incidents_are_kept_and_an_alarm_that_goes_on_is_not_counted_twice(stamped):
    for options in ([], ["--window", "200:260"], []):
        invoke(stamped / "run", "--data", stamped / "new", *options)
    outcome = invoke(stamped / "run", "--history", "--json")
    found = json.loads(outcome.output)
    assert [entry["name"].split(" ")[0] for entry in found] == ["window", "alarm"]
    assert "window 200:260" in invoke(stamped / "run", "--history").output
    (stamped / "run" / "incidents.jsonl").write_text('{"name": 1}\n')
    outcome = invoke(stamped / "run", "--history")
    assert outcome.exit_code == 2
    assert "cannot be read" in outcome.output


def test_one_step_does_not_say_how_sure_it_is(folders):
    outcome = invoke(folders / "run", "--data", folders / "new", "--window", "205:206")
    assert outcome.exit_code == 0
    assert "resamples" not in outcome.output
    assert "1 step cannot show how sure this is" in outcome.output
    window = json.loads((folders / "run" / "rca.json").read_text())["windows"][0]
    assert {row["probability"] for row in window["ranking"]} == {None}
    assert (
        "%"
        not in (folders / "run" / "report.html")
        .read_text()
        .split('class="ranking"')[1]
        .split("</ol>")[0]
    )


def test_clients_that_the_run_does_not_know_are_refused(folders, tmp_path):
    panel = made_panel(60)
    extra = replace(panel["a"], name="z")
    replace(panel, clients=(*panel.clients, extra)).write(tmp_path / "more")
    outcome = invoke(folders / "run", "--data", tmp_path / "more")
    assert outcome.exit_code == 2
    assert "have client 'z', which the run does not know" in " ".join(outcome.output.split())


def test_growing_files_are_followed(stamped, monkeypatch):
    """Half of the rows, then a line that is half written, then all of them; then Ctrl-C."""
    source, data = stamped / "new", stamped / "grows"
    data.mkdir()
    lines = {path.name: path.read_text().splitlines(keepends=True) for path in source.iterdir()}
    turns = iter(("190", "torn", "all", "end"))

    def next_turn(_seconds):
        turn = next(turns)
        if turn == "end":
            raise KeyboardInterrupt
        for name, rows in lines.items():
            text = "".join(rows[:191] if turn == "190" else rows)
            (data / name).write_text(text[:-9] if turn == "torn" and name.startswith("b") else text)

    next_turn(0)
    monkeypatch.setattr("time.sleep", next_turn)
    outcome = invoke(stamped / "run", "--data", data, "--follow", "--every", "0.5")
    assert outcome.exit_code == 4, outcome.output
    assert outcome.output.count("alarm at step 20") == 1
    assert "followed to 2026-03-01T06:38" in outcome.output  # the last row may be half written
    whole = invoke(stamped / "run", "--data", data, "--json")
    alarms = [
        json.loads(whole.output)["windows"],
        json.loads((stamped / "run" / "incidents.jsonl").read_text().splitlines()[0]),
    ]
    assert alarms[0][0]["ranking"] == alarms[1]["ranking"]


@pytest.fixture
def zoned(stamped):
    """The same stamps, written with the zone of a clock one hour ahead of UTC."""
    for path in (stamped / "new").iterdir():
        table = pd.read_csv(path)
        clock = pd.to_datetime(table["time"]) + pd.Timedelta("1h")
        table["time"] = clock.dt.strftime("%Y-%m-%dT%H:%M:%S+01:00")
        table.to_csv(path, index=False)
    return stamped


def test_times_say_that_they_are_utc_where_the_data_have_a_zone(zoned):
    run, data = zoned / "run", zoned / "new"
    outcome = invoke(run, "--data", data)
    assert re.search(r"alarm at step 20\d, 2026-03-01 03:2\d:00 UTC: b", outcome.output)
    assert re.search(r"normal range at 2026-03-01 03:2\d:00 UTC \(step", outcome.output)
    outcome = invoke(run, "--data", data, "--window", "2026-03-01T03:20/2026-03-01T04:00")
    assert "window 2026-03-01T03:20/2026-03-01T04:00 UTC: b" in outcome.output
    outcome = invoke(run, "--data", data, "--window", "2025-03-01/2025-03-02")
    assert "06:39:00.000000000 UTC)" in " ".join(outcome.output.split())


def test_times_without_a_zone_stay_as_they_are(stamped):
    assert "UTC" not in invoke(stamped / "run", "--data", stamped / "new").output
    options = ("--window", "2026-03-01T03:20/2026-03-01T04:00")
    assert "UTC" not in invoke(stamped / "run", "--data", stamped / "new", *options).output


@pytest.mark.filterwarnings("error")
def test_a_window_with_a_zone_is_the_same_window(zoned):
    by = []
    for window in (
        "2026-03-01T03:20/2026-03-01T03:59",
        "2026-03-01T04:20+01:00/2026-03-01T04:59+01:00",
        "2026-03-01 03:20Z/2026-03-01 03:59Z",
    ):
        outcome = invoke(zoned / "run", "--data", zoned / "new", "--window", window, "--json")
        assert outcome.exit_code == 0, outcome.output
        by.append(json.loads(outcome.stdout)["windows"][0]["ranking"])
    assert by[0] == by[1] == by[2]


def test_a_window_with_a_zone_is_refused_where_the_data_have_none(stamped):
    window = "2026-03-01T03:20Z/2026-03-01T03:59Z"
    outcome = invoke(stamped / "run", "--data", stamped / "new", "--window", window)
    assert outcome.exit_code == 2
    assert "the times of the data have none" in " ".join(outcome.output.split())


def test_a_calm_window_names_nobody(folders):
    run = folders / "run"
    outcome = invoke(run, "--data", folders / "calm", "--window", "100:200")
    assert outcome.exit_code == 0
    assert "window 100:200: no client left its normal range here" in outcome.output
    assert "(first in" not in outcome.output
    window = json.loads((run / "rca.json").read_text())["windows"][0]
    assert window["evidence"][0].startswith("No client left its normal range in this window")
    assert "<meter" not in (run / "report.html").read_text().split('id="root-cause"')[1]
    assert "nobody: all calm" in invoke(run, "--history").output


def with_short_client(folder):
    """New data of which client a has an empty column and lacks the last rows."""
    made_panel(400, seed=1).write(folder)
    table = pd.read_csv(folder / "a.csv").iloc[:-7]
    table.assign(empty=np.nan).to_csv(folder / "a.csv", index=False)


@pytest.mark.parametrize("words", [(), ("--window", "200:300"), ("--json",)])
def test_what_reading_leaves_out_of_new_data_is_said(folders, tmp_path, words):
    """As `fit` says it: beside the answer."""
    with_short_client(tmp_path / "new")
    outcome = invoke(folders / "run", "--data", tmp_path / "new", *words)
    assert outcome.exit_code == 0, outcome.output
    said = " ".join(outcome.stderr.split())
    assert "note: client 'b': 7 of 400 rows" in said
    assert "sensor 'empty' has no sample" in said
    assert "note:" not in outcome.stdout


def test_what_reading_leaves_out_is_said_once_while_files_are_followed(
    folders, tmp_path, monkeypatch
):
    new = tmp_path / "new"
    turns = iter((300, 350, 400))

    def next_turn(_seconds):
        stop = next(turns, None)
        if stop is None:
            raise KeyboardInterrupt
        made_panel(stop, seed=1).write(new)
        table = pd.read_csv(new / "a.csv").iloc[: -stop // 50]
        table.assign(empty=np.nan).to_csv(new / "a.csv", index=False)

    next_turn(0)
    monkeypatch.setattr("time.sleep", next_turn)
    outcome = invoke(folders / "run", "--data", new, "--follow", "--every", "0.5")
    said = " ".join(outcome.stderr.split())
    assert said.count("client 'b': ") == 1
    assert said.count("sensor 'empty' has no sample") == 1
