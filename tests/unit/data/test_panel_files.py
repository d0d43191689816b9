"""Reading and writing panels: every rule has its sentence, and nothing is done silently."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as arrow_parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedgranger.data import align, panel_files, panel_writing, text_tables
from fedgranger.data.panel import Panel
from fedgranger.data.reading_options import PanelOptions
from fedgranger.errors import ConfigError, DataError

GOOD = "time,x\n1,2\n2,3\n3,5\n"


def fill(folder: Path, **files: str | bytes) -> Path:
    """Write one CSV file per keyword."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / f"{name}.csv").write_bytes(data)
    return folder


def write_parquet(path: Path, **columns) -> None:
    arrow_parquet.write_table(pa.table(columns), path)


def refused(folder: Path, *parts: str, error: type[Exception] = DataError, **options) -> None:
    """Check that reading fails with one line that holds all the parts."""
    with pytest.raises(error) as caught:
        Panel.read(folder, **options)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, f"{part!r} is not in: {message}"


# ---------------------------------------------------------------- folders


def test_folder_one_client_per_file_sorted(tmp_path, monkeypatch):
    fill(tmp_path, zeta="time,x\n1,2\n2,3\n", b="time,u,v\n1,1,0\n2,4,9\n")
    write_parquet(tmp_path / "alpha.parquet", time=[1, 2], y=[0.5, 0.25])
    (tmp_path / "notes.txt").write_text("ignored")
    (tmp_path / ".b.csv").write_text("ignored")
    (tmp_path / "sub.csv").mkdir()
    panel = Panel.read(tmp_path)
    assert panel.names == ("alpha", "b", "zeta")
    assert panel["b"].sensors == ("u", "v")
    np.testing.assert_array_equal(panel["b"].values, [[1.0, 0.0], [4.0, 9.0]])
    assert panel["b"].observed.all()
    np.testing.assert_array_equal(panel.time, [1, 2])
    left_out = f"folder '{tmp_path.name}': files that are no tables were left out: 'notes.txt'"
    assert panel.notes == (left_out,)
    monkeypatch.chdir(tmp_path)
    assert Panel.read(".").notes == panel.notes


def test_missing_path_empty_folder_and_single_client(tmp_path):
    refused(tmp_path / "nowhere", "nowhere", "does not exist")
    refused(tmp_path, "no .csv, .tsv, .txt, .xlsx or .parquet file", "at least two")
    refused(fill(tmp_path, a=GOOD), "only client 'a'", "at least two")


def test_same_stem_twice(tmp_path):
    fill(tmp_path, a=GOOD, b=GOOD)
    write_parquet(tmp_path / "a.parquet", time=[1], x=[1.0])
    refused(tmp_path, "client 'a'", "a.csv and a.parquet", "remove one")


def test_file_without_partition(tmp_path):
    refused(fill(tmp_path, a=GOOD) / "a.csv", "single file", "partition", "--partition")


@pytest.mark.parametrize(
    ("option", "value", "near"), [("missing", "masc", "'mask'"), ("constant", "dorp", "'drop'")]
)
def test_unknown_option_names_the_nearest(tmp_path, option, value, near):
    refused(tmp_path, option, value, f"did you mean {near}", error=ConfigError, **{option: value})


# ---------------------------------------------------------------- broken files


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ["is empty", "header"]),
        ("time,x\n", ["no data rows"]),
        ("time\n1\n2\n", ["no sensor column"]),
        ("time,x,x\n1,2,3\n", ["column 'x' appears twice", "rename"]),
        (",time,x\n0,1,2\n", ["column 1 has no name", "index=False"]),
        ("time;x\n1;2\n", ["'bad.csv'", "semicolons", "--delimiter bad=semicolon"]),
        ("1.5,2.5\n3.5,1\n", ["'1.5'", "add a header"]),
        ("time,x\n1,2\n2\n", ["data row 2", "expected 2 cells", "found 1"]),
        ("time,x\n1,2\n2,3\n3,4,5\n", ["data row 3", "expected 2 cells", "found 3"]),
        (b"time,x\n1,2\n2,\xe4\n", ["column 'x'", "UTF-8"]),
        (b"time,\xe4\n1,2\n", ["header", "UTF-8"]),
        (GOOD.encode("utf-16"), ["UTF-8"]),
        ('time,x\n1,"2\n2,3\n', ["column 'x'", "data row 1", "not a number"]),
    ],
)
def test_broken_csv(tmp_path, content, parts):
    refused(fill(tmp_path, a=GOOD, bad=content), "client 'bad'", *parts)


