"""Zones of time stamps: those of one panel are comparable, or the panel is refused."""

import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.data.panel import Panel
from fedgranger.data.panel_files import read_client
from fedgranger.data.reading_options import ReadingOptions
from fedgranger.errors import ConfigError, DataError, ReadingError
from tests.plant_files import CLIENTS, NUM_ROWS, TIMES, VALUES, frame

HOUR = pd.Timedelta(hours=1)


def plant(folder, **zones):
    """Clients on one clock, each with its own ending of the time stamps."""
    for name in CLIENTS:
        stamps = TIMES.strftime("%Y-%m-%dT%H:%M:%S") + zones.get(name, "")
        frame(name).assign(time=stamps).to_csv(folder / f"{name}.csv", index=False)
    return folder


def refused(*parts, error=DataError):
    return pytest.raises(error, match=".*".join(part.replace("+", r"\+") for part in parts))


def test_one_clock_with_and_without_its_offset_is_refused_and_proposed(tmp_path):
    """Taken as UTC, two clients were an hour late and nothing looked wrong."""
    folder = plant(tmp_path, boiler="+01:00")
    with refused(
        "client 'condenser', 'turbine': the time stamps",
        "2026-03-01T00:00:00",
        "'boiler' are in +01:00",
        "--time-zone condenser=+01:00,turbine=+01:00",
        "UTC",
        error=ReadingError,
    ):
        Panel.read(folder)
    panel = Panel.read(folder, time_zone="condenser=+01:00,turbine=+01:00")
    np.testing.assert_array_equal(panel.time, TIMES - HOUR)
    for name in CLIENTS:
        np.testing.assert_array_equal(panel[name].values, VALUES[name])
    late = Panel.read(folder, time_zone="UTC")
    assert late.num_steps == NUM_ROWS - 60
    checked = fg.check(folder)
    assert checked.needed == "--time-zone condenser=+01:00,turbine=+01:00"
    assert checked.num_steps == NUM_ROWS


@pytest.mark.parametrize(
    "zones",
    [
        {"boiler": "Z"},
        {"boiler": "+00:00"},
        {"boiler": "+01:00", "condenser": "+02:00"},
    ],
)
def test_what_the_others_do_not_tell_is_asked(tmp_path, zones):
    folder = plant(tmp_path, **zones)
    with refused("'turbine'", "turbine=UTC if they are in UTC", "Europe/Berlin") as caught:
        Panel.read(folder)
    assert not isinstance(caught.value, ReadingError)
    assert "turbine=UTC" in fg.check(folder).stopped


def test_offsets_that_change_within_a_file_are_no_fixed_zone(tmp_path):
    local = pd.date_range("2026-03-29 01:00", periods=120, freq="min", tz="Europe/Berlin")
    stamps = [stamp.isoformat() for stamp in local]
    frame("boiler").assign(time=stamps).to_csv(tmp_path / "boiler.csv", index=False)
    frame("turbine").assign(time=TIMES).to_csv(tmp_path / "turbine.csv", index=False)
    with refused("are in +01:00, +02:00", "turbine=UTC if"):
        Panel.read(tmp_path)


def test_zones_of_frames_are_asked_in_keywords():
    naive = {name: frame(name).set_index("time") for name in CLIENTS}
    frames = naive | {"boiler": naive["boiler"].tz_localize("Europe/Berlin")}
    wanted = "condenser=Europe/Berlin,turbine=Europe/Berlin"
    with refused("'condenser', 'turbine'", f"pass time_zone='{wanted}' if") as caught:
        Panel.from_frames(frames)
    assert "--" not in str(caught.value)
    panel = Panel.from_frames(frames, time_zone=wanted)
    np.testing.assert_array_equal(panel.time, TIMES - HOUR)


@pytest.mark.parametrize(
    ("zone", "hours"), [("+01:00", -1), ("-05:30", 5.5), ("UTC", 0), ("Europe/Berlin", -1)]
)
def test_fixed_offsets_are_zones(tmp_path, zone, hours):
    panel = Panel.read(plant(tmp_path), time_zone=zone)
    np.testing.assert_array_equal(panel.time, TIMES + hours * HOUR)
    assert panel.time_index[0] == TIMES[0].tz_localize(zone)
    own = Panel.read(tmp_path, time_zone=",".join(f"{name}={zone}" for name in CLIENTS))
    np.testing.assert_array_equal(own.time, panel.time)


@pytest.mark.parametrize("zone", ["+1", "+25:00", "+01:60", "Berlin"])
def test_other_texts_are_no_zones(tmp_path, zone):
    with refused(f"'{zone}'", "not a time zone", "+01:00", error=ConfigError):
        Panel.read(plant(tmp_path), time_zone=zone)


def test_a_zone_in_some_rows_only_is_refused(tmp_path):
    folder = plant(tmp_path, boiler="+01:00")
    path = folder / "boiler.csv"
    path.write_text(path.read_text().replace("00:07:00+01:00", "00:07:00"))
    with refused("client 'boiler', column 'time', data row 8", "names no time zone", "data row 1"):
        Panel.read(folder)


def test_a_site_is_told_that_its_clock_is_taken_as_utc(tmp_path):
    folder = plant(tmp_path, boiler="+01:00")
    *_, notes = read_client("turbine", folder / "turbine.csv", ReadingOptions())
    assert any("name no time zone and are taken as UTC" in note for note in notes)
    assert any("--time-zone" in note for note in notes)
    *_, notes = read_client("boiler", folder / "boiler.csv", ReadingOptions())
    assert notes == []
    options = ReadingOptions(time_zone="+01:00")
    _, time, notes = read_client("turbine", folder / "turbine.csv", options)
    assert notes == []
    assert time[0] == np.datetime64(TIMES[0] - HOUR)
