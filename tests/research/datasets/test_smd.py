"""SMD: text files per machine, interpretation labels, root clients by share."""

import numpy as np
import pytest

from fedgranger.errors import ConfigError, DataError
from fedgranger_research import datasets
from fedgranger_research.datasets import smd
from fedgranger_research.datasets.assemble import root_clients
from tests.dataset_files import CONSTANT, write_smd


@pytest.fixture
def files(tmp_path, rng):
    made = write_smd(tmp_path / "text", rng)
    return tmp_path / "text", made


def refused(folder, *parts, error=DataError, **options):
    with pytest.raises(error) as caught:
        datasets.load("smd", folder, **options)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, f"{part!r} is not in: {message}"


def test_every_metric_has_one_client():
    names = [name for names in smd.PARTITION.values() for name in names]
    assert sorted(names) == sorted(smd.COLUMNS)
    assert len(set(smd.COLUMNS)) == 38


def test_one_machine(files):
    folder, made = files
    data = datasets.load("smd", folder, machine="machine-1-1")
    train, test, labels = made["machine-1-1"]
    np.testing.assert_array_equal(data.train["cpu_load"].values, train[:, :4])
    assert data.train["memory"].sensors == ("mem_shmem", "mem_u", "mem_u_e", "si", "so")
    (run,) = data.test
    np.testing.assert_array_equal(run.panel["disk"].values, test[:, 8:16])
    np.testing.assert_array_equal(run.labels, labels)
    dropped = data.facts["constant_columns"]
    assert sorted(name for names in dropped.values() for name in names) == sorted(CONSTANT)
    assert any("dropped: total_mem" in note for note in data.train.notes)
    table = data.instances.set_index("instance_id")
    first = table.loc["smd_1-1_01"]
    assert (first["start"], first["end"]) == (10, 19)  # the files' second number is excluded
    assert (first["root_clients"], first["primary"]) == ("cpu_load;disk", "cpu_load")
    second = table.loc["smd_1-1_02"]
    assert (second["root_clients"], second["is_single_root"]) == ("disk", True)
    assert second["root_columns"] == "disk_q;disk_u"


def test_machines_one_after_another(files):
    names = [data.facts["machine"] for data in datasets.iter_machines(files[0])]
    assert names == ["machine-1-1", "machine-3-10"]
    chosen = datasets.iter_machines(files[0], machines=["machine-3-10"])
    assert [data.facts["machine"] for data in chosen] == ["machine-3-10"]
    inner = files[0] / "ServerMachineDataset"  # the repository or the folder in it
    assert smd.machines(inner) == smd.machines(files[0])


def test_primary_root_by_share():
    partition = {"a": ("a1", "a2", "a3"), "b": ("b1", "b2"), "c": ("c1", "c2", "c3", "c4")}
    kept = {"a": ("a1", "a2"), "b": ("b1", "b2"), "c": ("c1", "c2", "c3", "c4")}

    def roots(*names):
        return root_clients(names, partition, kept, "share")

    assert roots("b1") == (("b",), "b", False)
    assert roots("a1", "b1", "b2") == (("a", "b"), "b", False)
    assert roots("a1", "b1") == (("a", "b"), "a", True)  # equal shares, equal counts: the first
    assert roots("a1", "c1", "c2") == (("a", "c"), "c", True)  # equal shares: more columns
    assert roots("a3", "b1") == (("a", "b"), "b", False)  # 1/3 < 1/2: a dead root counts as live
    assert roots() == ((), "", False)
    assert root_clients(("a1", "b1"), partition, kept, "single") == (("a", "b"), "", False)


def test_choosing_a_machine(files):
    refused(files[0], "smd has 2 machines", "machine=", "iter_machines", error=ConfigError)
    refused(
        files[0],
        "no machine 'machine-1-9'",
        "(did you mean",
        error=ConfigError,
        machine="machine-1-9",
    )


def test_wrong_files(files, tmp_path):
    root = files[0] / "ServerMachineDataset"

    def machine(*parts):
        refused(files[0], *parts, machine="machine-1-1")

    def spoil(name, text, *parts):
        path = root / name / "machine-1-1.txt"
        before = path.read_text()
        path.write_text(text if isinstance(text, str) else text(before))
        machine(*parts)
        path.write_text(before)

    spoil("train", "0.1,0.2\n", "train/machine-1-1.txt' holds 1 x 2 numbers", "x 38")
    spoil("test", lambda text: text + "0.1,\n", "test/machine-1-1.txt' cannot be read as a table")
    spoil("test", lambda text: text.replace("0.", "x.", 1), "cannot be read as a table")
    spoil("test_label", "0\n1\n", "holds 2 x 1 numbers, 120 x 1")
    spoil("test_label", lambda text: "2" + text[1:], "line 1: found 2.0, 0 or 1")
    for line in ("10-20", "10-20:39", "10-20:0", "20-10:1", "10-121:1", "a-b:1"):
        spoil("interpretation_label", line, "line 1: found", "metrics 1 to 38", "within 120 rows")
    spoil("train", "", "is empty")
    (root / "test_label" / "machine-1-1.txt").unlink()
    machine("holds no 'machine-1-1.txt'", "test_label of machine-1-1")
    for path in (root / "train").iterdir():
        path.unlink()
    machine("holds no machine-*.txt", "28 files")
    (root / "train").rmdir()
    machine("has no folder 'train'", "found: interpretation_label")


def test_client_without_live_column_is_refused(files):
    partition = {"dead": ["total_mem", "in_errs"], "live": ["cpu_r"]}
    refused(
        files[0],
        "client 'dead': all of its 2 columns are constant",
        "total_mem, in_errs",
        machine="machine-1-1",
        partition=partition,
    )


def test_listed_hash_is_needed(files):
    root = files[0] / "ServerMachineDataset"
    (root / "SHA256SUMS").write_text(f"{'0' * 64}  train/machine-1-1.txt\n")
    refused(files[0], "train/machine-1-1.txt' has the hash", "0" * 64, "--accept-changed",
            machine="machine-1-1")  # fmt: skip
    data = datasets.load("smd", files[0], machine="machine-1-1", accept_changed=True)
    assert any("read all the same" in note for note in data.facts["notes"])
