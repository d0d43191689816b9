"""`fedgranger check`: one screen before any fit, and a last line that is the command to fit."""

import json
import shlex

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from tests import plant_files as made


def invoke(*args):
    outcome = CliRunner().invoke(app, [str(arg) for arg in args])
    assert "Traceback" not in outcome.output
    return outcome


def test_a_plain_folder(tmp_path):
    outcome = invoke("check", made.clean(tmp_path))
    assert outcome.exit_code == 0
    lines = outcome.output.splitlines()
    assert lines[0] == (
        "3 clients, 120 time steps of 1min from 2026-03-01T00:00:00 to 2026-03-01T01:59:00, no gap"
    )
    assert "  boiler: 2 sensors, 120 complete rows" in lines
    assert any(line.startswith("the tests have 119 pairs of time steps") for line in lines)
    assert lines[-1] == f"fedgranger fit {tmp_path} --out run"


def test_the_last_line_works(tmp_path):
    """The command is run as it is, but for how much is computed."""
    data = tmp_path / "plant data"
    data.mkdir()
    outcome = invoke("check", made.german(data), "--constant", "drop")
    assert outcome.exit_code == 0
    assert "not with these options: client 'boiler'" in outcome.output
    command = shlex.split(outcome.output.splitlines()[-1])
    wanted = "--delimiter semicolon --decimal comma --date-format dd.mm.yyyy --constant drop"
    assert command[:5] == ["fedgranger", "fit", str(data), "--out", "run"]
    assert " ".join(command[5:]) == wanted
    command[4] = str(tmp_path / "run")
    fast = ("--state-dim", "1", "--solver", "none", "--test", "debiased", "--lags", "1")
    outcome = invoke(*command[1:], *fast)
    assert outcome.exit_code in (0, 3), outcome.output
    assert (tmp_path / "run" / "manifest.json").exists()
    written = command[5:-2]  # new data are not judged, but read alike
    said = [
        invoke("rca", tmp_path / "run", "--data", data, *options, "--json")
        for options in (written, ())  # the run knows them
    ]
    assert [outcome.exit_code for outcome in said] == [0, 0]
    assert said[0].output == said[1].output
    wrong = invoke("rca", tmp_path / "run", "--data", data, "--decimal", "point")
    assert wrong.exit_code == 2
    assert "pass --decimal comma" in wrong.output


def test_clients_of_different_rates_are_offered_a_command_that_uses_all_rows(tmp_path):
    rng, frames = np.random.default_rng(0), {}
    for name, minutes, count in (("inlet", 1, 600), ("aeration", 2, 300), ("outlet", 5, 120)):
        time = pd.date_range("2026-03-01", periods=count, freq=f"{minutes}min", name="time")
        frames[name] = pd.DataFrame(rng.standard_normal((count, 2)), time, ["s1", "s2"])
        frames[name].to_csv(tmp_path / f"{name}.csv")
    lines = invoke("check", tmp_path).output.splitlines()
    assert lines[-1] == f"fedgranger fit {tmp_path} --out run --resample 5min"
    assert any("client 'inlet': 600 rows became 121 steps of 5min" in line for line in lines)
    lost = [line for line in lines if line.endswith("would be left out without --resample 5min")]
    assert len(lost) == 3
    assert any("540 of 600 rows are not on the common time axis" in line for line in lost)
    chosen = invoke("check", tmp_path, "--resample", "10min").output.splitlines()
    assert chosen[-1] == f"fedgranger fit {tmp_path} --out run --resample 10min"
    assert not any("without --resample" in line for line in chosen)
    found = fg.check(frames)
    assert found.command == "fg.fit(frames, resample='5min')"
    assert found.unused[0].endswith("would be left out without resample='5min'")


def test_json_has_the_same_facts(tmp_path):
    outcome = invoke("check", made.counter_sensor(tmp_path), "--json")
    facts = json.loads(outcome.output)
    assert facts == json.loads(json.dumps(fg.check(tmp_path).to_mapping()))
    assert [client["name"] for client in facts["clients"]] == list(made.CLIENTS)
    assert facts["clients"][0]["complete_rows"] == 119  # the first change of a counter is missing
    assert facts["clients"][0]["lacking"] == {"energy_MWh": 1}
    assert facts["num_pairs"] == 119
    assert any("energy_MWh counts" in text for text in facts["findings"])


