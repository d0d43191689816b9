"""The prepared folder: what is in it, that it is read back, that nothing is half-written."""

import json

import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.errors import DataError, RunError
from fedgranger_research import datasets
from fedgranger_research.datasets.folder import new_folder, write_prepared
from tests.dataset_files import make_hai, write_hai


def written(dataset, folder):
    with new_folder(folder) as draft:
        write_prepared(dataset, draft)
    return folder


def check_same(left, right):
    assert left.name == right.name
    assert left.partition == right.partition
    assert left.facts == right.facts
    pd.testing.assert_frame_equal(left.labels, right.labels, check_dtype=False)
    pd.testing.assert_frame_equal(left.instances, right.instances, check_dtype=False)
    panels = [(left.train, right.train)]
    for one, two in zip(left.runs, right.runs, strict=True):
        assert (one.name, one.split) == (two.name, two.split)
        np.testing.assert_array_equal(one.labels, two.labels)
        panels.append((one.panel, two.panel))
    for one, two in panels:
        assert one.data_hash() == two.data_hash()


def test_tep_is_read_back(tep_data, tmp_path):
    data = tep_data
    folder = written(data, tmp_path / "tep")
    assert sorted(path.name for path in folder.iterdir()) == [
        "dataset.json", "labels.parquet", "partition.json", "root_causes.csv", "test", "train",
        "train_faulty",
    ]  # fmt: skip
    check_same(data, datasets.read_prepared(folder))
    train = fg.Panel.read(folder / "train")
    assert sorted(train.names) == sorted(data.train.names)
    np.testing.assert_array_equal(train["reactor"].values, data.train["reactor"].values)


def test_runs_are_segments_of_one_panel(tep_data, tmp_path):
    folder = written(tep_data, tmp_path / "tep")
    for split, count, rows in (("test", 22, 960), ("train_faulty", 21, 480)):
        panel = fg.Panel.read(folder / split)
        assert panel.num_steps == count * rows
        np.testing.assert_array_equal(np.flatnonzero(panel.segment_starts), np.arange(count) * rows)
        labels = pd.read_parquet(folder / "labels.parquet")
        labels = labels[labels["split"] == split]
        np.testing.assert_array_equal(labels["time"], panel.time)
        np.testing.assert_array_equal(labels["step"], np.tile(np.arange(rows), count))
    causes = pd.read_csv(folder / "root_causes.csv").set_index("instance_id")
    row = causes.loc["tep_test_idv04"]
    assert (row["start"], row["start_time"], row["end_time"]) == (160, 40160, 40959)


def test_stamped_runs_keep_their_time(tmp_path, rng):
    write_hai(tmp_path / "csv", make_hai("20.07", rng), "20.07")
    data = datasets.load("hai", tmp_path / "csv")
    folder = written(data, tmp_path / "hai")
    check_same(data, datasets.read_prepared(folder))
    panel = fg.Panel.read(folder / "train")
    assert panel.segment_starts.sum() == 2
    causes = pd.read_csv(folder / "root_causes.csv")
    assert causes["start_time"][0] == "2019-09-11 21:23:40"


def test_facts_of_the_folder(tep_files, tep_data, tmp_path):
    folder = written(tep_data, tmp_path / "tep")
    facts = json.loads((folder / "dataset.json").read_text())
    for key in ("name", "version", "source", "licence", "citation", "hashes", "counts",
                "constant_columns", "constant_columns_rule", "fedgranger", "format"):  # fmt: skip
        assert key in facts
    assert len(facts["hashes"]) == 44
    assert facts["counts"]["instances"] == 42
    partition = json.loads((folder / "partition.json").read_text())
    assert list(partition) == ["clients"]  # the form that --partition reads
    again = datasets.load("tep", tep_files[0], partition=folder / "partition.json")
    assert again.partition == tep_data.partition


def interrupt(target, **options):
    def work():
        with new_folder(target, **options) as draft:
            (draft / "part").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()


def test_nothing_is_half_written(tmp_path):
    target = tmp_path / "out"
    interrupt(target)
    assert list(tmp_path.iterdir()) == []
    target.mkdir()
    (target / "dataset.json").write_text("old")
    interrupt(target, overwrite=True)
    assert (target / "dataset.json").read_text() == "old"
    with new_folder(target, overwrite=True) as draft:
        (draft / "dataset.json").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (target / "dataset.json").read_text() == "new"


def test_old_folder_comes_back_when_the_new_one_cannot_take_its_place(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    (target / "dataset.json").write_text("old")

    def work():
        with new_folder(target, overwrite=True) as draft:
            draft.rmdir()  # so that it cannot be renamed at the end

    with pytest.raises(FileNotFoundError):
        work()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (target / "dataset.json").read_text() == "old"


def test_targets_that_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "dataset.json").write_text("{}")
    for name, overwrite, part in (
        ("file", False, "is a file"),
        ("full", False, "is not empty; give"),
        ("full", True, "is not empty; give"),
        ("done", False, "use --overwrite"),
    ):
        with pytest.raises(RunError, match=part), new_folder(tmp_path / name, overwrite=overwrite):
            pass


def test_other_folders_are_not_prepared(tmp_path):
    with pytest.raises(DataError, match="datasets prepare"):
        datasets.read_prepared(tmp_path)
    (tmp_path / "dataset.json").write_text('{"format": 1, "machines": {}}')
    with pytest.raises(DataError, match="the folder of one machine"):
        datasets.read_prepared(tmp_path)
    (tmp_path / "dataset.json").write_text('{"format": 0}')
    with pytest.raises(DataError, match="prepare it again"):
        datasets.read_prepared(tmp_path)
