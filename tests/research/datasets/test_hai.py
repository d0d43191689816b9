"""HAI: four versions, attacks with and without named processes."""

import numpy as np
import pandas as pd
import pytest

from fedgranger.errors import ConfigError, DataError
from fedgranger_research import datasets
from fedgranger_research.datasets import hai_files
from tests.dataset_files import hai_tags, make_hai, write_hai

VERSIONS = ("20.07", "21.03", "22.04", "23.05")


def made(tmp_path, rng, version, **options):
    frames = make_hai(version, rng, **options)
    folder = tmp_path / "hai"
    write_hai(folder, frames, version)
    return folder, frames


def refused(folder, *parts, error=DataError, **options):
    with pytest.raises(error) as caught:
        datasets.load("hai", folder, **options)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, f"{part!r} is not in: {message}"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version(tmp_path, rng, version):
    folder, frames = made(tmp_path, rng, version)
    data = datasets.load("hai", folder, accept_changed=True)
    assert data.facts["version"] == version
    assert data.train.names == ("P1", "P2", "P3")
    assert data.train.num_steps == 550
    assert data.train.segment_starts.sum() == 2  # the files are not one series
    names = list(data.partition["P1"])
    assert names == [tag for tag in hai_tags(version) if tag.startswith(("P1_", "x1001_"))]
    assert len(names) == hai_files.TAG_COUNTS[version][0]
    np.testing.assert_array_equal(data.train["P1"].values[:300], frames["train1"][names])
    assert data.facts["constant_columns"] == {"P2": ["P2_T00"]}
    assert [run.name for run in data.test] == ["test1", "test2"]
    np.testing.assert_array_equal(data.run("test1").labels, frames["test1"]["attack"])
    table = data.instances
    assert list(zip(table["run"], table["start"], table["end"], strict=True)) == [
        ("test1", 20, 29),
        ("test2", 50, 69),
    ]
    if version in ("20.07", "21.03"):
        assert list(table["root_clients"]) == ["P1", "P2;P3"]
        assert list(table["is_single_root"]) == [True, False]
    else:
        assert list(table["root_clients"]) == ["", ""]
        assert set(table["confidence"]) == {"unknown"}
        assert any("2 of 2 attacks have no known root" in note for note in data.facts["notes"])
    left_out = data.facts["columns_without_client"]
    assert left_out == [tag for tag in hai_tags(version) if tag.startswith("P4_")]


def test_packed_files_are_the_same(tmp_path, rng):
    frames = make_hai("20.07", rng)
    write_hai(tmp_path / "plain", frames, "20.07")
    write_hai(tmp_path / "packed", frames, "20.07", packed=True)
    plain, packed = (datasets.load("hai", tmp_path / name) for name in ("plain", "packed"))
    assert plain.train.data_hash() == packed.train.data_hash()
    pd.testing.assert_frame_equal(plain.instances, packed.instances)
    assert list(plain.facts["hashes"].values()) == list(packed.facts["hashes"].values())


def test_training_files_alone_are_normal_operation(tmp_path, rng):
    folder, _ = made(tmp_path, rng, "20.07")
    whole = datasets.load("hai", folder)
    for name in ("test1.csv", "test2.csv"):
        (folder / name).unlink()
    data = datasets.load("hai", folder)
    assert data.train.data_hash() == whole.train.data_hash()
    assert data.runs == ()
    assert len(data.instances) == 0
    assert any("no test files" in note for note in data.facts["notes"])


def test_attacks_in_training_files_are_left_out(tmp_path, rng):
    folder, _ = made(tmp_path, rng, "20.07", train_attacks=range(100, 140))
    data = datasets.load("hai", folder)
    assert data.train.num_steps == 510
    assert data.train.segment_starts.sum() == 3
    assert any("train2: 40 of 250 training rows" in note for note in data.facts["notes"])


def test_training_rows_that_are_in_a_test_file_are_left_out(tmp_path, rng):
    folder, frames = made(tmp_path, rng, "21.03", train_shift=3900)  # train2 begins 100 s early
    assert frames["train2"]["time"][100] == frames["test1"]["time"][0]
    data = datasets.load("hai", folder)
    assert data.train.num_steps == 300 + 100
    assert data.train.time[-1] < data.run("test1").panel.time[0]
    assert any("150 of 250 training rows are in a test" in note for note in data.facts["notes"])


def test_simulator_can_be_assigned(tmp_path, rng):
    folder, _ = made(tmp_path, rng, "21.03")
    data = datasets.load("hai", folder, assign_p4=True)
    assert "P4_ST_PO" in data.partition["P2"]
    assert data.partition["P3"][-1] == "P4_HT_PO"
    assert data.facts["columns_without_client"] == ["P4_LD"]
    assert list(data.instances["root_clients"]) == ["P1", "P2;P3"]


