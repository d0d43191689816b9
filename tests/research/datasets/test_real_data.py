"""The real data as the publishers' files: the counts that their description states."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedgranger_research import datasets
from fedgranger_research.datasets import smd
from tests import published_files


@pytest.mark.slow  # reads the whole recording
def test_tep(real, tmp_path):
    published_files.write_tep(real / "tep", tmp_path)
    data = datasets.load("tep", tmp_path)
    counts = data.facts["counts"]
    assert (counts["train_rows"], counts["runs"], counts["run_rows"]) == (500, 43, 10_080 + 21_120)
    assert counts["anomalous_rows"] == 10_080 + 16_800
    assert data.facts["constant_columns"] == {}
    assert sum(counts["columns"].values()) == 52
    causes = pd.read_csv(real / "tep" / "root_causes.csv").set_index("instance_id")
    ours = data.instances.set_index("instance_id").loc[causes.index]
    assert [set(x.split(";")) for x in ours["root_clients"]] == [
        set(x.split(";")) for x in causes["root_clients"]
    ]
    np.testing.assert_array_equal(ours["start"], causes["start_sample"])
    np.testing.assert_array_equal(ours["end"], causes["end_sample"])
    assert list(ours["confidence"]) == list(causes["confidence"])
    frozen = data.run("d21_te").panel["feed_AC"]
    assert np.ptp(frozen.values[160:, frozen.sensors.index("XMV_4")]) == 0
    assert np.ptp(frozen.values[:160, frozen.sensors.index("XMV_4")]) > 0


def test_batadal(real, tmp_path):
    published_files.write_batadal(real / "batadal", tmp_path)
    data = datasets.load("batadal", tmp_path)
    assert data.train.num_steps == 8761
    assert [run.panel.num_steps for run in data.runs] == [4177, 2089]
    assert [int(run.labels.sum()) for run in data.runs] == [492, 407]
    assert not any("differ" in note for note in data.facts["notes"])  # ATT_FLAG agrees by the hour
    dropped = {name for names in data.facts["constant_columns"].values() for name in names}
    assert dropped == {"S_PU1", "F_PU3", "S_PU3", "F_PU5", "S_PU5", "F_PU9", "S_PU9"}
    roots = data.instances["root_clients"].value_counts().to_dict()
    assert roots == {"zone_PLC3": 7, "source_T1": 4, "zone_PLC5": 3}
    causes = pd.read_csv(real / "batadal" / "root_causes.csv")
    for name, step in (("start", "start_time"), ("end", "end_time")):
        np.testing.assert_array_equal(pd.to_datetime(causes[name]), data.instances[step])
    assert list(causes["confidence"]) == list(data.instances["confidence"])


def test_hai(real, tmp_path):
    published_files.write_hai(real / "hai" / published_files.SLOW_HAI, tmp_path / "slow")
    published_files.write_hai(real / "hai" / published_files.FAST_HAI, tmp_path / "fast")
    slow = datasets.load("hai", tmp_path / "slow")
    assert slow.train.num_steps == 3096
    dropped = {name for names in slow.facts["constant_columns"].values() for name in names}
    assert dropped == {
        "P1_PCV02D", "P2_Auto", "P2_Emgy", "P2_On", "P2_SD01", "P2_TripEx", "P3_LH", "P3_LL",
    }  # fmt: skip
    assert slow.facts["counts"]["columns"] == {"P1": 30, "P2": 7, "P3": 3}
    assert len(slow.facts["columns_without_client"]) == 11
    fast = datasets.load("hai", tmp_path / "fast")
    assert fast.train.num_steps == 3498
    assert fast.facts["version"] == "20.07"
    assert fast.train.segment_starts.sum() == 1


@pytest.mark.slow  # reads 28 machines
def test_smd(real, tmp_path):
    tables, primaries = [], {}
    expected = pd.read_csv(real / "smd" / "root_causes.csv").set_index("instance_id")
    rows = {"train": 0, "test": 0, "anomalous": 0}
    for machine in published_files.smd_machines(real / "smd"):
        folder = tmp_path / machine
        published_files.write_smd(real / "smd", folder, machine)
        (data,) = datasets.iter_machines(folder)
        shutil.rmtree(folder)
        counts = data.facts["counts"]
        rows["train"] += counts["train_rows"]
        rows["test"] += counts["run_rows"]
        rows["anomalous"] += counts["anomalous_rows"]
        tables.append(data.instances)
        dropped = sum(len(names) for names in data.facts["constant_columns"].values())
        assert 2 <= dropped <= 10
        assert min(counts["columns"].values()) >= 2
        primaries[data.facts["machine"]] = counts["columns"]["memory"]
    assert rows == {"train": 355_449, "test": 355_458, "anomalous": 14_630}
    assert sum(count == 2 for count in primaries.values()) >= 6
    table = pd.concat(tables).set_index("instance_id").loc[expected.index]
    assert len(table) == 206
    for ours, theirs in (
        ("root_clients", "root_clients"),
        ("primary", "root_client_primary"),
        ("start", "start"),
        ("end", "end"),
    ):
        assert list(table[ours]) == list(expected[theirs])
    assert list(table["is_primary_tie"]) == list(expected["primary_is_tie"] == 1)
    assert table["is_single_root"].sum() == 117
    single = table[table["is_single_root"]]["primary"].value_counts().to_dict()
    assert single == {"disk": 89, "tcp": 13, "memory": 11, "cpu_load": 4}
    assert table["primary"].value_counts().to_dict() == {
        "disk": 117, "cpu_load": 25, "net_if_udp": 24, "tcp": 21, "memory": 19,
    }  # fmt: skip


STATUS = Path("/proc/self/status")
MEASURE = f"""
import pathlib, re, sys
from fedgranger_research import datasets
for data in datasets.iter_machines(sys.argv[1]):
    pass
print(re.search(r"VmHWM:\\s*([0-9]+) kB", pathlib.Path("{STATUS}").read_text())[1])
"""  # ru_maxrss would begin at what the process that starts this one holds


@pytest.mark.slow  # writes and reads 1.6 million rows of text
@pytest.mark.skipif(not STATUS.exists(), reason="needs /proc")
def test_28_machines_in_a_gigabyte(tmp_path, rng):
    """Text files of the published size: 28 machines with 28 700 rows of training and test."""
    root = tmp_path / "ServerMachineDataset"
    for name in smd.FOLDERS:
        (root / name).mkdir(parents=True)
    values = rng.uniform(0, 1, (1435, 38))
    text = "\n".join(",".join(f"{x:.6f}" for x in row) for row in values) + "\n"
    for k in range(28):
        for name, content in (
            ("train", text * 20),
            ("test", text * 20),
            ("test_label", "0\n" * 28_700),
            ("interpretation_label", "5-10:1,2\n"),
        ):
            (root / name / f"machine-1-{k + 1}.txt").write_text(content)
    outcome = subprocess.run(
        [sys.executable, "-c", MEASURE, str(root)], capture_output=True, text=True, check=True
    )
    assert 2**15 < int(outcome.stdout) < 2**20
