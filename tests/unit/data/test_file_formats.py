"""Ways of writing files: every option does what it says, and what it cannot do it refuses."""

import builtins
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedgranger.data.cell_text import parse_dates, propose_numbers, to_number
from fedgranger.data.clock_steps import full_step, resampled
from fedgranger.data.file_format import FileFormat
from fedgranger.data.panel import Panel
from fedgranger.data.panel_files import read_client
from fedgranger.data.reading_options import ReadingOptions, as_measured
from fedgranger.data.treatment import ClientTable
from fedgranger.errors import ConfigError, DataError, FedGrangerError
from tests.plant_files import CLIENTS, TIMES, VALUES, clean, frame, jittered, wide_table


def refused(path: Path, *parts: str, **options) -> str:
    with pytest.raises(FedGrangerError) as caught:
        Panel.read(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, f"{part!r} is not in: {message}"
    return message


def same_values(panel: Panel) -> None:
    assert panel.names == CLIENTS
    for client in panel:
        np.testing.assert_array_equal(client.values, VALUES[client.name])
    np.testing.assert_array_equal(panel.time, TIMES)


# ---------------------------------------------------------------- cells


@pytest.mark.parametrize(
    ("cell", "decimal", "thousands", "value"),
    [
        ("1.5", ".", "", 1.5),
        ("1,5", ",", "", 1.5),
        ("1.234,5", ",", ".", 1234.5),
        ("-1,234,567.25", ".", ",", -1234567.25),
        ("1 234,5", ",", " ", 1234.5),
        ("1\u202f234", ".", " ", 1234.0),
        ("1'234.5", ".", "'", 1234.5),
        ("1.5", ",", ".", None),  # not a group of three
        ("1.5", ",", "", None),
        ("1,5", ".", "", None),
        ("12,34", ".", ",", None),
        ("1_000", ".", "", None),
    ],
)
def test_numbers_as_people_write_them(cell, decimal, thousands, value):
    assert to_number(cell, FileFormat(decimal=decimal, thousands=thousands)) == value


@pytest.mark.parametrize(
    ("cell", "date_format", "stamp"),
    [
        ("31.12.2026 23:59", "dd.mm.yyyy", "2026-12-31T23:59"),
        ("3/1/2026 12:00:30 AM", "mm/dd/yyyy", "2026-03-01T00:00:30"),
        ("03/01/26", "dd/mm/yy", "2026-01-03"),
        ("2026/03/01 05:06:07.25", "yyyy/mm/dd", "2026-03-01T05:06:07.25"),
        ("01.03.2026 02:00:00+02:00", "dd.mm.yyyy", "2026-03-01T00:00"),
        ("01-2026-03 07h", "%d-%Y-%m %Hh", "2026-03-01T07:00"),
    ],
)
def test_dates_as_people_write_them(cell, date_format, stamp):
    found = parse_dates([cell], date_format)
    found = found if found.tz is None else found.tz_convert(None)
    assert found[0] == pd.Timestamp(stamp)


def test_a_comma_that_can_mean_two_things_is_not_decided(tmp_path):
    for name in CLIENTS:
        data = frame(name)
        data["p"] = [f"{value:,.0f}" for value in data["p"]]
        data.to_csv(tmp_path / f"{name}.csv", index=False)
    message = refused(tmp_path, "column 'p'", "--thousands comma and --decimal comma")
    assert "in all" not in message
    read = Panel.read(tmp_path, thousands="comma")
    np.testing.assert_array_equal(read["boiler"].values[:, 1], np.round(VALUES["boiler"][:, 1]))


def test_a_date_that_can_mean_two_things_is_not_decided(tmp_path):
    for name in CLIENTS:
        data = frame(name)
        data["time"] = data["time"].dt.strftime("%m/%d/%Y %H:%M")  # all of them 03/01
        data.to_csv(tmp_path / f"{name}.csv", index=False)
    words = ("--date-format dd/mm/yyyy and --date-format mm/dd/yyyy", "'03/01/2026 00:00'")
    refused(tmp_path, *words)
    same_values(Panel.read(tmp_path, date_format="mm/dd/yyyy"))
    other = Panel.read(tmp_path, date_format="dd/mm/yyyy")
    assert other.time[0] == np.datetime64("2026-01-03")


# ---------------------------------------------------------------- files


def test_every_client_may_write_in_its_own_way(tmp_path):
    clean(tmp_path)
    german = frame("boiler")
    german["time"] = german["time"].dt.strftime("%d.%m.%Y %H:%M")
    german.to_csv(tmp_path / "boiler.csv", index=False, sep=";", decimal=",")
    needed = {
        "delimiter": "boiler=semicolon",
        "decimal": "boiler=comma",
        "date_format": "boiler=dd.mm.yyyy",
    }
    flags = " ".join(f"--{k.replace('_', '-')} {v}" for k, v in needed.items())
    refused(tmp_path, flags)
    same_values(Panel.read(tmp_path, **needed))


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_other_encodings_are_named(tmp_path, encoding):
    for name in CLIENTS:
        data = frame(name).rename(columns={"T": "T °C"})
        data.to_csv(tmp_path / f"{name}.csv", index=False, encoding=encoding)
    refused(tmp_path, "not UTF-8", f"--encoding {encoding}")
    assert Panel.read(tmp_path, encoding=encoding)["boiler"].sensors == ("T °C", "p")


@pytest.mark.parametrize("names", [("Datum", "Uhrzeit"), ("Date", "Time")])
def test_date_and_time_of_day_in_two_columns(tmp_path, names):
    date, clock = names
    for name in CLIENTS:
        data = frame(name)
        data.insert(0, date, data["time"].dt.strftime("%d.%m.%Y"))
        data.insert(1, clock, data.pop("time").dt.strftime("%H:%M"))
        data.to_csv(tmp_path / f"{name}.csv", index=False, sep=";", decimal=",")
    flags = f"--time-column {date}+{clock} --delimiter semicolon --decimal comma"
    refused(tmp_path, f"{flags} --date-format dd.mm.yyyy")
    options = {"delimiter": ";", "decimal": ",", "date_format": "dd.mm.yyyy"}
    same_values(Panel.read(tmp_path, time_column=f"{date}+{clock}", **options))


def test_a_point_that_can_group_thousands_is_not_decided(tmp_path):
    for name in CLIENTS:
        data = frame(name)
        data["T"] = [f"{value:,.0f}".replace(",", ".") for value in data["T"]]
        data["p"] = data["p"].round().astype(int)
        data.to_csv(tmp_path / f"{name}.csv", index=False, sep=";")
    words = "--decimal point and --decimal comma --thousands point"
    refused(tmp_path, words, delimiter="semicolon")
    read = Panel.read(tmp_path, delimiter="semicolon", decimal="comma", thousands="point")
    np.testing.assert_array_equal(read["boiler"].values, np.round(VALUES["boiler"]))
    read = Panel.read(tmp_path, delimiter="semicolon", decimal="point")
    np.testing.assert_allclose(read["boiler"].values[:, 0], np.round(VALUES["boiler"][:, 0]) / 1000)


def test_a_preamble_with_as_many_cells_as_the_table(tmp_path):
    for name in CLIENTS:
        text = frame(name).to_csv(index=False)
        (tmp_path / f"{name}.csv").write_text("Report,,\nPlant,North,\n" + text)
    refused(tmp_path, "the header is line 3", "--skip-rows 2")
    same_values(Panel.read(tmp_path, skip_rows=2))


def test_rows_without_a_header_and_damaged_files(tmp_path):
    clean(tmp_path)
    frame("boiler").to_csv(tmp_path / "boiler.csv", index=False, header=False)
    refused(tmp_path, "client 'boiler'", "add a header row")
    (tmp_path / "boiler.csv").unlink()
    (tmp_path / "boiler.csv.gz").write_bytes(b"no gzip")
    refused(tmp_path, "client 'boiler'", "write it again")
    (tmp_path / "boiler.csv.gz").unlink()
    (tmp_path / "boiler.xlsx").write_bytes(b"PK no workbook")
    refused(tmp_path, "client 'boiler'", "not a readable Excel file")


def test_columns_aligned_by_spaces(tmp_path):
    for name in CLIENTS:
        text = frame(name, None).to_string(index=False)
        (tmp_path / f"{name}.txt").write_text(text + "\n")
    refused(tmp_path, "separated by spaces", "--delimiter space")
    panel = Panel.read(tmp_path, delimiter="space")
    np.testing.assert_array_equal(panel["turbine"].values, VALUES["turbine"])


def test_sheets_of_a_workbook(tmp_path):
    for name in CLIENTS:
        with pd.ExcelWriter(tmp_path / f"{name}.xlsx") as book:
            pd.DataFrame({"remark": ["x"]}).to_excel(book, sheet_name="About", index=False)
            frame(name).to_excel(book, sheet_name="Data", index=False, startrow=2)
    refused(tmp_path, "2 sheets with cells ('About', 'Data')", "--sheet")
    refused(tmp_path, "the header is line 3", "--skip-rows 2", sheet="Data")
    same_values(Panel.read(tmp_path, sheet="Data", skip_rows=2))
    refused(tmp_path, "has no sheet 'Dat'", "About, Data", sheet="Dat")


def test_a_workbook_without_openpyxl(tmp_path, monkeypatch):
    frame("boiler").to_excel(tmp_path / "boiler.xlsx", index=False)
    frame("turbine").to_csv(tmp_path / "turbine.csv", index=False)
    found = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "openpyxl":
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    refused(tmp_path, "client 'boiler'", "openpyxl is not installed", "pip install openpyxl")


def test_old_workbooks_are_named_when_nothing_else_is_there(tmp_path):
    (tmp_path / "plant.xls").write_bytes(b"\xd0\xcf\x11\xe0")
    refused(tmp_path, "'plant.xls'", "save them as .xlsx or .csv")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"map": "P1_*"}, ["'P1_*'", "PATTERN=client"]),
        ({"map": "P1_*=a,Q*=b"}, ["no column fits 'Q*'"]),
        ({"map": "P1_*=a,*_T=b"}, ["'P1_T' fits the patterns of 'a' and 'b'"]),
        ({"map": "P*=a"}, ["only client 'a'"]),
        ({"delimiter": ":"}, ["delimiter is ':'", "semicolon"]),
        ({"decimal": "comma", "thousands": "comma"}, ["both ','"]),
        ({"date_format": "yyyymmdd", "map": "P1*=a,P2*=b"}, ["'yyyymmdd'", "dd.mm.yyyy"]),
        ({"time_zone": "Berlin", "map": "P1*=a,P2*=b"}, ["'Berlin'", "not a time zone"]),
        ({"resample": "1 month"}, ["resample is '1 month'", "1min"]),
        ({"align_tolerance": "40s", "map": "P1*=a,P2*=b"}, ["40s", "half of the interval 1min"]),
    ],
)
def test_options_without_a_meaning(tmp_path, options, parts):
    refused(wide_table(tmp_path), *parts, **options)


