"""`fedgranger report`."""

import pytest
from typer.testing import CliRunner

from fedgranger.cli.app import app


@pytest.fixture(scope="module")
def run_folder(small_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    small_run.save(folder)
    return folder


def invoke(*args):
    return CliRunner().invoke(app, ["report", *map(str, args)])


def test_writes_the_page_into_the_run_or_elsewhere(run_folder, tmp_path):
    assert invoke(run_folder).exit_code == 0
    page = (run_folder / "report.html").read_text()
    assert "of 2 tested pairs" in page
    assert invoke(run_folder, "--out", tmp_path / "new" / "page.html").exit_code == 0
    assert (tmp_path / "new" / "page.html").read_text() == page


def test_opens_it_when_asked(run_folder, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    assert invoke(run_folder, "--open").exit_code == 0
    assert opened == [(run_folder / "report.html").resolve().as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    assert "open the file yourself" in invoke(run_folder, "--open").output


def test_wrong_inputs_are_refused_in_a_sentence(run_folder, tmp_path):
    for args, words in (
        ((tmp_path / "none",), "no such run folder"),
        ((tmp_path,), "not a finished run"),
        ((run_folder, "--out", tmp_path), "is a folder"),
    ):
        outcome = invoke(*args)
        assert outcome.exit_code == 2
        assert words in outcome.output.replace("\n", " ")
        assert "Traceback" not in outcome.output
