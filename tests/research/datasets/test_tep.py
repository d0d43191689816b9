"""TEP: the 44 .dat files, and what is wrong with a file that is not one of them."""

import shutil

import numpy as np
import pytest

from fedgranger.errors import ConfigError, DataError
from fedgranger_research import datasets
from fedgranger_research.datasets import tep


def test_every_column_has_one_client():
    names = [name for names in tep.PARTITION.values() for name in names]
    assert sorted(names) == sorted(tep.COLUMNS)
    assert len(tep.PARTITION) == 9


def test_published_files(tep_files, tep_data):
    data, matrices = tep_data, tep_files[1]
    assert data.train.num_steps == 500
    assert data.train.names == tuple(tep.PARTITION)
    np.testing.assert_array_equal(data.train["feed_AC"].values, matrices["d00"][:, [3, 44]])
    assert data.splits == ("train_faulty", "test")
    assert [run.name for run in data.test] == [f"d{k:02d}_te" for k in range(22)]
    assert [run.name for run in data.split("train_faulty")] == [f"d{k:02d}" for k in range(1, 22)]
    run = data.run("d07_te")
    np.testing.assert_array_equal(run.panel["condenser"].values, matrices["d07_te"][:, [21, 51]])
    assert run.labels.sum() == 800
    assert run.labels[:160].sum() == 0
    assert data.run("d00_te").labels.sum() == 0
    assert data.run("d07").labels.all()
    assert len(data.labels) == 21 * 480 + 22 * 960
    assert set(data.facts["hashes"]) == {f"{name}.dat" for name in matrices}


def test_faults_and_their_roots(tep_data):
    table = tep_data.instances.set_index("instance_id")
    assert len(table) == 42
    roots = {
        "feed_AC": [1, 2, 7, 8, 10, 21],
        "feed_ADE": [3, 6, 9],
        "reactor": [4, 11, 13, 14, 17],
        "condenser": [5, 12, 15, 18],
        "stripper": [16],
    }
    for kind in ("test", "trainfault"):
        for client, faults in roots.items():
            for fault in faults:
                row = table.loc[f"tep_{kind}_idv{fault:02d}"]
                assert (row["root_clients"], row["primary"]) == (client, client)
                assert row["is_single_root"]
        many = table.loc[f"tep_{kind}_idv19"]
        valves = {"compressor", "separator", "product", "stripper"}
        assert set(many["root_clients"].split(";")) == valves
        assert (many["primary"], many["is_single_root"]) == ("", False)
        assert table.loc[f"tep_{kind}_idv20", "root_clients"] == "reactor;condenser"
    assert tuple(table.loc["tep_test_idv05", ["run", "start", "end"]]) == ("d05_te", 160, 959)
    assert tuple(table.loc["tep_trainfault_idv05", ["start", "end"]]) == (0, 479)


def test_training_file_the_usual_way_round_is_noted(tep_files, tmp_path):
    folder = copy(tep_files, tmp_path)
    np.savetxt(folder / "d00.dat", tep_files[1]["d00"])
    data = datasets.load("tep", folder)
    assert any("d00.dat: found 500 x 52" in note for note in data.facts["notes"])
    np.testing.assert_array_equal(data.train["feed_AC"].values, tep_files[1]["d00"][:, [3, 44]])


def copy(tep_files, tmp_path):
    return shutil.copytree(tep_files[0], tmp_path / "dat")


def refused(folder, *parts, error=DataError, name="tep", **options):
    with pytest.raises(error) as caught:
        datasets.load(name, folder, **options)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, f"{part!r} is not in: {message}"


def test_wrong_files(tep_files, tmp_path):
    refused(tmp_path / "none", "does not exist", "d00.dat to d21.dat")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "holds no 'd00.dat'", "found: nothing", "put it there")
    folder = copy(tep_files, tmp_path)
    refused(folder / "d00.dat", "is a file")
    values = tep_files[1]["d05"]
    np.savetxt(folder / "d05.dat", values[:-1])
    refused(folder, "d05.dat' holds 479 x 52 numbers, 480 x 52", "get the file again")
    np.savetxt(folder / "d05.dat", values[:, :-1])
    refused(folder, "d05.dat' holds 480 x 51 numbers, 480 x 52")
    broken = values.copy()
    broken[7, 3] = np.nan
    np.savetxt(folder / "d05.dat", broken)
    refused(folder, "d05.dat', data row 8, column 4: found nan")
    (folder / "d05.dat").write_text("1 2 three\n")
    refused(folder, "d05.dat' cannot be read as a table")
    (folder / "d05.dat").write_text("")
    refused(folder, "d05.dat' is empty")
    (folder / "d05.dat").unlink()
    refused(folder, "holds no 'd05.dat'", "one of the 44 files of TEP")


def test_listed_hash_is_needed(tep_files, tmp_path):
    folder = copy(tep_files, tmp_path)
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  dat/d05_te.dat\n")
    refused(folder, "d05_te.dat' has the hash", "0" * 64, "--accept-changed")
    data = datasets.load("tep", folder, accept_changed=True)
    assert any("read all the same" in note for note in data.facts["notes"])


def test_options_and_names(tep_files):
    refused(tep_files[0], "no option 'machine'", error=ConfigError, machine="machine-1-1")
    refused(tep_files[0], "unknown option 'machin'", error=ConfigError, machin=1)
    refused(tep_files[0], "no data set 'teb' (did you mean 'tep'?)", error=ConfigError, name="teb")


def test_users_partition(tep_files, tmp_path):
    """Roots follow the columns a fault enters at, whoever owns them."""
    path = tmp_path / "partition.toml"
    path.write_text('left = ["XMEAS_4", "XMEAS_22"]\nright = ["XMV_4", "XMEAS_9"]\n')
    data = datasets.load("tep", tep_files[0], partition=path)
    table = data.instances.set_index("instance_id")
    assert table.loc["tep_test_idv01", "root_clients"] == "left;right"
    assert table.loc["tep_test_idv05", "root_clients"] == "left"
    none = table.loc["tep_test_idv16"]
    assert (none["root_clients"], none["primary"], none["confidence"]) == ("", "", "unknown")
    assert data.facts["partition"] == "given"
    assert len(data.facts["columns_without_client"]) == 48
    wrong = {"left": ["XMEAS_4"], "right": ["XMEAS_99"]}
    refused(tep_files[0], "client 'right'", "no column 'XMEAS_99'", partition=wrong)
    twice = {"left": ["XMEAS_4"], "right": ["XMEAS_4"]}
    refused(tep_files[0], "'left' and again to client 'right'", partition=twice)
