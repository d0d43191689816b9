"""docs/options.md says what the declarations say, and the commands have every option."""

import importlib.util
from dataclasses import fields
from pathlib import Path

from typer.testing import CliRunner

from fedgranger.cli.app import app
from fedgranger.cli.options import FitOptions
from fedgranger.data.simulation_options import SimulationOptions
from fedgranger.federation.watching import WatchOptions
from fedgranger.option_fields import option_of

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_what_the_declarations_give():
    spec = importlib.util.spec_from_file_location("write_options", DOCS / "write_options.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (DOCS / "options.md").read_text("utf-8")
    assert written == module.page(), "run python docs/write_options.py"


def test_commands_have_every_option(monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    for command, kind in (
        ("fit", FitOptions),
        ("simulate", SimulationOptions),
        ("rca", WatchOptions),
    ):
        said = CliRunner().invoke(app, [command, "--help"]).output
        declared = {one.name: option_of(one) for one in fields(kind)}
        words = [(declared[name].word or name).replace("_", "-") for name in kind.names()]
        missing = [word for word in words if f"--{word}" not in said]
        assert not missing
