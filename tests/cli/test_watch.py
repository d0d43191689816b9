"""`fedgranger watch` against folders in every state and against a fit that is really running."""

import contextlib
import dataclasses
import functools
import json
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli import fit_screen, watch_screen
from fedgranger.cli.app import app
from fedgranger.cli.options import DataOptions
from fedgranger.cli.watch_screen import seconds_left
from fedgranger.run_folder import CHECKPOINT
from fedgranger.runtime import progress
from fedgranger.runtime.inprocess import Snapshot
from fedgranger.runtime.progress import Follower, follow, read_log
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.setup import set_up
from fedgranger.server.loss_trace import TraceRow
from fedgranger.uncertainty.record import Propagation
from tests.configs import formula_config

runner = CliRunner()
LONG = ["--state-dim", "2", "--passes", "1000000", "--tolerance", "0", "--checkpoint-every", "0.2"]
SHORT = ["--state-dim", "2", "--passes", "1", "--tolerance", "0"]


def call(*args):
    return runner.invoke(app, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch") / "data"
    assert call("simulate", folder, "--clients", 2, "--steps", 300, "--seed", 1).exit_code == 0
    return folder


@pytest.fixture(scope="module")
def finished(data):
    folder = data.parent / "finished"
    options = ["--state-dim", 2, "--passes", 2, "--tolerance", 0]
    assert call("fit", data, "--out", folder, *options).exit_code == 0
    return folder


def start_fit(data, folder):
    """Start a fit that would never end, and wait until it trains."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fedgranger", "fit", str(data), "--out", str(folder), *LONG],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        log = read_log(folder)
        if log and log[-1].get("pass") and (folder / CHECKPOINT).exists():
            return process
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.kill()
    pytest.fail("the fit did not begin to train")


HEAD = {"process": 7, "passes": 100, "tolerance": 1e-5}
TRAINED = {"phase": "training", "total": 200, "pass": 25, "round": 500}


def made_log(*, age=0.0, end=None, tolerance=1e-5, **changes):
    """A hundred seconds of a fit, 50 of them training: half way, or with other last values."""
    now = time.time() - age
    losses = [(0, 3.0, 0.3), (25, 2.0, 0.2), (50, 1.0, 0.1)]
    log = [{"time": now - 100, **HEAD, "tolerance": tolerance}]
    for k, (done, local, server) in enumerate(losses):
        values = {**TRAINED, "done": done, "local_loss": local, "server_loss": server}
        distance = {"distance": 10.0 ** -(k + 1), "distance_at": 10 * k + 30} if k else {}
        log.append({"time": now - 50 + 25 * k, **values, **distance})
    log[-1] |= changes
    return log if end is None else [*log, {"time": now, "end": end}]


def write(folder, log):
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(line) for line in log]
    (folder / progress.FILE_NAME).write_text("\n".join(lines) + "\n")


# A real fit -----------------------------------------------------------------------------------


def test_a_running_fit_until_it_is_killed(data, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    process = start_fit(data, folder)
    try:
        first = call("watch", folder, "--once")
        assert first.exit_code == 0, first.output
        assert "training, pass" in first.output
        assert "of 1000000" in first.output
        assert "local loss" in first.output
        assert "server loss" in first.output
        assert "elapsed, about" in first.output
        assert "\x1b" not in first.output
        before = read_log(folder)
        taken = call("fit", data, "--out", folder, "--overwrite", *SHORT)
        assert taken.exit_code == 2
        assert f"process {process.pid}" in taken.stderr

        deadline = time.monotonic() + 60
        while len(after := read_log(folder)) == len(before):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert process.poll() is None
        assert after[: len(before)] == before  # lines are only added
        assert after[-1]["round"] > before[-1]["round"]
        assert after[-1]["time"] - before[-1]["time"] > 0.9  # not more often than that
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    with monkeypatch.context() as patch:
        patch.setattr(progress, "SILENT_SECONDS", 0.2)
        time.sleep(0.3)
        stopped = call("watch", folder, "--once")
        assert stopped.exit_code == 1
        assert "no sign of life for " in stopped.output
        assert "in training, pass" in stopped.output
        assert "--resume" in stopped.output
        assert call("watch", folder).output.count("no sign") == 1  # ends by itself, too
        refused = call("fit", data, "--out", folder, *SHORT)
        assert refused.exit_code == 2
        assert "interrupted run; use --resume" in refused.stderr
    refused = call("fit", data, "--out", folder, "--resume", *SHORT)
    assert "if it was killed, try again 30 s later" in refused.stderr


@pytest.mark.slow  # a real fit and a real watch, as processes
def test_interrupting_a_fit_leaves_a_checkpoint_and_its_log(data, tmp_path):
    folder = tmp_path / "run"
    process = start_fit(data, folder)
    watcher = subprocess.Popen(
        [sys.executable, "-m", "fedgranger", "watch", str(folder), "--interval", "0.1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    line = watcher.stdout.readline()
    assert "training, pass" in line
    assert "\x1b" not in line
    watcher.send_signal(signal.SIGINT)  # leaves the watch and not the run
    assert "left" in watcher.communicate(timeout=20)[0]
    assert watcher.returncode == 0
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.stderr.close()
    assert sorted(path.name for path in folder.iterdir()) == KEPT
    result = call("watch", folder, "--once")
    assert result.exit_code == 1
    assert "interrupted in training, pass" in result.output
    assert "--resume" in result.output


KEPT = [CHECKPOINT, progress.FILE_NAME]


def test_an_interrupt_leaves_a_checkpoint_and_its_log(data, tmp_path, monkeypatch):
    """The same without a process of its own, and before and after anything was kept."""
    folder = tmp_path / "run"

    def interrupt(phase, what, done, total):
        if what == phase and done >= 2:
            raise KeyboardInterrupt

    config = formula_config(state_dim=2, tolerance=0.0)
    for phase, left in (("local models", None), ("training", KEPT)):
        report = functools.partial(interrupt, phase)
        monkeypatch.setattr(
            fit_screen, "progress_report", functools.partial(contextlib.nullcontext, report)
        )
        with pytest.raises(SystemExit) as stopped:
            fit_screen.run_fit(data, folder, DataOptions(), config)
        assert stopped.value.code == 130
        found = sorted(path.name for path in folder.iterdir()) if folder.exists() else None
        assert found == left
    result = call("watch", folder, "--once")
    assert result.exit_code == 1
    assert "interrupted in training, pass" in result.output
    assert "not running and not finished; repeat the fit with --resume" in result.output
    (folder / progress.FILE_NAME).unlink()  # a folder of version 0.1.0
    assert "interrupted: not running and not finished" in call("watch", folder, "--once").output


def test_a_finished_run_shows_its_headline(finished):
    assert not (finished / progress.FILE_NAME).exists()
    for options in (["--once"], []):
        result = call("watch", finished, *options)
        assert result.exit_code == 0
        assert "tested pairs" in result.output
        assert "ran all 2 passes" in result.output
        assert "covariance" not in result.output


def test_an_uncertainty_run_shows_its_covariance(finished, monkeypatch):
    rows = [
        (round_, client, cause, quantity, total)
        for round_, scale in ((0, 4.0), (10, 1.0), (20, 0.5))
        for client, cause in (("a", "b"), ("b", "a"))
        for quantity, total in (("granger_cov", scale), ("state_cov", 99.0))
    ]
    table = pd.DataFrame(rows, columns=["round", "client", "cause", "quantity", "total"])
    found = Propagation(("a", "b"), "joint", table, {}, {}, {}, {})
    result = dataclasses.replace(fg.Result.load(finished), uncertainty=found)
    monkeypatch.setattr(watch_screen.Result, "load", lambda _: result)
    output = call("watch", finished, "--once").output
    assert "covariance of Â along training (sum of traces): 8 -> 1 █" in output


def test_a_pipe_gets_plain_lines_and_ctrl_c_leaves(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    write(folder, made_log())
    looks = iter([None, None, KeyboardInterrupt])

    def sleep(seconds):
        assert seconds == 7
        if (outcome := next(looks)) is not None:
            raise outcome

    monkeypatch.setattr(watch_screen.time, "sleep", sleep)
    result = call("watch", folder, "--interval", 7)
    assert result.exit_code == 0
    first, last = result.output.splitlines()  # what has not changed is not said again
    assert last == "left"
    assert "\x1b" not in result.output
    assert first.partition(" ")[2] == (
        "training, pass 26 of at most 100, round 500, local loss 1, server loss 0.1, "
        "distance 0.001 to the limit (estimated), ends at 1e-05, 1.67 min elapsed, about 20 s of "
        "training left"
    )
    assert read_log(folder)


def test_the_watch_ends_with_the_run(finished, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    write(folder, made_log())

    def finish(seconds):
        if read_log(folder)[-1].get("end"):
            fg.Result.load(finished).save(folder)
        else:
            write(folder, made_log(end="done"))

    monkeypatch.setattr(watch_screen.time, "sleep", finish)
    result = call("watch", folder)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert "training, pass 26" in lines[0]
    assert "writing the result" in lines[1]
    assert "tested pairs" in lines[2]


# Folders made by hand -------------------------------------------------------------------------


def test_only_a_log_is_an_interrupted_run(data, tmp_path):
    folder = tmp_path / "run"
    write(folder, made_log(age=60))
    result = call("watch", folder, "--once")
    assert result.exit_code == 1
    assert "no sign of life for 1 min in training, pass 26" in result.output
    assert "nothing was kept" in result.output
    refused = call("fit", data, "--out", folder, *SHORT)
    assert refused.exit_code == 2
    assert "killed before its first checkpoint; use --overwrite" in refused.stderr
    assert call("fit", data, "--out", folder, "--overwrite", *SHORT).exit_code == 0
    assert not (folder / progress.FILE_NAME).exists()


def test_a_killed_replacement_leaves_the_old_run(finished, tmp_path):
    folder = tmp_path / "run"
    fg.Result.load(finished).save(folder)
    write(folder, made_log(age=60))
    result = call("watch", folder, "--once")
    assert result.exit_code == 1
    assert "the earlier run in the folder is untouched" in result.output


@pytest.mark.parametrize(
    ("age", "end", "code", "expected"),
    [
        (29, None, 0, "training, pass 26"),
        (31, None, 1, "no sign of life for 31 s"),
        (5, "done", 0, "writing the result"),
        (31, "done", 1, "stopped before its result was written"),
        (0, "failed", 1, "failed in training, pass 26 of at most 100, round 500: not running"),
    ],
)
def test_silence_and_ends(tmp_path, age, end, code, expected):
    folder = tmp_path / "run"
    write(folder, made_log(age=age, end=end))
    result = call("watch", folder, "--once")
    assert result.exit_code == code
    assert expected in result.output


@pytest.mark.parametrize(
    ("make", "options", "expected"),
    [
        (None, [], "no such run folder"),
        ("", [], "no fit is going on there"),
        ("startup", [], "federation status"),
        ("", ["--interval", "0"], "--interval is 0"),
    ],
)
def test_nothing_to_watch(tmp_path, make, options, expected):
    folder = tmp_path / "run"
    if make is not None:
        (folder / make).mkdir(parents=True)
    result = call("watch", folder, *options)
    assert result.exit_code == 2
    assert expected in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"process": 1}', '{"time": 1.0}', "\xff"])
def test_a_damaged_log_is_no_log(tmp_path, text):
    (tmp_path / progress.FILE_NAME).write_bytes(text.encode("latin-1"))
    assert read_log(tmp_path) == []
    assert call("watch", tmp_path).exit_code == 2


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    log = made_log()
    write(tmp_path, log)
    path = tmp_path / progress.FILE_NAME
    path.write_text(path.read_text() + '{"time": 1')
    assert read_log(tmp_path) == log
    assert call("watch", tmp_path, "--once").exit_code == 0


@pytest.mark.parametrize("columns", [80, 120])
def test_the_picture_fits_the_terminal(tmp_path, columns):
    log = made_log(tolerance=0.0, round=10**7)
    log[2:2] = [{**log[1], "local_loss": 1 / (k + 1)} for k in range(48)]
    console = Console(width=columns, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(watch_screen.snapshot(tmp_path / "r", log, time.time()))
    lines = capture.get().splitlines()
    names = [line[:12].strip() for line in lines]
    assert [name for name in names if name] == [
        "run", "phase", "local loss", "server loss", "distance", "time",
    ]  # fmt: skip
    assert max(map(len, lines)) <= columns
    assert any("█" in line and "▁" in line for line in lines)


# Parts ----------------------------------------------------------------------------------------


def test_time_left_by_hand():
    base = made_log()
    # 1 s per unit; the distance falls tenfold in 10 units and has a factor 100 to go.
    assert seconds_left(base) == (pytest.approx(20.0), False)
    assert seconds_left(made_log(tolerance=0.0)) == (pytest.approx(150.0), False)
    assert seconds_left(made_log(distance=0.1)) == (pytest.approx(150.0), True)  # rises
    assert seconds_left(made_log(distance=9.9e-3)) == (pytest.approx(150.0), True)  # too slowly
    assert seconds_left(made_log(distance=1e-6)) == (0.0, False)
    assert seconds_left(made_log(done=0)) is None
    assert seconds_left([*base, {"time": base[-1]["time"], "phase": "edge tests"}]) is None
    assert seconds_left(base[:1]) is None
    resumed = made_log(tolerance=0.0)
    for line, done in zip(resumed[1:], (40, 45, 50), strict=True):  # ten units in 50 s
        line["done"] = done
    assert seconds_left(resumed) == (pytest.approx(750.0), False)


def test_sparkline():
    assert watch_screen.sparkline([1, 2, 3]) == "▁▅█" or watch_screen.sparkline([1, 2, 3]) == "▁▄█"
    assert watch_screen.sparkline([2, 2]) == "▁▁"
    assert watch_screen.sparkline([1.0]) == "▁"
    assert watch_screen.sparkline([1, 10, 100, 1000])[1] == "▃"  # logarithmic
    assert len(watch_screen.sparkline(list(range(100)), 24)) == 24
    assert watch_screen.sparkline(list(range(100)), 24)[-1] == "█"


def snapshot_of(k, c, chunks):
    """The snapshot after chunk c of pass k."""
    is_whole = c + 1 == chunks
    distance = SimpleNamespace(distance=1.0 / (k + 1))
    return Snapshot(k + is_whole, 0 if is_whole else c + 1, None, None, distance, False)


def test_losses_are_means_over_whole_passes(tmp_path):
    """They depend on the pass and, strongly, on the stretch of data."""
    follower = Follower(tmp_path / "log")
    trace, seen = [], []
    for k, c in np.ndindex(4, 5):
        trace.append(TraceRow(k, 10 * k + c, np.full(2, 100.0 - k + 10 * c), np.full(2, np.nan)))
        follower.train(snapshot_of(k, c, 5), trace, 5 * k + c + 1)
        seen.append(follower._state["local_loss"])
    assert seen[:4] == [100.0, 110.0, 120.0, 130.0]  # the first pass: as it comes
    assert seen[4:] == [*[120.0] * 5, *[119.0] * 5, *[118.0] * 5, 117.0]
    assert "server_loss" not in follower._state  # not finite
    assert follower._state["distance"] == 0.25
    assert follower._state["distance_at"] == 20


def test_writing_is_throttled_and_cheap(tmp_path):
    follower = Follower(tmp_path / "log")
    report = follower.count
    started = time.perf_counter()
    for k in range(2000):
        report("training", k, 2000)
    assert time.perf_counter() - started < 0.9
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_signs_of_life_in_a_silent_phase(tmp_path):
    with follow(tmp_path, formula_config()):
        time.sleep(2.5)
        log = read_log(tmp_path)
    assert [line.get("phase") for line in log[1:]] == ["preparing"] * (len(log) - 1)
    assert 3 <= len(log) <= 4
    assert read_log(tmp_path)[-1]["end"] == "done"


def test_the_folder_is_clean_afterwards(tmp_path):
    folder = tmp_path / "new" / "run"

    def fail(error, keep):
        with follow(folder, formula_config()) as follower:
            assert read_log(folder)[-1]["phase"] == "preparing"
            follower.count("training", 1, 10)
            assert read_log(folder)[-1]["done"] == 1
            if keep:
                (folder / CHECKPOINT).write_text("x")
            raise error

    with pytest.raises(ValueError, match="odd"):
        fail(ValueError("odd"), keep=False)
    assert not (tmp_path / "new").exists()
    for error, end in ((KeyboardInterrupt(), "interrupted"), (ValueError(), "failed")):
        with pytest.raises(type(error)):
            fail(error, keep=True)
        assert sorted(path.name for path in folder.iterdir()) == KEPT
        assert read_log(folder)[-1]["end"] == end


def test_a_full_disk_does_not_stop_a_fit(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "no space")

    with follow(tmp_path, formula_config()) as follower, monkeypatch.context() as patch:
        patch.setattr(progress.Path, "open", full)
        follower.begin("edge tests")
    monkeypatch.setattr(progress.Path, "touch", full)
    with pytest.raises(OSError, match="no space"), follow(tmp_path, formula_config()):
        pass


def test_newton_and_python_fits(tmp_path):
    panel, _ = fg.simulate(2, 1000, seed=1)
    folder = tmp_path / "run"
    fg.fit(panel, formula_config(state_dim=2, solver="newton"), checkpoint_folder=folder)
    log = read_log(folder)
    phases = list(dict.fromkeys(line["phase"] for line in log[1:-1]))
    assert phases == [
        *("preparing", "local models", "starting training", "training"),
        *("edge tests", "responses"),
    ]
    assert log[-1]["end"] == "done"
    assert sorted(path.name for path in folder.iterdir()) == KEPT


@pytest.mark.slow  # compiles the recursion of variances
def test_variances_are_followed_while_they_are_propagated(tmp_path):
    follower = Follower(tmp_path / progress.FILE_NAME)
    follower.write(**HEAD)
    for done, variance in enumerate([1.0, 0.5, float("inf"), 0.25], start=1):
        follower.add_variance(variance)
        follower.begin(f"uncertainty {done}")
    log = read_log(tmp_path)
    assert [line["variance"] for line in log[1:]] == [1.0, 0.5, 0.5, 0.25]
    assert "variance 0.25" in watch_screen.plain_line(log)
    assert "variance" not in watch_screen.plain_line(made_log())
    seen = []
    panel, _ = fg.simulate(2, 300, seed=3)
    config = formula_config(state_dim=2, passes=1, tolerance=0.0)
    propagate(set_up(panel, config), config, num_checkpoints=5, observe=seen.append)
    assert len(seen) >= 5
    assert seen[-1] < seen[0]
