"""The pages for beginners do and print what they say; one simulated run serves most of them."""

import shlex

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.cli.options import merge
from tests import german_exports, plant_files
from tests.doc_blocks import blocks, commands, run_lines


def words_of(text):
    """Lines without their spacing, which tables take from the terminal's width."""
    return [" ".join(line.split()) for line in text.splitlines()]


def assert_printed(block, said):
    found = "\n".join(words_of(said))
    for line in words_of(block):
        assert line in found, line


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("guides")


@pytest.fixture(scope="module")
def said(place):
    """What the commands of the quickstart print, in its own order."""
    (_, *blocks_of_lines) = commands("quickstart.md")
    lines = [words for block in blocks_of_lines for words in block]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "250")
        return dict(zip([w[1] for w in lines], run_lines(lines, place, patch), strict=True))


def test_the_quickstart_prints_what_the_page_says(said):
    (block,) = blocks("quickstart.md", "text")
    assert_printed(block, said["fit"])
    assert said["check"].splitlines()[-1] == "fedgranger fit plant --out run"
    assert said["audit"].startswith("Can these p-values be trusted on this data? Yes")


def test_python_gives_the_quickstart_the_same_answer(said, place, monkeypatch, capsys):
    (code,) = blocks("quickstart.md", "python")
    monkeypatch.chdir(place)
    exec(code, {})
    (block,) = blocks("quickstart.md", "text")
    counts, edge = block.splitlines()[0], block.splitlines()[-1]
    printed = capsys.readouterr().out
    assert counts in printed
    assert edge in printed


def test_levels_can_be_changed_as_the_page_says(said, place, monkeypatch):
    (lines,) = commands("choosing.md")
    strict, holm, _ = run_lines(lines, place, monkeypatch)
    assert "false discovery rate 0.01" in strict
    assert "chance of any false edge 0.05" in holm


def test_own_data_are_checked_as_the_page_says(tmp_path, monkeypatch):
    (tmp_path / "plant").mkdir()
    plant_files.german(tmp_path / "plant")
    (check,), _ = commands("own-data.md")
    shown, printed, _ = blocks("own-data.md", "text")
    assert shown.splitlines() == (tmp_path / "plant" / "boiler.csv").read_text().splitlines()[:2]
    (said,) = run_lines([check], tmp_path, monkeypatch)
    assert said == printed


@pytest.mark.parametrize("page", ["concepts.md", "own-data.md"])
def test_python_prints_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks(page, "python")
    exec(code, {})
    assert capsys.readouterr().out == blocks(page, "text")[-1]


def test_the_file_of_options_reads_the_files_of_the_page(tmp_path):
    (tmp_path / "plant").mkdir()
    plant_files.german(tmp_path / "plant")
    (text,) = blocks("own-data.md", "toml")
    (tmp_path / "plant.toml").write_text(text)
    data, config = merge(tmp_path / "plant.toml", {})
    given = {name: getattr(data, name) for name in ("delimiter", "decimal", "date_format")}
    assert fg.Panel.read(tmp_path / "plant", **given).num_steps == plant_files.NUM_ROWS
    assert config.period == ("1 d",)


@pytest.mark.slow  # sixteen fits of ten seconds
def test_plants_like_that_of_the_trial_are_understood(tmp_path, monkeypatch):
    """The command that `check` prints finds the truth, once the day is named."""
    false, small = 0, 0
    for seed in range(100, 116):
        place = tmp_path / str(seed)
        (place / "anlage").mkdir(parents=True)
        german_exports.write_plant(place / "anlage", seed=seed)
        (said,) = run_lines([["fedgranger", "check", "anlage"]], place, monkeypatch)
        assert "add --period 1d" in said
        words = shlex.split(said.splitlines()[-1])
        run_lines([[*words, "--period", "1d"]], place, monkeypatch)
        edges = fg.Result.load(place / "run").edges().set_index(["cause", "effect"])
        true = edges.loc[list(german_exports.EDGES)]
        assert true["is_edge"].all()
        assert true["delay"].to_dict() == german_exports.EDGES
        absent = edges.drop(index=list(german_exports.EDGES))
        false += int(absent["is_edge"].sum())
        small += int((absent["p_value"] < 0.05).sum())
    assert false <= 4, "5 % of false discoveries among 16 x 2 edges, and two errors more"
    assert small <= 8 + 2 * np.sqrt(160 * 0.05 * 0.95)