def test_ragged_row_far_down_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(text_tables, "BLOCK_BYTES", 64)
    rows = [f"{row},{row % 7}" for row in range(200)]
    rows[149] += ",1"
    bad = "time,x\n" + "\n".join(rows) + "\n"
    refused(fill(tmp_path, a=GOOD, bad=bad), "client 'bad'", "data row 150", "found 3")


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_no_thread_of_the_reader_holds_anything_of_python(tmp_path, monkeypatch, encoding):
    # It would let go of it while the interpreter ends, which aborts the process.
    held = []

    def spy(source, read, parse, convert, really=text_tables.arrow_csv.open_csv):
        held.append((read.encoding, parse.invalid_row_handler))
        return really(source, read, parse, convert)

    monkeypatch.setattr(text_tables.arrow_csv, "open_csv", spy)
    fill(tmp_path, a=GOOD, bad="time,ä\n1,2\n2,3,4\n".encode(encoding))
    refused(tmp_path, "client 'bad'", "data row 2", "found 3", encoding=encoding)
    assert set(held) == {("utf8", None)}


def test_binary_file_is_one_sentence(tmp_path, monkeypatch):
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    binary = np.random.default_rng(5).bytes(5000)
    refused(fill(tmp_path, a=GOOD, bad=binary), "client 'bad'", "bad.csv' is not a readable CSV")
    assert not ignored


@pytest.mark.parametrize("content", [b"PAR1 nothing of the kind PAR1", b"x"])
def test_unreadable_parquet(tmp_path, content):
    fill(tmp_path, a=GOOD)
    (tmp_path / "bad.parquet").write_bytes(content)
    refused(tmp_path, "client 'bad'", "bad.parquet", "not a readable Parquet file")


def test_parquet_damaged_inside(tmp_path):
    fill(tmp_path, a=GOOD)
    path = tmp_path / "bad.parquet"
    write_parquet(path, time=np.arange(5000), x=np.random.default_rng(0).standard_normal(5000))
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    refused(tmp_path, "client 'bad'", "bad.parquet", "write it again")


def test_parquet_names_with_dots(tmp_path):
    for name in ("a", "b"):
        write_parquet(
            tmp_path / f"{name}.parquet", **{"p": [1, 2], "p.in": [3, 4], "p.in.x": [5, 7]}
        )
    panel = Panel.read(tmp_path)
    assert panel["a"].sensors == ("p", "p.in", "p.in.x")
    np.testing.assert_array_equal(panel["a"].values, [[1, 3, 5], [2, 4, 7]])


def test_parquet_with_repeated_columns_or_index(tmp_path):
    fill(tmp_path, a=GOOD)
    path = tmp_path / "bad.parquet"
    arrow_parquet.write_table(pa.table([[1], [2.0], [3.0]], names=["time", "x", "x"]), path)
    refused(tmp_path, "client 'bad'", "column 'x' appears twice")
    write_parquet(path, __index_level_0__=[0, 1], x=[1.0, 2.0])
    refused(tmp_path, "client 'bad'", "column 1 has no name")


def test_bom_crlf_and_blank_lines_at_the_end_are_harmless(tmp_path):
    fill(tmp_path, a=GOOD, b=GOOD.replace("\n", "\r\n") + "\r\n\r\n", c="\ufeff" + GOOD + "\n")
    panel = Panel.read(tmp_path)
    for client in panel:
        np.testing.assert_array_equal(client.values, [[2.0], [3.0], [5.0]])


def test_blank_line_in_the_middle_is_not_skipped(tmp_path):
    refused(
        fill(tmp_path, a=GOOD, b="time,x\n1,2\n\n3,4\n"), "client 'b'", "data row 2", "is empty"
    )
    one_column = fill(tmp_path / "rows", a="x\n1\n\n3\n", b="x\n1\n2\n4\n")
    panel = Panel.read(one_column, missing="mask")
    np.testing.assert_array_equal(panel["a"].observed[:, 0], [True, False, True])