def test_unassigned_columns_of_a_map_are_named(tmp_path):
    panel = Panel.read(wide_table(tmp_path), map="P1_*=boiler,P3_p=turbine")
    assert panel["turbine"].sensors == ("P3_p",)
    assert "'P2_T', 'P2_p', 'P3_T'" in panel.notes[0]


def test_long_tables_of_single_clients_with_holes(tmp_path):
    for name in CLIENTS:
        data = frame(name).melt("time", var_name="Tag", value_name="Wert")
        data[data.index % 97 != 5].to_csv(tmp_path / f"{name}.csv", index=False)
    refused(tmp_path, "--tag-column Tag --value-column Wert --missing mask")
    panel = Panel.read(tmp_path, tag_column="Tag", value_column="Wert", missing="mask")
    assert panel["boiler"].sensors == ("T", "p")
    assert (~panel["boiler"].observed).sum() == 3
    is_there = panel["boiler"].observed
    np.testing.assert_array_equal(panel["boiler"].values[is_there], VALUES["boiler"][is_there])


def test_left_out_by_pattern_for_all_clients(tmp_path):
    for name in CLIENTS:
        frame(name).assign(T_quality="Good", p_quality="Good").to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    same_values(Panel.read(tmp_path, leave_out="*_quality"))


def test_next_obstacle_is_said_when_no_option_mends_it(tmp_path):
    for shift, name in enumerate(CLIENTS[:2]):
        data = frame(name, TIMES + pd.Timedelta(days=shift))
        data.to_csv(tmp_path / f"{name}.csv", index=False, sep=";")
    message = refused(tmp_path, "--delimiter semicolon", "no time in common")
    assert message.index("semicolons") < message.index("next obstacle")


