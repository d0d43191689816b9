"""Every block of code in README and docs runs, or is a command whose options exist.

Commands of a federation need processes of their own: tests/federation/test_real_parties.py runs
them, here their words are checked. The README's Python block is in test_readme.py, the pages for
beginners are in test_guides_code.py.
"""

import functools
import re
import shutil

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from fedgranger.cli.options import merge
from fedgranger.client.params import read_models
from fedgranger.federation.policy import read_policy
from tests import published_files
from tests.doc_blocks import BLOCK, PAGES, ROOT, blocks, commands, run_lines

NOT_OURS = ("pip", "make")
HANDLED = {
    ("README.md", "sh"): 3,
    ("README.md", "python"): 1,
    ("add-your-method.md", "python"): 1,
    ("add-your-method.md", "sh"): 1,
    ("benchmarks.md", "sh"): 1,
    ("choosing.md", "sh"): 1,
    ("concepts.md", "python"): 1,
    ("data.md", "toml"): 1,
    ("data.md", "json"): 1,
    ("datasets.md", "python"): 2,
    ("federation.md", "sh"): 2,
    ("gallery.md", "python"): 13,
    ("nonlinear-clients.md", "python"): 1,
    ("options.md", "toml"): 1,
    ("own-data.md", "python"): 1,
    ("own-data.md", "sh"): 2,
    ("own-data.md", "toml"): 1,
    ("privacy.md", "sh"): 2,
    ("privacy.md", "toml"): 1,
    ("quickstart.md", "python"): 1,
    ("quickstart.md", "sh"): 6,
    ("report.md", "sh"): 1,
    ("root-cause.md", "python"): 1,
    ("root-cause.md", "sh"): 2,
}
"""How many blocks of each kind the tests below and those of the guides take."""


def test_no_block_is_left_out():
    found = {}
    for path in PAGES:
        for kind, _ in BLOCK.findall(path.read_text("utf-8")):
            if kind not in ("text",):
                found[path.name, kind] = found.get((path.name, kind), 0) + 1
    assert found == HANDLED


@functools.cache
def help_of(path):
    option = "--help" if path == ("privacy",) else "--help-all"  # a group has no options
    done = CliRunner().invoke(app, [*path, option], env={"COLUMNS": "250"})
    assert done.exit_code == 0, path
    return done.output


def check_words(words):
    """The command exists and has every option that the line gives it."""
    groups = ("federation", "datasets", "study", "reproduce")
    is_group = words[1] in groups or words[1:3] in (["privacy", "plan"], ["benchmark", "grid"])
    said = help_of(tuple(words[1 : 3 if is_group else 2]))
    for word in words:
        assert not word.startswith("--") or re.search(rf"{word}\b", said), (words, word)


@pytest.mark.parametrize(
    "page",
    [
        *("README.md", "add-your-method.md", "benchmarks.md", "federation.md", "privacy.md"),
        *("choosing.md", "own-data.md", "quickstart.md", "report.md", "root-cause.md"),
    ],
)
def test_commands_have_the_options_that_pages_show(page):
    for block in commands(page):
        for words in block:
            if words[0] == "make":
                targets = (ROOT / "Makefile").read_text()
                assert re.search(rf"^{words[1]}:", targets, re.MULTILINE), words
            elif words[0] not in NOT_OURS:
                assert words[0] == "fedgranger"
                check_words(words)


