"""docs/options.md and docs/commands.md say what the code says; the commands have every option."""

import importlib.util
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedgranger.cli.app import app
from fedgranger.cli.options import FitOptions
from fedgranger.data.simulation_options import SimulationOptions
from fedgranger.federation.watch_options import WatchOptions
from fedgranger.option_fields import option_of

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["options", "commands"])
def test_the_page_is_what_the_code_gives(name):
    spec = importlib.util.spec_from_file_location(f"write_{name}", DOCS / f"write_{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (DOCS / f"{name}.md").read_text("utf-8")
    assert written == module.page(), f"run python docs/write_{name}.py"


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
