"""Blocks of code on the pages of README and docs, for the tests that run them."""

import re
import shlex
import webbrowser
from pathlib import Path

from typer.testing import CliRunner

from fedgranger.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    text = next(path for path in PAGES if path.name == page).read_text("utf-8")
    return [code for kind, code in BLOCK.findall(text) if kind == language]


def commands(page):
    """The words of every line of its shell blocks, without comments; one list per block."""
    for code in blocks(page, "sh"):
        lines = (shlex.split(line, comments=True) for line in code.splitlines())
        yield [words for words in lines if words]


def run_lines(lines, place, monkeypatch):
    """Run commands in a folder and return what they print, one text per command."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(webbrowser, "open", lambda *_: True)
    said = []
    for words in lines:
        done = CliRunner().invoke(app, words[1:])
        alarm = 4 if words[1] == "rca" else 0  # the data may hold one
        assert done.exit_code in (0, alarm), (words, done.output)
        said.append(done.output)
    return said
