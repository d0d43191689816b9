"""A run folder is what the run wrote, or it is refused in words."""

import json

import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.errors import RunError
from fedgranger.export import to_csv
from fedgranger.results import Result
from fedgranger.run_folder import with_formulas, without_formulas

CONFIG = fg.RunConfig(solver="none", copies=20, lags=1)


@pytest.fixture(scope="module")
def result():
    panel, _ = fg.simulate(2, 1200, clients=["=1+1", "@sum"], edges=[("=1+1", "@sum")], seed=1)
    return fg.fit(panel, config=CONFIG)


@pytest.fixture
def folder(result, tmp_path):
    result.save(tmp_path / "run")
    return tmp_path / "run"


def names_of(folder):
    return sorted(json.loads((folder / "manifest.json").read_text())["files"])


def test_every_file_but_the_manifest_is_listed(folder):
    there = sorted(path.name for path in folder.iterdir())
    assert sorted([*names_of(folder), "manifest.json"]) == there


def test_what_is_loaded_is_what_was_found(result, folder):
    again = Result.load(folder)
    pd.testing.assert_frame_equal(again.edges(), result.edges())
    pd.testing.assert_frame_equal(again.entries(), result.entries())
    mine, other = (one.inference.beside for one in (result, again))
    pd.testing.assert_frame_equal(other.entries, mine.entries, check_dtype=False)
    with pytest.raises(RunError, match=r"holds a run; give another folder, or overwrite=True"):
        again.save(folder)
    with pytest.raises(RunError, match=r"edges\.csv: is a file; give a folder"):
        again.save(folder / "edges.csv")
    again.save(folder, overwrite=True)
    pd.testing.assert_frame_equal(Result.load(folder).edges(), result.edges())


@pytest.mark.parametrize("wrong", ["", "\0", "[]", "{}", '{"data": 5}', '{"data": {}'])
def test_a_manifest_of_other_things_is_refused(folder, wrong):
    (folder / "manifest.json").write_text(wrong)
    with pytest.raises(RunError, match=r"manifest\.json: is not what the run wrote; restore it"):
        Result.load(folder)


def test_a_changed_manifest_is_refused(folder):
    """Before, another alpha in it gave "false discovery rate 0.9" without a word."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["config"]["alpha"] = 0.9
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunError, match=r"manifest\.json: is not what the run wrote"):
        Result.load(folder)
    manifest["config"]["alpha"] = 0.05
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=7))
    Result.load(folder)  # the same facts, however they are laid out


def test_half_a_file_and_an_empty_one_are_refused(folder):
    for name in names_of(folder):
        path = folder / name
        whole = path.read_bytes()
        for part in (whole[: len(whole) // 2], b"", whole.replace(b"0", b"4", 1) + b" "):
            path.write_bytes(part)
            with pytest.raises(RunError, match=f"^[^(]*{name}: is not what the run wrote"):
                Result.load(folder)
        path.unlink()
        with pytest.raises(RunError, match=f"{name}: is missing"):
            Result.load(folder)
        path.write_bytes(whole)
    Result.load(folder)


def test_folders_that_list_no_files_are_read_from_their_tables(result, folder):
    """As version 0.1.0 wrote them; damage is a sentence there too."""
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"], manifest["sha256"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with np.load(folder / "estimate.npz") as file:
        arrays = {name: file[name] for name in file.files if "edges." not in name}
    arrays = {name: array for name, array in arrays.items() if "entries." not in name}
    np.savez(folder / "estimate.npz", **arrays)
    np.testing.assert_array_equal(Result.load(folder).edges()["p_value"], result.edges()["p_value"])
    for name in ("estimate.npz", "trace.parquet", "entries.csv"):
        (folder / name).write_bytes(b"")
        with pytest.raises(RunError, match="damaged run folder"):
            Result.load(folder)


def test_no_cell_of_a_table_is_a_formula(folder):
    for name in names_of(folder):
        if name.endswith(".csv"):
            cells = pd.read_csv(folder / name, dtype=str)
            assert not cells[["cause", "effect"]].stack().str.match(r"[=+\-@]").any()
            assert set(cells["cause"]) == {"'=1+1", "'@sum"}


def test_names_come_back_from_plain_cells():
    names = ["=1+1", "'-b", "-b", "c"]
    table = pd.DataFrame({"client": names, "value": [1.0, 2.0, 3.0, 4.0]})
    written = without_formulas(table)
    assert not written["client"].str.match(r"[=+\-@]").any()
    pd.testing.assert_frame_equal(
        with_formulas(written, ["=1+1", "-b", "c"]).iloc[[0, 2, 3]], table.iloc[[0, 2, 3]]
    )


def test_plain_names_stay():
    table = pd.DataFrame({"cause": ["a=b", "-7"], "p_value": [-0.5, 1.0]})
    cells = without_formulas(table)
    assert cells["cause"].tolist() == ["a=b", "'-7"]
    assert cells["p_value"].tolist() == [-0.5, 1.0]


def test_exported_lists_hold_no_formula(result):
    lines = to_csv(result, all_edges=True).splitlines()[1:]
    assert sorted(line.split(",")[0] for line in lines) == ["'=1+1", "'@sum"]
