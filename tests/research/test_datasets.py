"""`fedgranger datasets` as a user meets it."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from fedgranger_research import datasets
from tests.dataset_files import make_hai, write_hai, write_smd

runner = CliRunner()


def call(*args):
    return runner.invoke(app, ["datasets", *(str(arg) for arg in args)])


def refused(*args):
    """One sentence on standard error, exit code 2, no traceback."""
    result = call(*args)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture
def hai(tmp_path):
    write_hai(tmp_path / "hai", make_hai("20.07", np.random.default_rng(2)), "20.07")
    return tmp_path / "hai"


@pytest.fixture
def smd(tmp_path):
    write_smd(tmp_path / "text", np.random.default_rng(3))
    return tmp_path / "text"


def test_list_names_every_set():
    result = call("list")
    assert result.exit_code == 0
    for name in datasets.NAMES:
        assert name in result.output


@pytest.mark.parametrize("name", datasets.NAMES)
def test_info_tells_all(name):
    result = call("info", name)
    info = datasets.describe(name)
    assert result.exit_code == 0
    for text in (info.title, info.address, info.licence, info.clients, info.root_rule):
        assert text in result.output
    for text in (*info.citations, *info.files, *info.caveats):
        assert text in result.output


def test_prepare_then_fit(hai, tmp_path):
    partition = tmp_path / "clients.json"
    columns = {f"P{k}": [f"P{k}_T0{j}" for j in range(1, 4)] for k in (1, 2, 3)}
    partition.write_text(json.dumps(columns))
    out = tmp_path / "prepared"
    result = call("prepare", "hai", hai, "--out", out, "--partition", partition)
    assert result.exit_code == 0, result.stderr
    assert "550 training rows, 2 runs with 350 rows, 2 anomalies (1 with one root" in result.output
    assert "not assigned to any client and left out" in result.stderr
    assert sorted(path.name for path in out.iterdir()) == [
        "dataset.json", "labels.parquet", "partition.json", "root_causes.csv", "test", "train",
    ]  # fmt: skip
    causes = pd.read_csv(out / "root_causes.csv", keep_default_na=False)
    assert list(causes["root_clients"]) == ["P1", "P2;P3"]
    assert list(causes["is_single_root"]) == [True, False]
    run = tmp_path / "run"
    fitted = runner.invoke(
        app,
        ["fit", str(out / "train"), "--out", str(run), "--state-dim", "1", "--state-model", "svd",
         "--solver", "newton", "--test", "none"],
    )  # fmt: skip
    assert fitted.exit_code == 0, fitted.stderr
    assert (run / "edges.csv").is_file()


def test_prepare_one_and_all_machines(smd, tmp_path):
    one, everything = tmp_path / "one", tmp_path / "all"
    result = call("prepare", "smd", smd, "--machine", "machine-3-10", "--out", one)
    assert result.exit_code == 0, result.stderr
    assert "dropped: total_mem" in result.stderr
    result = call("prepare", "smd", smd, "--all", "--out", everything)
    assert result.exit_code == 0, result.stderr
    assert "2 machines, 4 anomalies" in result.output
    assert "machine-1-1: 3 columns are constant" in result.stderr
    inner = everything / "machine-3-10"
    for name in ("root_causes.csv", "partition.json", "labels.parquet", "dataset.json"):
        assert (inner / name).read_bytes() == (one / name).read_bytes()
    panels = [fg.Panel.read(folder / "train") for folder in (one, inner)]
    assert panels[0].data_hash() == panels[1].data_hash()
    assert panels[0].names == ("cpu_load", "disk", "memory", "net_if_udp", "tcp")
    index = json.loads((everything / "dataset.json").read_text())
    assert list(index["machines"]) == ["machine-1-1", "machine-3-10"]
    assert len(pd.read_csv(everything / "root_causes.csv")) == 4


def test_options_of_hai(hai, tmp_path):
    result = call("prepare", "hai", hai, "--out", tmp_path / "p4", "--assign-p4")
    assert result.exit_code == 0, result.stderr
    clients = json.loads((tmp_path / "p4" / "partition.json").read_text())["clients"]
    assert "P4_HT_PO" in clients["P3"]
    table = tmp_path / "attacks.csv"
    table.write_text("start,end,root_clients\n2019-09-11 21:23:00,2019-09-11 21:24:00,P3\n")
    result = call("prepare", "hai", hai, "--out", tmp_path / "a", "--attacks", table)
    assert result.exit_code == 0, result.stderr
    assert list(pd.read_csv(tmp_path / "a" / "root_causes.csv")["primary"]) == ["P3"]


def test_changed_files_need_consent(tmp_path):
    folder, out = tmp_path / "hai", tmp_path / "out"
    write_hai(folder, make_hai("22.04", np.random.default_rng(2)), "22.04")
    assert "--accept-changed" in refused("prepare", "hai", folder, "--out", out)
    assert not out.exists()
    result = call("prepare", "hai", folder, "--out", out, "--accept-changed")
    assert result.exit_code == 0
    assert "read all the same" in result.stderr


def test_refusals(smd, hai, tmp_path):
    out = tmp_path / "out"
    assert "no data set 'sdm'" in refused("info", "sdm")
    assert "no data set 'sdm'" in refused("prepare", "sdm", smd, "--out", out)
    assert "--machine" in refused("prepare", "smd", smd, "--out", out)
    both = ("--all", "--machine", "machine-1-1")
    assert "contradict" in refused("prepare", "smd", smd, "--out", out, *both)
    assert "hai has no machines" in refused("prepare", "hai", hai, "--out", out, "--all")
    assert "no option 'attacks'" in refused(
        "prepare", "smd", smd, "--machine", "machine-1-1", "--attacks", hai, "--out", out
    )
    assert "does not exist" in refused("prepare", "tep", tmp_path / "none", "--out", out)
    assert "partition" in refused(
        "prepare", "hai", hai, "--out", out, "--partition", tmp_path / "none.json"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hai", "text"]  # nothing left


def test_a_broken_file_leaves_nothing(smd, tmp_path):
    path = smd / "ServerMachineDataset" / "test" / "machine-3-10.txt"
    path.write_text("0.1,0.2\n")
    message = refused("prepare", "smd", smd, "--all", "--out", tmp_path / "out")
    assert "machine-3-10.txt' holds 1 x 2 numbers" in message
    assert [entry.name for entry in tmp_path.iterdir()] == ["text"]


def test_earlier_work_is_kept(hai, tmp_path):
    out = tmp_path / "out"
    assert call("prepare", "hai", hai, "--out", out).exit_code == 0
    before = (out / "dataset.json").read_bytes()
    assert "use --overwrite" in refused("prepare", "hai", hai, "--out", out)
    (hai / "test1.csv").unlink()
    assert "test" in refused("prepare", "hai", tmp_path / "none", "--out", out, "--overwrite")
    assert (out / "dataset.json").read_bytes() == before
    result = call("prepare", "hai", hai, "--out", out, "--overwrite")
    assert result.exit_code == 0, result.stderr
    assert json.loads((out / "dataset.json").read_text())["counts"]["runs"] == 1
    assert "is not empty" in refused("prepare", "hai", hai, "--out", hai)
