"""`fedgranger reproduce` as a user meets it."""

import builtins

import pytest
from typer.testing import CliRunner

from fedgranger.cli.app import app
from fedgranger_research.cli import reproduce as cli
from fedgranger_research.reproduction import quantiles
from fedgranger_research.reproduction.catalogue import FIGURES, TABLES

runner = CliRunner()


def call(*args):
    return runner.invoke(app, ["reproduce", *(str(arg) for arg in args)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("out") / "reproduced"


LONG = ("aleatoric", "epistemic", "cross-covariances", "dp", "nonlinear")
"""Figures that take more than ten seconds even when quick."""
COMPILED = ("qq", "communicated", "l2-error")
"""Figures that compile for two seconds; their numbers have tests of their own."""


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(
            pytest.param(
                "figure",
                name,
                # slow: more than ten seconds, or two of compiling; see above
                marks=[pytest.mark.slow] if name in LONG + COMPILED else [],
            )
            for name in FIGURES
        ),
        *(("table", name) for name in TABLES),
    ],
)
def test_quick_run_writes_all_files(folder, kind, name):
    outcome = call(kind, name, "--output", folder, "--quick")
    assert outcome.exit_code == 0, outcome.output + outcome.stderr
    assert (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in (folder / f"{name}.svg").read_text()
    assert len((folder / f"{name}.csv").read_text().splitlines()) > 2
    page = (folder / f"{name}.md").read_text()
    assert "A quick run" in page
    assert "docs/reproducing.md" in page
    assert "nan" not in page
    printed = outcome.output.split("\n", 1)[1].split("\nwritten:")[0]
    assert printed.startswith("| ")
    assert printed in page


@pytest.mark.parametrize("args", [("figure",), ("figure", "--list"), ("figure", "qq", "--list")])
def test_lists_names(args):
    outcome = call(*args)
    assert outcome.exit_code == 0
    assert all(name in outcome.output for name in FIGURES)


def test_unknown_name(tmp_path):
    outcome = call("figure", "aleatory", "--output", tmp_path / "x")
    assert outcome.exit_code == 2
    assert "no figure 'aleatory'; choose one of " + ", ".join(FIGURES) in outcome.stderr
    assert not (tmp_path / "x").exists()
    words = "choose one of scalability, causal-discovery, root-cause (with --data) or all"
    assert words in call("table", "size").stderr
    assert "hai-stress (with --data)" in outcome.stderr


def test_hai_stress_needs_data(tmp_path):
    outcome = call("figure", "hai-stress", "--output", tmp_path / "x")
    assert outcome.exit_code == 2
    assert "hai-stress needs --data, a folder with the subfolder hai;" in outcome.stderr
    outcome = call("figure", "hai-stress", "--output", tmp_path / "x", "--data", tmp_path)
    assert outcome.exit_code == 2
    assert "has no subfolder hai" in outcome.stderr
    assert not (tmp_path / "x").exists()
    assert "needs --data: traces and errors on HAI" in call("figure", "--list").output
    assert "hai-stress" not in call("table", "--list").output


def test_all_without_data_leaves_hai_stress_out(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(cli, "_one", lambda item, *_, **__: made.append(item.name))
    assert call("figure", "all", "--output", tmp_path).exit_code == 0
    assert made == list(FIGURES)
    (tmp_path / "hai").mkdir()
    made.clear()
    assert call("figure", "all", "--output", tmp_path, "--data", tmp_path).exit_code == 0
    assert made == [*FIGURES, "hai-stress"]


def test_without_matplotlib_numbers_and_text_are_there(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError(name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    outcome = call("figure", "qq", "--output", tmp_path, "--quick")
    assert outcome.exit_code == 2
    assert "pip install 'fedgranger[plot]'" in outcome.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "qq.csv", "qq.md"]


def test_interrupt_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(self, report):
        raise KeyboardInterrupt

    monkeypatch.setattr(quantiles.Resample, "run", interrupted)
    outcome = call("figure", "qq", "--output", tmp_path, "--quick")
    assert outcome.exit_code == 130
    assert "repeat the command to continue" in outcome.stderr


def test_output_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    outcome = call("figure", "qq", "--output", tmp_path / "file", "--quick")
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("error:")
