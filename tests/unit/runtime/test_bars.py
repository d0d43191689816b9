"""A call of Python that takes long says so, where somebody looks."""

import io
import sys
import time
import types

import pytest
from rich.console import Console

import fedgranger as fg
from fedgranger.runtime import bars

pytestmark = pytest.mark.filterwarnings("ignore::fedgranger.errors.InferenceWarning")
OPTIONS = {"state_dim": 1, "solver": "none", "copies": 20}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(scope="module")
def panel():
    return fg.simulate(2, 300, edges=[("client1", "client2")], seed=1)[0]


def fit_in(monkeypatch, panel, stream, **options):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    fg.fit(panel, **OPTIONS, **options)
    return stream.getvalue()


def test_a_fit_shows_a_bar_with_the_time_left(monkeypatch, panel):
    monkeypatch.setattr(bars, "PATIENCE", 0.0)
    shown = fit_in(monkeypatch, panel, Terminal())
    assert "shifted clocks" in shown
    assert "20/20" in shown
    assert "left" in shown
    assert shown.endswith("\x1b[2K")  # nothing stays


def test_a_quick_fit_a_silenced_one_and_one_nobody_looks_at_show_nothing(monkeypatch, panel):
    monkeypatch.setattr(bars, "PATIENCE", 60.0)
    assert not fit_in(monkeypatch, panel, Terminal())
    monkeypatch.setattr(bars, "PATIENCE", 0.0)
    assert not fit_in(monkeypatch, panel, Terminal(), progress=False)
    assert not fit_in(monkeypatch, panel, io.StringIO())


def test_a_bar_comes_when_patience_is_over():
    stream = Terminal()
    console = Console(file=stream, force_terminal=True)
    with bars.bars(console, is_shown=True, is_kept=True, patience=0.1) as report:
        report("copies", 0, 7)
        assert not stream.getvalue()
        deadline = time.monotonic() + 10
        while "0/7" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        report("copies", 7, 7)
    assert "7/7" in stream.getvalue()


def test_a_notebook_has_one_picture_that_goes(monkeypatch, panel):
    made = []

    class Handle:
        def update(self, picture, *, raw):
            assert raw
            made.append(picture["text/plain"])

    def display(picture, *, raw, display_id):
        assert raw
        assert display_id
        assert not made
        made.append(picture["text/plain"])
        return Handle()

    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    there = types.ModuleType("IPython.display")
    there.display = display
    monkeypatch.setitem(sys.modules, "IPython.display", there)
    monkeypatch.setattr(bars, "PATIENCE", 0.0)
    monkeypatch.setattr(bars, "PAUSE", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr("rich.console._is_jupyter", lambda: True)
        fg.fit(panel, **OPTIONS)
    assert any("shifted clocks" in one and "10/20" in one for one in made)
    assert made[-1] == ""
    assert all("\x1b" not in one for one in made)