# ---------------------------------------------------------------- values


def test_value_types_become_float64(tmp_path):
    write_parquet(
        tmp_path / "a.parquet",
        time=pa.array([1, 2, 3], pa.int32()),
        flag=[True, False, True],
        small=pa.array([1, 2, 3], pa.int8()),
        single=pa.array([0.5, 0.25, 2.0], pa.float32()),
        exact=pa.array(["1.25", "2.50", "3.75"]).cast(pa.decimal128(5, 2)),
        category=pa.array(["1", "2", "4"]).dictionary_encode(),
    )
    fill(tmp_path, b="time,flag,mixed,signed\n1,true,1,+1\n2,false,2.5,+2\n3,true,4,-3\n")
    panel = Panel.read(tmp_path)
    assert panel["a"].values.dtype == panel["b"].values.dtype == np.float64
    np.testing.assert_array_equal(
        panel["a"].values,
        [[1, 1, 0.5, 1.25, 1], [0, 2, 0.25, 2.5, 2], [1, 3, 2, 3.75, 4]],
    )
    np.testing.assert_array_equal(panel["b"].values, [[1, 1, 1], [0, 2.5, 2], [1, 4, -3]])


def test_late_change_of_type_does_not_confuse_the_reader(tmp_path, monkeypatch):
    monkeypatch.setattr(text_tables, "BLOCK_BYTES", 64)
    values = [*range(100), 0.5, *range(100)]
    times = [*range(200), 200.5]
    late = "time,x\n" + "".join(f"{t},{v}\n" for t, v in zip(times, values, strict=True))
    panel = Panel.read(fill(tmp_path, a=late, b=late))
    np.testing.assert_array_equal(panel["a"].values[:, 0], values)
    np.testing.assert_array_equal(panel.time, times)


@pytest.mark.parametrize("value", ["abc", "1_000", "12 kPa", "2026-01-01"])
def test_text_among_numbers(tmp_path, value):
    bad = f"time,x,y\n1,2,0\n2,3,{value}\n3,5,1\n"
    parts = ["client 'b'", "column 'y'", "data row 2", f"'{value}'", "correct it"]
    refused(fill(tmp_path, a=GOOD, b=bad), *parts)


def test_stamps_or_lists_are_not_values(tmp_path):
    fill(tmp_path, a=GOOD, b="time,x\n1,2026-01-01\n2,2026-01-02\n3,2026-01-03\n")
    refused(tmp_path, "client 'b'", "column 'x'", "data row 1", "'2026-01-01'")
    write_parquet(tmp_path / "a2.parquet", time=[1, 2], x=[[1], [2]])
    refused(tmp_path, "client 'a2'", "column 'x'", "data row 1", "'[1]'")


@pytest.mark.parametrize("missing", ["error", "mask"])
@pytest.mark.parametrize("value", ["inf", "-inf"])
def test_infinity_is_always_refused(tmp_path, value, missing):
    bad = f"time,x\n1,2\n2,3\n3,{value}\n"
    parts = ["client 'b'", "column 'x'", "data row 3", value, "infinite", "leave the cell empty"]
    refused(fill(tmp_path, a=GOOD, b=bad), *parts, missing=missing)


HOLES = "time,x,y\n1,2,7\n2,,8\n3,NaN,9\n4,1,\n"
FOUR = "time,x\n1,1\n2,2\n3,3\n4,5\n"


def test_missing_is_refused_with_the_remedy(tmp_path):
    parts = ["client 'b'", "column 'x'", "2 of 4", "data row 2", "missing='mask'", "--missing mask"]
    refused(fill(tmp_path, a=FOUR, b=HOLES), *parts)


def test_missing_is_masked_and_noted(tmp_path):
    panel = Panel.read(fill(tmp_path, a=FOUR, b=HOLES), missing="mask")
    np.testing.assert_array_equal(panel["b"].values, [[2, 7], [0, 8], [0, 9], [1, 0]])
    np.testing.assert_array_equal(panel["b"].observed, [[1, 1], [0, 1], [0, 1], [1, 0]])
    (note,) = panel.notes
    assert note == (
        "client 'b': 3 of 8 samples (37.50 %) are missing and were masked ('x' 2, 'y' 1)"
    )