def write_panel(folder, steps, seed, start="2026-03-01"):
    panel, truth = fg.simulate(3, steps, edges=[("client1", "client2")], seed=seed)
    folder.mkdir()
    time = pd.date_range(start, periods=steps, freq="min")
    for client in panel:
        table = pd.DataFrame(client.values, columns=list(client.sensors))
        table.insert(0, "time", time)
        table.to_csv(folder / f"{client.name}.csv", index=False)
    return truth


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the data that the pages speak of."""
    folder = tmp_path_factory.mktemp("docs")
    for name, steps in (("plant", 400), ("normal", 400), ("today", 1000)):
        write_panel(folder / name, steps, seed=1)
    pd.DataFrame({"cause": ["client1"], "effect": ["client2"]}).to_csv(
        folder / "plant.csv", index=False
    )
    return folder


def test_commands_of_the_readme_and_of_the_report_run(place, monkeypatch):
    _, own_data, _ = commands("README.md")
    run_lines(own_data, place, monkeypatch)
    for name in ("RUN", "RUN1", "RUN2"):
        shutil.copytree(place / "run", place / name)
    graph = ["fedgranger", "export", "RUN", "--format", "graphml", "--out", "plant.graphml"]
    (compare,) = commands("report.md")
    run_lines([graph, *compare], place, monkeypatch)


@pytest.mark.filterwarnings("ignore::fedgranger.errors.InferenceWarning")
def test_commands_and_policy_of_privacy_run(place, monkeypatch, tmp_path):
    first, _ = commands("privacy.md")
    run_lines(first, place, monkeypatch)
    (policy,) = blocks("privacy.md", "toml")
    (tmp_path / "policy.toml").write_text(policy)
    assert read_policy(tmp_path / "policy.toml").epsilon == 64.0


def test_commands_and_python_of_root_causes_run(place, monkeypatch, capsys):
    first, _ = commands("root-cause.md")
    shutil.rmtree(place / "run", ignore_errors=True)
    run_lines(first, place, monkeypatch)
    (code,) = blocks("root-cause.md", "python")
    batch = fg.Panel.read(place / "today").slice(0, 300)
    shifted = {c.name: c.values + 50.0 * (c.name == "client1") for c in batch}
    alarming = fg.Panel.from_arrays(shifted, time=batch.time)
    exec(code, {"result": fg.Result.load(place / "run"), "next_batch": alarming})
    assert "client1" in capsys.readouterr().out


@pytest.mark.slow  # trains a network and a process, 9 s
def test_nonlinear_clients_are_what_the_page_prints(capsys):
    (code,), (printed,) = (blocks("nonlinear-clients.md", kind) for kind in ("python", "text"))
    exec(code, {})
    found, expected = (text.split() for text in (capsys.readouterr().out, printed))
    assert found[::2] == expected[::2] == ["linear", "network", "gp"]
    for one, other in zip(found[1::2], expected[1::2], strict=True):
        assert float(one) == pytest.approx(float(other), rel=0.05)


def test_the_method_of_the_page_is_compared(place, monkeypatch):
    (code,) = blocks("add-your-method.md", "python")
    (place / "my_method.py").write_text(code)
    (lines,) = commands("add-your-method.md")
    assert len(code.splitlines()) <= 31
    run_lines(lines, place, monkeypatch)
    assert "lag-correlation" in (place / "benchmark" / "causal-discovery.csv").read_text()
    assert "lag-correlation" in (place / "benchmark" / "edges.csv").read_text()


def test_partition_models_and_options_are_read(tmp_path):
    (partition,) = blocks("data.md", "toml")
    (tmp_path / "clients.toml").write_text(partition)
    columns = ["temperature", "pressure", "speed", "vibration"]
    values = np.random.default_rng(0).normal(size=(50, 4))
    pd.DataFrame(values, columns=columns).to_csv(tmp_path / "plant.csv", index=False)
    panel = fg.Panel.read(tmp_path / "plant.csv", partition=tmp_path / "clients.toml")
    assert panel.names == ("boiler", "turbine")
    (models,) = blocks("data.md", "json")
    (tmp_path / "models.json").write_text(models)
    assert set(read_models(tmp_path / "models.json")) == {"boiler"}
    (options,) = blocks("options.md", "toml")
    (tmp_path / "options.toml").write_text(options)
    _, config = merge(tmp_path / "options.toml", {})
    assert (config.passes, config.lags, config.alpha) == (100, 2, 0.01)


@pytest.mark.slow  # training with uncertainty takes a minute
@pytest.mark.filterwarnings("ignore::fedgranger.errors.InferenceWarning")
def test_the_gallery_runs(monkeypatch, tmp_path):
    """With four data sets instead of forty."""
    from fedgranger_research.studies import calibration_trials

    records = {}

    def few(setting, seed):
        key = setting.num_steps, seed % 4
        if key not in records:
            records[key] = whole(setting, seed % 4)
        return records[key]

    whole = calibration_trials.run_data_set
    monkeypatch.setattr(calibration_trials, "run_data_set", few)
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    use, setup, *others = blocks("gallery.md", "python")
    names = {}
    exec(setup, names)
    for code in others:
        exec(code, names)
    import matplotlib.pyplot as plt

    exec(use, names | {"plt": plt})
    assert (tmp_path / "graph.png").is_file()
    plt.close("all")


@pytest.mark.slow  # writes and prepares whole recordings
def test_data_sets_from_python_run(monkeypatch, tmp_path):
    """On the development data, written as their publishers do."""
    source = published_files.development_data()
    published_files.write_tep(source / "tep", tmp_path / "tennessee-eastman-profBraatz")
    machine = published_files.smd_machines(source / "smd")[0]
    published_files.write_smd(source / "smd", tmp_path / "OmniAnomaly", machine)
    monkeypatch.chdir(tmp_path)
    prepare = ["datasets", "prepare", "tep", "tennessee-eastman-profBraatz", "--out", "tep"]
    assert CliRunner().invoke(app, prepare).exit_code == 0
    names = {}
    for code in blocks("datasets.md", "python"):
        exec(code, names)


@pytest.mark.slow  # fits TEP and ranks its root causes
def test_root_causes_of_tep_are_what_the_page_prints(monkeypatch, tmp_path):
    source = published_files.development_data()
    published_files.write_tep(source / "tep", tmp_path / "TEP")
    monkeypatch.chdir(tmp_path)
    _, lines = commands("root-cause.md")
    said = [CliRunner().invoke(app, words[1:]).output for words in lines]
    first = blocks("root-cause.md", "text")[0].splitlines()
    printed = [line.rstrip() for line in said[2].splitlines()]
    assert [line.rstrip() for line in first if line.rstrip() not in printed] == []
