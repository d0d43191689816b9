"""docs/options.md and docs/commands.md say what the code says; the commands have every option."""

import importlib.util
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from fedgranger.cli.app import app
from fedgranger.cli.options import FitOptions
from fedgranger.config import RunConfig
from fedgranger.data.reading_options import PanelOptions
from fedgranger.data.simulation_options import SimulationOptions
from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.federation.agreed_options import WatchOptions
from fedgranger.fit_keywords import FitKeywords
from fedgranger.option_fields import option_of

DOCS = Path(__file__).parents[2] / "docs"


def writer(name):
    spec = importlib.util.spec_from_file_location(f"write_{name}", DOCS / f"write_{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["options", "commands"])
def test_the_page_is_what_the_code_gives(name):
    module = writer(name)
    written = (DOCS / f"{name}.md").read_text("utf-8")
    assert written == module.page(), f"run python docs/write_{name}.py"


def test_keywords_of_fit_have_the_declared_types():
    module = writer("options")
    assert module.KEYWORDS.read_text("utf-8") == module.keywords(), "run docs/write_options.py"
    assert set(FitKeywords.__annotations__) == {*RunConfig.names(), *PanelOptions.names()}
    assert get_args(FitKeywords.__annotations__["test"]) == ("auto", *EDGE_TESTS, "none")


SNIPPET = """
import pandas as pd

import fedgranger as fg

frames = {"a": pd.DataFrame(), "b": pd.DataFrame()}
result = fg.fit(frames, test="readings", state_dim={"a": 2}, missing="mask", period="1 d")
result.coefficients("a", "b").query("lag == 1")
result.forecast(frames, sensors=True)
fg.plot.graph(result).figure
fg.fit(frames, couplings=[["a", "b"]], skip_rows=2, window="full")
"""


@pytest.mark.slow  # pyright reads all of pandas
def test_a_type_checker_knows_the_choices(tmp_path):
    pytest.importorskip("pyright")
    found = []
    for name, code in (("good", SNIPPET), ("bad", SNIPPET.replace("readings", "reading"))):
        (tmp_path / f"{name}.py").write_text(code)
        command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
        done = subprocess.run(
            [*command, f"{name}.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        found.append((done.returncode, done.stdout))
    assert found[0][0] == 0, found[0][1]
    assert found[1][0] == 1
    assert "Literal['reading']" in found[1][1]


def test_commands_have_every_option(monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    for command, kind in (
        ("fit", FitOptions),
        ("simulate", SimulationOptions),
        ("rca", WatchOptions),
    ):
        said = CliRunner().invoke(app, [command, "--help-all"]).output
        declared = {one.name: option_of(one) for one in fields(kind)}
        words = [(declared[name].word or name).replace("_", "-") for name in kind.names()]
        missing = [word for word in words if f"--{word}" not in said]
        assert not missing