# ---------------------------------------------------------------- time


def test_autumn_hours_are_told_apart_and_spring_hours_must_exist(tmp_path):
    hours = ["00:00", "01:00", "02:00", "02:00", "03:00", "04:00"]
    text = "time,x\n" + "".join(f"2026-10-25 {hour},{k % 4}\n" for k, hour in enumerate(hours))
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(text)
    refused(tmp_path, "data row 4", "daylight saving", "--time-zone Europe/Berlin")
    panel = Panel.read(tmp_path, time_zone="Europe/Berlin")
    first = np.datetime64("2026-10-24T22", "ns")
    np.testing.assert_array_equal(panel.time, first + np.arange(6) * np.timedelta64(1, "h"))
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(text.replace("2026-10-25", "2026-03-29"))
    refused(tmp_path, "do not fit the clock of Europe/Berlin", time_zone="Europe/Berlin")


def test_rows_of_one_time_by_rule(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("time,x\n1,2\n2,4\n2,8\n3,1\n")
    for rule, value in (("first", 4), ("last", 8), ("mean", 6)):
        panel = Panel.read(tmp_path, repeated=rule)
        np.testing.assert_array_equal(panel["a"].values[:, 0], [2, value, 1])
        assert "1 row repeats the time of another" in panel.notes[0]


def test_the_step_of_jittered_stamps():
    rng = np.random.default_rng(0)
    for step in (20_000_000, 100_000_000, 10**9, 59 * 10**9, 300 * 10**9):
        stamps = np.arange(400) * step + rng.integers(-step // 5, step // 5, 400)
        assert full_step(np.delete(stamps, np.arange(100, 130))) == step


def test_a_stamp_that_is_too_far_is_named(tmp_path):
    refused(jittered(tmp_path), "client 'boiler', data row", "2ms", align_tolerance="2ms")


# ---------------------------------------------------------------- resampling


def rates(folder: Path) -> dict[str, np.ndarray]:
    """Three clients with rows every 10 s, 1 min and 5 min."""
    rng = np.random.default_rng(8)
    values = {}
    for name, every, count in (("a", "10s", 1800), ("b", "1min", 300), ("c", "5min", 60)):
        times = pd.date_range("2026-03-01 00:00:10", periods=count, freq=every)
        times = times if name == "a" else times - pd.Timedelta("10s") + pd.Timedelta(every)
        values[name] = rng.standard_normal((count, 1))
        data = pd.DataFrame(values[name], columns=["x"])
        data.insert(0, "time", times)
        data.to_csv(folder / f"{name}.csv", index=False)
    return values


def test_different_rates_meet_at_the_mean_of_past_rows(tmp_path):
    values = rates(tmp_path)
    lost = Panel.read(tmp_path)
    assert "1740 of 1800 rows are not on the common time axis" in " ".join(lost.notes)
    assert "--resample 5min uses them all" in " ".join(lost.notes)
    panel = Panel.read(tmp_path, resample="5min")
    assert panel.time[0] == np.datetime64("2026-03-01T00:05")
    np.testing.assert_allclose(panel["a"].values, values["a"].reshape(60, 30).mean(1)[:, None])
    np.testing.assert_allclose(panel["b"].values, values["b"].reshape(60, 5).mean(1)[:, None])
    np.testing.assert_array_equal(panel["c"].values, values["c"])
    last = Panel.read(tmp_path, resample="5min", resample_rule="last")
    np.testing.assert_array_equal(last["a"].values, values["a"][29::30])
    assert "1800 rows became 60 steps of 5min (the mean" in " ".join(panel.notes)


def test_a_step_knows_nothing_of_later_rows():
    time = pd.date_range("2026-03-01", periods=60, freq="7s").to_numpy().astype("datetime64[ns]")
    values = np.random.default_rng(1).standard_normal((60, 2))
    before, _ = resampled(ClientTable("a", ("x", "y"), values, time), "1min", "mean")
    changed = values.copy()
    changed[30:] += 100
    after, _ = resampled(ClientTable("a", ("x", "y"), changed, time), "1min", "mean")
    assert before.time is not None
    is_past = before.time < time[30]
    np.testing.assert_array_equal(before.values[is_past], after.values[is_past])
    assert is_past.sum() == 4
    assert not np.isclose(before.values[~is_past], after.values[~is_past]).any()


def test_codes_and_holes_do_not_enter_a_mean(tmp_path):
    clean(tmp_path)
    data = frame("boiler")
    data.loc[[12, 40], "p"] = -9999.0
    data.loc[3, "p"] = np.nan
    data.to_csv(tmp_path / "boiler.csv", index=False)
    refused(tmp_path, "--missing mask", resample="10min")
    panel = Panel.read(tmp_path, resample="10min", missing="mask")
    assert panel["boiler"].values.min() > 1500
    rows = VALUES["boiler"][1:11, 1]
    np.testing.assert_allclose(panel["boiler"].values[1, 1], np.delete(rows, 2).mean())
    site, time, notes = read_client(
        "boiler", tmp_path / "boiler.csv", ReadingOptions(resample="10min", missing="mask")
    )
    np.testing.assert_array_equal(site.values, panel["boiler"].values)
    np.testing.assert_array_equal(time, panel.time)
    assert any("became 13 steps of 10min" in note for note in notes)
    new, *_ = read_client(
        "boiler", tmp_path / "boiler.csv", as_measured(ReadingOptions(resample="10min"))
    )
    np.testing.assert_array_equal(new.values, site.values)


def test_resampling_needs_stamps(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("time,x\n1,2\n2,4\n3,1\n")
    refused(tmp_path, "client 'a'", "the times are numbers", "--date-format unix", resample="1min")
    panel = Panel.read(tmp_path, date_format="unix")
    assert panel.time[0] == np.datetime64("1970-01-01T00:00:01")


def test_a_site_reads_with_the_same_options_and_proposals(tmp_path):
    data = frame("boiler")
    data["time"] = data["time"].dt.strftime("%d.%m.%Y %H:%M")
    path = tmp_path / "own.csv"
    data.assign(status="Good").to_csv(path, index=False, sep=";", decimal=",")
    with pytest.raises(DataError) as caught:
        read_client("boiler", path, ReadingOptions())
    flags = "--delimiter semicolon --decimal comma --date-format dd.mm.yyyy --leave-out status"
    assert flags in str(caught.value)
    options = ReadingOptions(
        delimiter="semicolon", decimal="comma", date_format="dd.mm.yyyy", leave_out="status"
    )
    client, time, _ = read_client("boiler", path, options)
    np.testing.assert_array_equal(client.values, VALUES["boiler"])
    np.testing.assert_array_equal(time, TIMES)


def test_unknown_options_name_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'delimiter'"):
        Panel.read(clean(tmp_path), delimeter=";")


@pytest.mark.parametrize(
    ("cells", "options"),
    [
        (["3,14", "Comm Fail", "2,7"], {"decimal": "comma"}),
        (["2.184,15", "Bad", "31,5", "7,1"], {"decimal": "comma", "thousands": "point"}),
        (["Comm Fail", "Bad", "2,7"], {}),  # mostly words: no numbers
        (["3,1", *(f"word {k}" for k in range(6)), *["2,7"] * 9], {}),  # too many different ones
        (["3.1", "Comm Fail", "2.7"], {}),  # as the options say already
    ],
)
def test_a_few_texts_among_the_numbers_do_not_hide_how_these_are_written(cells, options):
    assert propose_numbers(cells, FileFormat()) == options