@pytest.mark.parametrize("missing", ["error", "mask"])
def test_sensor_without_any_sample(tmp_path, missing):
    bad = "time,x,y\n1,2,\n2,3,\n3,4,\n"
    parts = ["client 'b'", "sensor 'y'", "no observed sample", "remove"]
    refused(fill(tmp_path, a=GOOD, b=bad), *parts, missing=missing)


def test_sensor_without_any_sample_after_alignment(tmp_path):
    fill(tmp_path, a=GOOD, b="time,x,y\n1,2,\n2,3,\n3,3,\n4,4,5\n")
    refused(tmp_path, "client 'b'", "sensor 'y'", "no observed sample", missing="mask")


def test_constant_sensor_is_refused_or_dropped(tmp_path):
    fill(tmp_path, a=GOOD, b="time,x,y\n1,2,7.5\n2,3,7.5\n3,4,7.5\n")
    parts = ["client 'b'", "sensor 'y'", "7.5", "constant='drop'", "--constant drop"]
    refused(tmp_path, *parts)
    panel = Panel.read(tmp_path, constant="drop")
    assert panel["b"].sensors == ("x",)
    np.testing.assert_array_equal(panel["b"].values, [[2], [3], [4]])
    assert panel.notes == ("client 'b': sensor 'y' is constant (7.5), dropped",)


def test_constant_means_observed_and_aligned_samples(tmp_path):
    fill(tmp_path, a=GOOD, b="time,x,y\n1,2,7\n2,3,\n3,4,7\n9,5,8\n")
    refused(tmp_path, "client 'b'", "sensor 'y'", "constant (7.0)", missing="mask")
    panel = Panel.read(tmp_path, missing="mask", constant="drop")
    assert panel["b"].sensors == ("x",)
    assert panel["b"].observed.all()


def test_client_left_without_sensors(tmp_path):
    fill(tmp_path, a=GOOD, b="time,x\n1,2\n2,2\n3,2\n")
    refused(tmp_path, "client 'b'", "every sensor is constant", "remove", constant="drop")


# ---------------------------------------------------------------- time


@pytest.mark.parametrize("name", ["time", "Timestamp", "DATETIME", "date", "T"])
def test_auto_finds_the_time_column(tmp_path, name):
    fill(tmp_path, a=f"x,{name}\n1,10\n2,20\n", b="time,y\n10,3\n20,4\n")
    panel = Panel.read(tmp_path)
    assert panel["a"].sensors == ("x",)
    np.testing.assert_array_equal(panel.time, [10, 20])


def test_given_time_column(tmp_path):
    fill(tmp_path, a="stamp,time\n1,4\n2,3\n", b="stamp,x\n1,2\n2,4\n")
    panel = Panel.read(tmp_path, time_column="stamp")
    assert panel["a"].sensors == ("time",)
    parts = ["client 'a'", "'stmp'", "did you mean 'stamp'", "--time-column"]
    refused(tmp_path, *parts, time_column="stmp")


def test_rows_as_time(tmp_path):
    fill(tmp_path, a="x\n1\n2\n4\n", b="y\n4\n2\n1\n")
    np.testing.assert_array_equal(Panel.read(tmp_path).time, [0, 1, 2])
    folder = fill(tmp_path / "other", a="time,x\n3,1\n2,2\n", b="y\n4\n2\n")
    assert Panel.read(folder, time_column="none")["a"].sensors == ("time", "x")


def test_rows_as_time_need_equal_counts(tmp_path):
    fill(tmp_path, a="x\n1\n2\n4\n", b="y\n4\n2\n")
    refused(tmp_path, "client 'a' has 3 rows", "client 'b' has 2", "add a time column")


def test_time_column_at_some_clients_only(tmp_path):
    fill(tmp_path, a=GOOD, b="y\n4\n2\n1\n")
    parts = ["client 'b' has no time column", "client 'a' has one", "--time-column none"]
    refused(tmp_path, *parts)