def test_what_no_option_mends(tmp_path):
    for shift, name in enumerate(made.CLIENTS[:2]):
        data = made.frame(name, made.TIMES + pd.Timedelta(days=shift))
        data.to_csv(tmp_path / f"{name}.csv", index=False, sep=";")
    outcome = invoke("check", tmp_path)
    assert outcome.exit_code == 2
    assert "with --delimiter semicolon: the clients have no time in common" in outcome.output
    assert fg.check(tmp_path).command == ""
    assert invoke("check", tmp_path / "nowhere").exit_code == 2


def test_odd_sensors_duplicates_and_suggestions(tmp_path):
    made.stuck_sensor(tmp_path)
    made.frame("boiler").assign(p2=made.VALUES["turbine"][:, 0]).to_csv(
        tmp_path / "condenser.csv", index=False
    )
    found = fg.check(tmp_path)
    assert ("condenser.p2", "turbine.T") in found.duplicates
    assert found.suggested == ("--leave-out boiler.p",)
    text = str(found)
    assert "sensors condenser.p2 and turbine.T hold the same values" in text
    assert "sensor 'p' stands still at 1.5" in text
    assert "worth a try: --leave-out boiler.p" in text


@pytest.mark.parametrize(
    ("days", "unsearched"), [(1.9, ()), (3, ("1d",)), (5, ()), (20, ("1d", "7d")), (35, ())]
)
def test_a_record_too_short_to_look_for_a_day_or_week_says_so(days, unsearched):
    """Three days hide a day that clients share, and a shared day looks like an edge."""
    time = pd.date_range(made.START, periods=int(24 * days), freq="h").to_numpy()
    values = made.recording(len(time))
    panel = fg.Panel.from_arrays({"boiler": values, "turbine": values[::-1]}, time=time)
    found = fg.check(panel)
    assert found.unsearched == unsearched
    said = f"add --period {','.join(unsearched)} to the fit," if unsearched else "no odd sensor"
    assert said in str(found)
    assert ("too short" in str(found)) == bool(unsearched)


def test_gaps_and_missing_samples(tmp_path):
    def change(name, data):
        kept = data[(data.index < 30) | (data.index >= 50)]
        p = kept["p"].where((kept.index < 70) | (kept.index >= 74) | (name != "boiler"))
        return kept.assign(p=p)

    made.write_all(tmp_path, change)
    found = fg.check(tmp_path)
    assert found.needed == "--missing mask"
    assert found.num_gaps == 1
    assert [one.longest_gap for one in found.clients] == [0, 0, 0]
    assert (found.clients[0].complete_rows, found.clients[0].half_rows) == (96, 100)
    assert found.clients[0].lacking == {"p": 4}
    assert found.num_pairs == 100 - 1 - 1  # one of two sensors may be enough
    assert "96 complete rows, 4 more lack some sensors and are used" in str(found)
    assert found.clients[0].missing_share == pytest.approx(4 / 200)


def test_a_day_that_repeats():
    rng = np.random.default_rng(0)
    time = np.datetime64("2026-03-01", "ns") + np.arange(480) * np.timedelta64(1, "h")
    day = np.sin(2 * np.pi * np.arange(480) / 24)[:, None]
    arrays = {name: 3 * day + rng.standard_normal((480, 2)) for name in ("a", "b")}
    arrays["c"] = rng.standard_normal((480, 2))
    found = fg.check(fg.Panel.from_arrays(arrays, time=time))
    assert [client.repeats for client in found.clients] == [("1d",), ("1d",), ()]
    assert "repeats every 1d" in str(found)
    assert found.interval == "1h"


def test_a_gap_of_one_row_is_one_row(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        frame = pd.DataFrame(rng.standard_normal((400, 2)), columns=["x", "y"])
        if name == "b":
            frame.loc[50] = np.nan
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    output = invoke("check", tmp_path, "--missing", "mask").output
    assert ", longest gap 1 row\n" in output


def test_records_that_no_fit_can_begin_with_are_refused(tmp_path):
    """Before, the last line was a command that the fit then refused."""
    panel, _ = fg.simulate(2, 8, sensor_dims=8, seed=3)
    panel.write(tmp_path)
    outcome = invoke("check", tmp_path)
    assert outcome.exit_code == 2
    assert "client 'client1': 8 complete rows for 8 sensors; at least 10 are" in outcome.output
    assert "fedgranger fit" not in outcome.output