def test_table_of_attacks(tmp_path, rng):
    """Roots from a table; the labels give the exact seconds; other versions' rows are ignored."""
    folder, frames = made(tmp_path, rng, "22.04")
    start = frames["test1"]["time"][15]
    table = pd.DataFrame(
        {
            "instance_id": ["A1", "A2", "other"],
            "start": [start, frames["test2"]["time"][60], "2020-01-01 00:00:00"],
            "end": [
                frames["test1"]["time"][25],
                frames["test2"]["time"][75],
                "2020-01-01 00:01:00",
            ],
            "root_clients": ["P3", "P1;P2", "P1"],
            "confidence": ["high", "low", "high"],
        }
    )
    path = tmp_path / "attacks.csv"
    table.to_csv(path, index=False)
    data = datasets.load("hai", folder, attacks=path, accept_changed=True)
    columns = ["instance_id", "start", "end", "root_clients", "primary", "confidence"]
    assert data.instances[columns].to_numpy().tolist() == [
        ["A1", 20, 29, "P3", "P3", "high"],
        ["A2", 50, 69, "P1;P2", "", "low"],
    ]
    table.drop(columns="end").to_csv(path, index=False)
    refused(folder, "no column 'end'", "start, end, root_clients", attacks=path,
            accept_changed=True)  # fmt: skip
    table.assign(end="soon").to_csv(path, index=False)
    refused(folder, "data row 1: end is 'soon'", attacks=path, accept_changed=True)
    refused(folder, "none.csv' does not exist", attacks=tmp_path / "none.csv",
            accept_changed=True)  # fmt: skip


def test_published_hash_is_needed(tmp_path, rng):
    folder, _ = made(tmp_path, rng, "22.04")
    refused(folder, "train1.csv' has the hash", "63383690ffc5", "--accept-changed")
    data = datasets.load("hai", folder, accept_changed=True)
    assert sum("read all the same" in note for note in data.facts["notes"]) == 4


def test_wrong_files(tmp_path, rng):
    folder, _ = made(tmp_path, rng, "20.07")
    path = folder / "test1.csv"
    good = path.read_text()

    def spoil(text, *parts):
        path.write_text(text)
        refused(folder, "test1.csv'", *parts)
        path.write_text(good)

    spoil("version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer", "git lfs pull")
    spoil("", "is empty")
    spoil(good.replace("P1_T00", "X1_T00", 1), "unknown column 'X1_T00'", "20.07: 31/12/5/11")
    spoil(good.replace("P1_T00;", "", 1), "30/12/5/11 tags")
    spoil(good.replace("time;", "clock;", 1), "no clock", "time or timestamp")
    spoil(good.replace("2019-09-11 21:23:20", "11.9.2019", 1), "data row 1: the time is")
    rows = good.splitlines(keepends=True)
    spoil("".join([*rows[:3], rows[2], *rows[3:]]), "data row 3", "does not follow")
    cells = rows[2].split(";")
    spoil("".join([*rows[:2], ";".join([cells[0], "", *cells[2:]]), *rows[3:]]),
          "data row 2, column 'P1_T00': found nan")  # fmt: skip
    spoil("".join([*rows[:2], ";".join([cells[0], "x", *cells[2:]]), *rows[3:]]),
          "cannot be read as a table")  # fmt: skip
    spoil("".join([*rows[:2], ";".join([*cells[:-4], "3", *cells[-3:]]), *rows[3:]]),
          "0 or 1 are needed")  # fmt: skip
    packed = folder / "train1.csv.gz"
    (folder / "train1.csv").unlink()
    packed.write_bytes(b"\x1f\x8b damaged")
    refused(folder, "train1.csv.gz'")
    packed.unlink()
    (folder / "train2.csv").unlink()
    refused(folder, "holds test1.csv, test2.csv", "train1.csv, …", "put them there")
    folder.rename(tmp_path / "hai-20.07")
    refused(tmp_path, "pass one version's folder, such as hai-20.07")


def test_missing_labels_of_23_05(tmp_path, rng):
    folder, _ = made(tmp_path, rng, "23.05")
    (folder / "label-test2.csv").write_text("timestamp,label\n2019-01-01,0\n")
    refused(folder, "label-test2.csv': 1 labels", "150 labels", accept_changed=True)
    (folder / "label-test2.csv").write_text("timestamp,flag\n2019-01-01,0\n")
    refused(folder, "timestamp,label is needed", accept_changed=True)
    (folder / "label-test2.csv").unlink()
    refused(folder, "no column attack and there is no 'label-test2.csv'", accept_changed=True)


def test_two_versions_in_one_folder(tmp_path, rng):
    folder, _ = made(tmp_path, rng, "20.07")
    other = make_hai("21.03", rng)["test2"]
    other.to_csv(folder / "test2.csv", index=False)
    refused(folder, "test2.csv' is of version 21.03", "before it are of 20.07")
    refused(folder, "no option 'machine'", error=ConfigError, machine="x")