@pytest.mark.parametrize(
    ("times", "parts"),
    [
        (["1", "x", "3"], ["data row 2", "'x'", "cannot be read", "ISO"]),
        (["2026-01-01", "soon", "2026-01-03"], ["data row 2", "'soon'", "cannot be read"]),
        (["2026-01-01", "2026-01-02", "now"], ["data row 3", "'now'", "cannot be read"]),
        (["12:30", "12:31", "12:32"], ["data row 1", "'12:30:00'", "cannot be read"]),
        (["true", "false", "true"], ["data row 1", "'True'", "cannot be read"]),
        (["1", "", "3"], ["data row 2", "empty", "fill it in"]),
        (["2026-01-01", "2026-01-02", ""], ["data row 3", "empty"]),
        (["1", "2", "2"], ["data row 3", "time 2", "duplicate of data row 2", "keep one"]),
        (["1", "3", "2"], ["data row 3", "time 2", "earlier than 3", "sort"]),
        (["1", "2", "inf"], ["data row 3", "inf", "infinite"]),
        (["1500-01-01", "1500-01-02", "1500-01-03"], ["data row 1", "1500-01-01", "1678"]),
    ],
)
def test_bad_times(tmp_path, times, parts):
    bad = "time,x\n" + "".join(f"{time},{row}\n" for row, time in enumerate(times))
    refused(fill(tmp_path, a=GOOD, b=bad), "client 'b'", "column 'time'", *parts)


def test_times_beyond_int64(tmp_path):
    fill(tmp_path, a=GOOD)
    write_parquet(tmp_path / "b.parquet", time=pa.array([2**63, 2**63 + 1], pa.uint64()), x=[1, 2])
    refused(tmp_path, "client 'b'", "column 'time'", "too large", "offset")


def test_numbers_and_stamps_do_not_mix(tmp_path):
    fill(tmp_path, a=GOOD, b="time,x\n2026-01-01,2\n2026-01-02,3\n")
    refused(tmp_path, "client 'b' has time stamps", "client 'a' has numbers", "one kind")


@pytest.mark.parametrize(
    "stamps",
    [
        ["2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"],
        ["2026-01-01T02:00:00+02:00", "2026-01-01T03:00:00+02:00"],
        ["2026-01-01T02:00:00+02:00", "2025-12-31T20:00:00-0500"],
        ["2026-01-01T00:00:00.000000000Z", "2026-01-01 01:00:00Z"],
    ],
)
def test_time_zones_become_utc(tmp_path, stamps):
    text = "time,x\n" + "".join(f"{stamp},{row}\n" for row, stamp in enumerate(stamps))
    panel = Panel.read(fill(tmp_path, a=text, b="time,y\n2026-01-01T00:00Z,1\n2026-01-01T01:00Z,2"))
    assert panel.time.dtype == np.dtype("datetime64[ns]")
    np.testing.assert_array_equal(
        panel.time, np.array(["2026-01-01T00", "2026-01-01T01"], "datetime64[ns]")
    )
    assert panel.notes == ()


def test_zoned_parquet_and_plain_stamps_are_refused(tmp_path):
    stamps = pd.date_range("2026-01-01", periods=3, freq="h", tz="Europe/Oslo")
    write_parquet(tmp_path / "a.parquet", time=pa.array(stamps), x=[1.0, 2.0, 4.0])
    fill(tmp_path, b="time,y\n2025-12-31 23:00:00,1\n2026-01-01 00:00:00,2\n2026-01-01 01:00,9\n")
    refused(tmp_path, "client 'b': the time stamps", "2025-12-31T23:00:00", "b=Europe/Oslo")
    panel = Panel.read(tmp_path, time_zone="b=UTC")
    assert panel.num_steps == 3
    assert panel.time[0] == np.datetime64("2025-12-31T23")
    assert panel.notes == ()


def test_dates_are_stamps(tmp_path):
    text = "date,x\n2026-01-01,1\n2026-01-02,2\n"
    panel = Panel.read(fill(tmp_path, a=text, b=text))
    assert panel.time[1] == np.datetime64("2026-01-02T00:00:00.000000000")


# ---------------------------------------------------------------- alignment


