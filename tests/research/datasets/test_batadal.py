"""BATADAL: three hourly csv files in the authors' and the competition's form."""

import shutil

import numpy as np
import pandas as pd
import pytest

from fedgranger.errors import DataError
from fedgranger_research import datasets
from fedgranger_research.datasets import batadal
from tests.dataset_files import write_batadal


def refused(folder, *parts):
    with pytest.raises(DataError) as caught:
        datasets.load("batadal", folder)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, f"{part!r} is not in: {message}"


def test_every_column_has_one_client():
    names = [name for names in batadal.PARTITION.values() for name in names]
    assert sorted(names) == sorted(batadal.COLUMNS)
    assert [len(names) for names in batadal.PARTITION.values()] == [9, 19, 15]


def test_authors_files(batadal_frames, batadal_data):
    data = batadal_data[1]
    assert [run.name for run in data.runs] == ["dataset04", "test_dataset"]
    assert data.splits == ("train_attacks", "test")
    frame = batadal_frames["dataset04"]
    run = data.run("dataset04")
    names = list(data.partition["zone_PLC3"])
    np.testing.assert_array_equal(run.panel["zone_PLC3"].values, frame[names].to_numpy())
    np.testing.assert_array_equal(run.labels, frame["ATT_FLAG"])
    assert run.panel.time[0] == np.datetime64("2016-07-04T00", "ns")
    assert data.facts["constant_columns"] == {"source_T1": ["S_PU1"]}
    assert len(data.facts["notes"]) == 1
    table = data.instances
    assert list(table["root_clients"]) == [
        *["zone_PLC5"] * 2, *["source_T1"] * 2, *["zone_PLC3"] * 5,
        *["source_T1"] * 2, "zone_PLC3", "zone_PLC5", "zone_PLC3",
    ]  # fmt: skip
    assert table["is_single_root"].all()
    first = table.iloc[0]
    assert str(first["start_time"]) == "2016-09-13 23:00:00"
    assert str(run.panel.time[first["end"]])[:13] == "2016-09-16T00"


def test_competition_files_have_the_same_content(batadal_frames, batadal_data, tmp_path):
    write_batadal(tmp_path / "competition", batadal_frames, competition=True, prefix="BATADAL_")
    left, right = batadal_data[1], datasets.load("batadal", tmp_path / "competition")
    pd.testing.assert_frame_equal(left.instances, right.instances)
    pd.testing.assert_frame_equal(left.labels, right.labels)
    for one, two in zip(left.runs, right.runs, strict=True):
        assert one.panel.data_hash() == two.panel.data_hash()
    notes = " ".join(right.facts["notes"])
    assert "ATT_FLAG is -999 (not labelled) in 3685 rows" in notes
    assert "BATADAL_test_dataset.csv: no ATT_FLAG" in notes


def test_contradicting_flags_are_noted(batadal_data, tmp_path):
    folder = shutil.copytree(batadal_data[0], tmp_path / "csv")
    lines = (folder / "dataset04.csv").read_text().splitlines()
    lines[1:6] = [line[:-1] + "1" for line in lines[1:6]]
    (folder / "dataset04.csv").write_text("\n".join(lines) + "\n")
    data = datasets.load("batadal", folder)
    assert any("differ in 5 rows" in note for note in data.facts["notes"])
    assert data.run("dataset04").labels[:5].sum() == 0


def test_wrong_files(batadal_data, tmp_path):
    folder = shutil.copytree(batadal_data[0], tmp_path / "csv")
    path = folder / "dataset04.csv"
    good = path.read_text()
    lines = good.splitlines(keepends=True)

    def spoil(text, *parts):
        path.write_text(text)
        refused(folder, "dataset04.csv'", *parts)

    spoil("".join(lines[:-1]), "has 4176 rows", "4177 hourly rows from 2016-07-04T00")
    spoil("".join(lines[:5] + lines[6:]), "has 4176 rows", "2016-12-25T00")
    spoil(good.replace("L_T4", "L_T44", 1), "no column 'L_T4'", "43 signals")
    spoil(good.replace(",", ";"), "no column 'DATETIME'", "separated by commas")
    spoil(good.replace("04/07/16 00,", "2016-07-04,", 1), "data row 1", "'04/07/16 00' is needed")
    cells = lines[3].split(",")
    spoil("".join([*lines[:3], ",".join([cells[0], "", *cells[2:]]), *lines[4:]]),
          "data row 3, column 'L_T1': found nan")  # fmt: skip
    spoil("".join([*lines[:3], ",".join([cells[0], "on", *cells[2:]]), *lines[4:]]),
          "column 'L_T1': found string cells")  # fmt: skip
    spoil("version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git-lfs pointer")
    path.unlink()
    refused(folder, "holds no 'dataset04.csv' or 'BATADAL_dataset04.csv'", "train_attacks")
