"""What the organiser reads on the screen, from answers of sites that are not there."""

import json
from fractions import Fraction

import pytest

from fedgranger.cli.federation import admin_runs
from fedgranger.config import RunConfig
from fedgranger.federation.agreed_options import FederationOptions

OPTIONS = FederationOptions(RunConfig(solver="none"))


def answer(count, seconds):
    step = Fraction(10**9 * seconds)
    ends = {"first": "0", "last": str((count - 1) * step), "interval": str(step)}
    times = {"time_kind": "stamps", "stretches": [[0, count]], "clock": 0.0, "asked": 0.0}
    return {"kind": "range", "version": "1", **times, **ends}


@pytest.fixture
def sites(monkeypatch):
    ranges = {"turbine": answer(8640, 10), "cooling": answer(2880, 30)}
    monkeypatch.setattr(admin_runs, "read_members", lambda _: tuple(ranges))
    monkeypatch.setattr(admin_runs, "_run_job", lambda *_, **__: {"ranges": ranges})


def test_check_says_which_rows_are_left_out_and_what_uses_them(sites, tmp_path, capsys):
    admin_runs.show_readiness(tmp_path, OPTIONS, json_output=False)
    told = capsys.readouterr()
    text = " ".join(f"{told.out} {told.err}".split())
    assert "2880 common time steps; everything is ready" in text
    assert "note: client 'turbine': 5760 of 8640 time steps are not on the common time axis" in text
    assert "'federation start' with --resample 30s uses them all" in text


def test_check_as_json_has_the_same_notes(sites, tmp_path, capsys):
    admin_runs.show_readiness(tmp_path, OPTIONS, json_output=True)
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == []
    assert len(found["notes"]) == 1