def test_inner_join_is_noted_per_client(tmp_path):
    fill(
        tmp_path,
        a="time,x\n0,10\n1,11\n2,12\n3,13\n",
        b="time,y\n1,21.5\n2,22.5\n3,23.5\n4,24.5\n5,25.5\n",
        c="time,z\n1.0,1\n2.0,4\n3.0,9\n",
    )
    panel = Panel.read(tmp_path)
    np.testing.assert_array_equal(panel.time, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(panel["a"].values[:, 0], [11, 12, 13])
    np.testing.assert_array_equal(panel["b"].values[:, 0], [21.5, 22.5, 23.5])
    axis = "not on the common time axis (1 to 3, 3 steps of 1)"
    assert panel.notes == (
        f"client 'a': 1 of 4 rows is {axis} and was left out",
        f"client 'b': 2 of 5 rows are {axis} and were left out",
    )


def test_rows_that_one_client_lacks_are_missing_for_it_alone(tmp_path):
    every = "time,x\n" + "".join(f"{t},{t * t}\n" for t in range(12))
    holes = "time,x\n" + "".join(f"{t},{t % 5}\n" for t in range(12) if t not in (4, 8))
    panel = Panel.read(fill(tmp_path, a=every, b=holes))
    np.testing.assert_array_equal(panel.time, np.arange(12))
    assert panel["a"].observed.all()
    assert np.flatnonzero(~panel["b"].row_observed).tolist() == [4, 8]
    assert panel.notes[0] == "client 'b': 2 of 12 time steps have no row and count as missing"


def test_a_stretch_that_every_client_lacks_is_a_gap_of_the_axis(tmp_path):
    rows = [t for t in range(40) if not 10 <= t < 20]
    a = "time,x\n" + "".join(f"{t},{t * t}\n" for t in rows if t != 25)
    b = "time,x\n" + "".join(f"{t},{t % 5}\n" for t in rows if t not in (3, 4))
    panel = Panel.read(fill(tmp_path, a=a, b=b))
    np.testing.assert_array_equal(panel.time, rows)
    np.testing.assert_array_equal(panel.time[panel.segment_starts], [0, 20])
    assert panel.notes[-1] == "the time axis has 1 gap; no pair of time steps across a gap is used"


def test_the_coarser_clock_is_the_common_one(tmp_path):
    fine = "time,x\n" + "".join(f"{t},{t * t % 31}\n" for t in range(31))
    coarse = "time,x\n" + "".join(f"{t},{t % 7}\n" for t in range(4, 29, 5))
    panel = Panel.read(fill(tmp_path, a=fine, b=coarse))
    np.testing.assert_array_equal(panel.time, [4, 9, 14, 19, 24])
    np.testing.assert_array_equal(panel["a"].values[:, 0], panel.time**2 % 31)
    assert "26 of 31 rows are not on the common time axis" in panel.notes[0]


def test_nothing_in_common(tmp_path):
    fill(tmp_path, a=GOOD, b="time,x\n7,1\n8,2\n")
    refused(tmp_path, "no time in common", "'b' begins after 'a' ends", "same period")


def test_one_step_in_common(tmp_path):
    fill(tmp_path, a=GOOD, b="time,x\n3,1\n4,2\n")
    refused(tmp_path, "no time in common", "or nearly so")


# ---------------------------------------------------------------- one table and a partition

PLANT = "time,p1,p2,flow,remark\n1,1,2,3,x\n2,2,4,9,y\n3,4,5,1,z\n"


def plant(folder: Path, partition: object, name: str = "split.json") -> dict[str, Path]:
    fill(folder, plant=PLANT)
    text = partition if isinstance(partition, str) else json.dumps(partition)
    (folder / name).write_text(text)
    return {"folder": folder / "plant.csv", "partition": folder / name}


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("split.json", {"pump": ["p2", "p1"], "tank": ["flow"]}),
        ("split.json", {"clients": {"pump": ["p2", "p1"], "tank": ["flow"]}}),
        ("split.toml", 'pump = ["p2", "p1"]\ntank = ["flow"]\n'),
        ("split.toml", '[clients]\npump = ["p2", "p1"]\ntank = ["flow"]\n'),
    ],
)
def test_partition(tmp_path, name, partition):
    files = plant(tmp_path, partition, name)
    panel = Panel.read(files["folder"], partition=files["partition"])
    assert panel.names == ("pump", "tank")
    assert panel["pump"].sensors == ("p2", "p1")
    np.testing.assert_array_equal(panel["pump"].values, [[2, 1], [4, 2], [5, 4]])
    np.testing.assert_array_equal(panel.time, [1, 2, 3])
    assert panel.notes == ("table 'plant.csv': not assigned to any client and left out: 'remark'",)


def test_partition_of_parquet(tmp_path):
    files = plant(tmp_path, {"pump": ["p1"], "tank": ["flow", "p2"]})
    write_parquet(tmp_path / "plant.parquet", p1=[1, 2], p2=[5, 6], flow=[3.5, 4.5])
    panel = Panel.read(tmp_path / "plant.parquet", partition=files["partition"])
    np.testing.assert_array_equal(panel["tank"].values, [[3.5, 5.0], [4.5, 6.0]])
    assert panel.notes == ()


@pytest.mark.parametrize(
    ("partition", "parts"),
    [
        ({"pump": ["p1"], "tank": ["flwo"]}, ["client 'tank'", "'flwo'", "did you mean 'flow'"]),
        ({"pump": ["p1"], "tank": ["p1"]}, ["'p1'", "client 'pump'", "client 'tank'", "once"]),
        ({"pump": ["p1", "p1"], "tank": ["p2"]}, ["'p1'", "client 'pump'", "once"]),
        ({"pump": ["p1"], "tank": ["time"]}, ["client 'tank'", "'time' is the time column"]),
        ({"pump": ["p1"], "tank": ["remark"]}, ["client 'tank'", "'remark'", "row 1", "'x'"]),
        ({"pump": ["p1"], "tank": "p2"}, ["client 'tank'", "'p2'", "list"]),
        ({"pump": ["p1"], "tank": []}, ["client 'tank'", "[]", "one or more"]),
        ({"pump": ["p1"], "tank": [1]}, ["client 'tank'", "[1]", "column names"]),
        ({"pump": ["p1"]}, ["only client 'pump'", "at least two"]),
        ({}, ["no client", "at least two"]),
        (["p1"], ["not a mapping"]),
        ("{", ["not valid JSON or TOML"]),
        ('{"pump": ["p1"], "pump": ["p2"]}', ["client 'pump' appears twice", "join"]),
    ],
)
def test_bad_partition(tmp_path, partition, parts):
    files = plant(tmp_path, partition)
    refused(files["folder"], *parts, partition=files["partition"])


def test_partition_and_folder_or_missing_files(tmp_path):
    files = plant(tmp_path, {"pump": ["p1"], "tank": ["p2"]})
    refused(tmp_path, ".xlsx or .parquet file", partition=files["partition"])
    refused(files["partition"], ".xlsx or .parquet file", partition=files["partition"])
    refused(files["folder"], "gone.json", "cannot be read", partition=tmp_path / "gone.json")


# ---------------------------------------------------------------- writing

STAMPS = np.datetime64("2026-01-01T00:00:00.000000001", "ns") + np.arange(4) * 10**9
AXES = [np.arange(4), np.array([0.0, 0.1, 0.2, 0.30000000000000004]), STAMPS]
finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


def same_bits(left: Panel, right: Panel) -> None:
    assert left.names == right.names
    assert left.time.dtype == right.time.dtype
    np.testing.assert_array_equal(left.time, right.time)
    for a, b in zip(left, right, strict=True):
        assert a.sensors == b.sensors
        np.testing.assert_array_equal(a.values.view(np.int64), b.values.view(np.int64))
        np.testing.assert_array_equal(a.observed, b.observed)
    assert left.data_hash() == right.data_hash()


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize("time", AXES, ids=["int", "float", "stamp"])
def test_write_then_read_is_bit_exact(tmp_path, format, time):
    values = np.array([[-0.0, 5e-324], [np.pi, 1.7976931348623157e308], [1 / 3, -1e-17], [7, 1e22]])
    sensors = {"a": ['p, "in"', "t"], "b.2 ø": ["x"]}
    panel = Panel.from_arrays({"a": values, "b.2 ø": values[:, 1:]}, sensors=sensors, time=time)
    paths = panel.write(tmp_path / "new" / "folder", format=format)
    assert [path.name for path in paths] == [f"a.{format}", f"b.2 ø.{format}"]
    assert sorted(paths[0].parent.iterdir()) == sorted(paths)
    same_bits(Panel.read(paths[0].parent), panel)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_mask_survives(tmp_path, format):
    values = np.array([[1.5, np.nan], [np.nan, np.nan], [0.1, 2.0], [0.0, 0.0]])
    panel = Panel.from_arrays({"a": values, "b": values[::-1]})
    panel.write(tmp_path, format=format)
    same_bits(Panel.read(tmp_path, missing="mask"), panel)
    refused(tmp_path, "client 'a'", "column 's1'", "1 of 4", "data row 2")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=hnp.arrays(np.float64, (4, 3), elements=finite),
    is_missing=hnp.arrays(np.bool_, (4, 3)),
    format=st.sampled_from(["csv", "parquet"]),
)
def test_round_trip_property(tmp_path, values, is_missing, format):
    # The last two rows are observed and differ, so that no sensor is empty or constant.
    values[2:] = [[1.0] * 3, [2.0] * 3]
    is_missing[2:] = False
    masked = np.where(is_missing, np.nan, values)
    panel = Panel.from_arrays({"a": masked[:, :2], "b": masked[:, 2:]})
    folder = tmp_path / format
    panel.write(folder, format=format)
    same_bits(Panel.read(folder, missing="mask"), panel)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=hnp.arrays(np.float64, 50, elements=finite))
def test_decimals_are_read_exactly(tmp_path, values):
    values[:2] = [0.0, 1.0]
    text = "x\n" + "".join(f"{value!r}\n" for value in values.tolist())
    panel = Panel.read(fill(tmp_path, a=text, b=text), difference="none", suspect="keep")
    np.testing.assert_array_equal(panel["a"].values[:, 0].view(np.int64), values.view(np.int64))


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", ".hidden", "a\\b", "a:b", "a\n", "a.", "x" * 300]
)
def test_unsafe_client_names_are_refused(tmp_path, name):
    panel = Panel.from_arrays({"ok": np.eye(2), name: np.eye(2)})
    with pytest.raises(DataError, match="cannot be a file name; rename"):
        panel.write(tmp_path)
    assert not list(tmp_path.iterdir())


def test_write_refuses_time_sensor_and_unknown_format(tmp_path):
    panel = Panel.from_arrays({"a": np.eye(2)}, sensors={"a": ["time", "x"]})
    with pytest.raises(DataError, match=r"client 'a': sensor 'time' would clash.*rename"):
        panel.write(tmp_path)
    with pytest.raises(ConfigError, match=r"format is 'parket'.*did you mean 'parquet'"):
        panel.write(tmp_path, format="parket")


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    panel = Panel.from_arrays({"a": np.eye(2)})
    (path,) = panel.write(tmp_path)
    before = path.read_bytes()

    def fail(client, time, format, draft):
        draft.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(panel_writing, "_write_client", fail)
    with pytest.raises(OSError, match="No space"):
        panel.write(tmp_path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_equal_axes_share_one_time_array(tmp_path):
    fill(tmp_path, a=GOOD, b=GOOD)
    tables, _ = panel_files._read_folder(tmp_path, PanelOptions())
    assert tables[0].time is not None
    assert tables[1].time is not None
    assert tables[1].time is tables[0].time
    panel_values = tables[0].values
    align.align(tables)
    assert tables[0].values is panel_values


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"leave_out": "zz.p"}, "names 'zz.p', which is no sensor (clients: a, b)"),
        ({"leave_out": "a.qqq"}, "names 'a.qqq', which is no sensor (did you mean 'a.x'?)"),
        ({"leave_out": "qqq"}, "names 'qqq', which is no sensor (sensors: x, a.x, "),
        ({"time_column": "Zeit"}, "no time column 'Zeit' (columns: day, x)"),
        ({"delimiter": "bb=semicolon"}, "delimiter names client 'bb', which is unknown (clients: "),
        ({"skip_rows": "a=0,bb=1"}, "skip_rows names client 'bb', which is unknown (clients: a, b"),
    ],
)
def test_an_unknown_name_comes_with_those_there_are(tmp_path, option, words):
    fill(tmp_path, a="day,x\n1,2\n2,3\n", b="day,x\n1,2\n2,3\n")
    options = {"time_column": "day"} | option
    refused(tmp_path, words, error=(ConfigError, DataError), **options)
