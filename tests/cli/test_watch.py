"""`fedgranger watch` against folders in every state and against a fit that is really running."""

import contextlib
import dataclasses
import functools
import json
import os
import platform
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli import run, watch
from fedgranger.cli.app import app
from fedgranger.cli.options import DataOptions
from fedgranger.runtime import progress
from fedgranger.runtime.inprocess import TraceRow
from fedgranger.runtime.progress import Follower, RunProgress, follow, read_progress, seconds_left
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.setup import set_up
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
        news = read_progress(folder)
        if news is not None and news.pass_index and (folder / "checkpoint.npz").exists():
            return process
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.kill()
    pytest.fail("the fit did not begin to train")


def news(**changes):
    now = time.time()
    base = RunProgress(
        os.getpid(), "", platform.node(), now - 100, now, "training", 50, 200, now - 50, 0,
        100, 25, 500, [3.0, 2.0, 1.0], [0.3, 0.2, 0.1], [(40, 1e-2), (50, 1e-3)], 1e-5, [],
    )  # fmt: skip
    return base._replace(**changes)


def write(folder, found):
    folder.mkdir(exist_ok=True)
    (folder / progress.FILE_NAME).write_text(json.dumps(found._asdict()))


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return process.pid


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
        before = read_progress(folder)
        taken = call("fit", data, "--out", folder, "--overwrite", *SHORT)
        assert taken.exit_code == 2
        assert f"process {process.pid}" in taken.stderr

        deadline = time.monotonic() + 60
        while (after := read_progress(folder)).updated == before.updated:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert process.poll() is None
        assert after.round > before.round
        assert after.updated - before.updated > 0.9  # not written more often than that
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    monkeypatch.setattr(watch, "STALE_SECONDS", 0.2)
    stale = call("watch", folder, "--once")
    assert stale.exit_code == 1
    assert f"its process {process.pid} is gone" in stale.output
    assert "stale: no news for" in stale.output
    assert "--resume" in stale.output
    assert call("watch", folder).output.count("stale") == 1  # ends by itself, too
    refused = call("fit", data, "--out", folder, *SHORT)
    assert refused.exit_code == 2
    assert "interrupted run; use --resume" in refused.stderr


@pytest.mark.slow
def test_interrupting_a_fit_leaves_a_checkpoint_and_no_progress(data, tmp_path, monkeypatch):
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
    assert [path.name for path in folder.iterdir()] == ["checkpoint.npz"]
    monkeypatch.setattr(watch, "STALE_SECONDS", 0.2)
    result = call("watch", folder, "--once")
    assert result.exit_code == 1
    assert "interrupted: not running and not finished" in result.output
    assert "--resume" in result.output


def test_an_interrupt_leaves_a_checkpoint_and_no_progress(data, tmp_path, monkeypatch):
    """The same without a process of its own, and before and after anything was kept."""
    folder = tmp_path / "run"

    def interrupt(phase, what, done, total):
        if what == phase and done >= 2:
            raise KeyboardInterrupt

    config = formula_config(state_dim=2, tolerance=0.0)
    for phase, left in (("local models", None), ("training", ["checkpoint.npz"])):
        report = functools.partial(interrupt, phase)
        monkeypatch.setattr(
            run, "progress_report", functools.partial(contextlib.nullcontext, report)
        )
        with pytest.raises(SystemExit) as stopped:
            run.run_fit(data, folder, DataOptions(), config)
        assert stopped.value.code == 130
        assert left == ([path.name for path in folder.iterdir()] if folder.exists() else None)
    monkeypatch.setattr(watch, "STALE_SECONDS", 0.2)
    result = call("watch", folder, "--once")
    assert result.exit_code == 1
    assert "interrupted: not running and not finished" in result.output


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
    monkeypatch.setattr(watch.Result, "load", lambda _: result)
    output = call("watch", finished, "--once").output
    assert "covariance of Â along training (sum of traces): 8 -> 1 █" in output


def test_a_pipe_gets_plain_lines_and_ctrl_c_leaves(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    write(folder, news())
    looks = iter([None, None, KeyboardInterrupt])

    def sleep(seconds):
        assert seconds == 7
        if (outcome := next(looks)) is not None:
            raise outcome

    monkeypatch.setattr(watch.time, "sleep", sleep)
    result = call("watch", folder, "--interval", 7)
    assert result.exit_code == 0
    first, last = result.output.splitlines()  # what has not changed is not said again
    assert last == "left"
    assert "\x1b" not in result.output
    assert first.partition(" ")[2] == (
        "training, pass 26 of at most 100, round 500, local loss 1, server loss 0.1, "
        "distance 0.001, 1:40 min elapsed, about 20 s of training left"
    )
    assert read_progress(folder) is not None


def test_the_watch_ends_with_the_run(finished, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    write(folder, news())

    def finish(seconds):
        (folder / progress.FILE_NAME).unlink()
        fg.Result.load(finished).save(folder)

    monkeypatch.setattr(watch.time, "sleep", finish)
    result = call("watch", folder)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert "training, pass 26" in lines[0]
    assert "tested pairs" in lines[1]


# Folders made by hand -------------------------------------------------------------------------


def test_only_progress_is_an_interrupted_run(data, tmp_path):
    folder = tmp_path / "run"
    write(folder, news(process=dead_process(), updated=time.time() - 60))
    result = call("watch", folder, "--once")
    assert result.exit_code == 1
    assert "nothing was kept" in result.output
    refused = call("fit", data, "--out", folder, *SHORT)
    assert refused.exit_code == 2
    assert "killed before its first checkpoint; use --overwrite" in refused.stderr
    assert call("fit", data, "--out", folder, "--overwrite", *SHORT).exit_code == 0
    assert not (folder / progress.FILE_NAME).exists()


def test_a_killed_replacement_leaves_the_old_run(finished, tmp_path):
    folder = tmp_path / "run"
    fg.Result.load(finished).save(folder)
    write(folder, news(process=dead_process(), updated=time.time() - 60))
    result = call("watch", folder, "--once")
    assert result.exit_code == 1
    assert "the earlier run in the folder is untouched" in result.output


def test_a_process_on_another_machine(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    write(folder, news(host="elsewhere"))
    assert call("watch", folder, "--once").exit_code == 0
    write(folder, news(host="elsewhere", updated=time.time() - 1000))
    result = call("watch", folder, "--once")
    assert result.exit_code == 1
    assert "'elsewhere' and cannot be seen from here" in result.output
    assert "16:40 min" in result.output


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_number_given_again_is_another_process(tmp_path):
    folder = tmp_path / "run"
    mine = progress._birth(os.getpid())
    assert mine
    write(folder, news(born=mine))
    assert call("watch", folder, "--once").exit_code == 0
    write(folder, news(born="1", updated=time.time() - 60))
    assert call("watch", folder, "--once").exit_code == 1


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_an_ended_process_that_nobody_waited_for_is_gone():
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        deadline = time.monotonic() + 20
        while progress._birth(process.pid) != "ended" and time.monotonic() < deadline:
            time.sleep(0.05)
        assert progress.is_process_gone(news(process=process.pid)) is True


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


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"process": 1}'])
def test_damaged_progress_is_no_progress(tmp_path, text):
    (tmp_path / progress.FILE_NAME).write_text(text)
    assert read_progress(tmp_path) is None
    assert call("watch", tmp_path).exit_code == 2


@pytest.mark.parametrize("columns", [80, 120])
def test_the_picture_fits_the_terminal(tmp_path, columns):
    losses = [1 / (k + 1) for k in range(48)]
    found = news(local_losses=losses, server_losses=losses, round=10**7, tolerance=0.0)
    console = Console(width=columns, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(watch.snapshot(tmp_path / "r", found, time.time()))
    lines = capture.get().splitlines()
    names = [line[:12].strip() for line in lines]
    assert [name for name in names if name] == [
        "run", "phase", "local loss", "server loss", "distance", "time",
    ]  # fmt: skip
    assert max(map(len, lines)) <= columns
    assert any("█" in line and "▁" in line for line in lines)


# Parts ----------------------------------------------------------------------------------------


def test_time_left_by_hand():
    now = 1000.0
    base = news(updated=now, phase_started=now - 50, phase_first=0, done=50, total=200)
    # 1 s per unit; the distance falls tenfold in 10 units and has a factor 100 to go.
    assert seconds_left(base) == (pytest.approx(20.0), False)
    assert seconds_left(base._replace(tolerance=0.0)) == (pytest.approx(150.0), False)
    rising = base._replace(distances=[(40, 1e-3), (50, 1e-2)])
    assert seconds_left(rising) == (pytest.approx(150.0), True)
    slow = base._replace(distances=[(40, 1e-2), (50, 9.9e-3)])
    assert seconds_left(slow) == (pytest.approx(150.0), True)
    reached = base._replace(distances=[(40, 1e-2), (50, 1e-6)])
    assert seconds_left(reached) == (0.0, False)
    assert seconds_left(base._replace(done=0)) is None
    assert seconds_left(base._replace(done=None, total=None)) is None
    resumed = base._replace(phase_first=40)  # ten units in 50 s
    assert seconds_left(resumed._replace(tolerance=0.0)) == (pytest.approx(750.0), False)


def test_sparkline():
    assert watch.sparkline([1, 2, 3]) == "▁▅█" or watch.sparkline([1, 2, 3]) == "▁▄█"
    assert watch.sparkline([2, 2]) == "▁▁"
    assert watch.sparkline([1.0]) == "▁"
    assert watch.sparkline([1, 10, 100, 1000])[1] == "▃"  # logarithmic
    assert len(watch.sparkline(list(range(100)), 24)) == 24
    assert watch.sparkline(list(range(100)), 24)[-1] == "█"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (59.4, "59 s"), (59.6, "1:00 min"), (187, "3:07 min"), (7500, "2:05:00 h")],
)
def test_duration(seconds, text):
    assert watch.duration(seconds) == text


def trace(passes, chunks, M=2):
    """Losses that depend on the pass and, strongly, on the stretch of data."""
    return [
        TraceRow(k, k * 10 + c, np.full(M, 100.0 - k + 10 * c), np.full(M, np.nan))
        for k in range(passes)
        for c in range(chunks)
    ]


def test_losses_are_means_over_whole_passes():
    groups = progress._groups(trace(10, 4))
    assert [progress._mean([row.local_loss for row in group]) for group in groups] == [
        100.0 - k + 15 for k in range(9)
    ]
    assert progress._mean([row.server_loss for row in groups[0]]) is None
    many = progress._groups(trace(1000, 4))
    assert len(many) == progress.NUM_LOSSES
    assert {len(group) for group in many} == {4}
    assert (many[0][0].pass_index, many[-1][0].pass_index) == (0, 998)
    assert len(progress._groups(trace(1, 4))) == 4  # the first pass: as it comes
    assert progress._groups([]) == []


def test_writing_is_throttled_and_cheap(tmp_path, monkeypatch):
    writes = []
    monkeypatch.setattr(progress, "write_atomically", lambda path, write: writes.append(path))
    follower = Follower(tmp_path / "p.json", formula_config())
    report = follower.reporting(lambda *_: None)
    started = time.perf_counter()
    for k in range(2000):
        report("training", k, 2000)
    assert time.perf_counter() - started < 0.9
    assert len(writes) == 1


def test_the_folder_is_clean_afterwards(tmp_path):
    folder = tmp_path / "new" / "run"
    with follow(folder, formula_config()) as follower:
        assert read_progress(folder).phase == "preparing"
        follower.count("training", 1, 10)
        assert read_progress(folder).done == 1
    assert not (tmp_path / "new").exists()

    def fail():
        with follow(folder, formula_config()):
            (folder / "checkpoint.npz").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [path.name for path in folder.iterdir()] == ["checkpoint.npz"]


def test_a_full_disk_does_not_stop_a_fit(tmp_path, monkeypatch):
    def full(path, write):
        raise OSError(28, "no space")

    with follow(tmp_path, formula_config()) as follower:
        monkeypatch.setattr(progress, "write_atomically", full)
        follower.begin("edge tests")
    with pytest.raises(OSError, match="no space"), follow(tmp_path, formula_config()):
        pass


def test_newton_and_python_fits(tmp_path):
    panel, _ = fg.simulate(2, 1000, seed=1)
    seen = []

    def spy(self):
        seen.append(self._values)
        write_file(self)

    write_file = Follower._write
    patch = pytest.MonkeyPatch()
    patch.setattr(Follower, "_write", spy)
    try:
        fg.fit(
            panel, formula_config(state_dim=2, solver="newton"), checkpoint_folder=tmp_path / "run"
        )
    finally:
        patch.undo()
    phases = list(dict.fromkeys(values.phase for values in seen))
    assert phases == ["preparing", "local models", "starting training", "training", "edge tests"]
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["checkpoint.npz"]


@pytest.mark.slow
def test_variances_are_followed_while_they_are_propagated(tmp_path):
    written = []
    follower = Follower(tmp_path / progress.FILE_NAME, formula_config())
    for done, variance in enumerate([1.0, 0.5, float("inf"), 0.25], start=1):
        follower.add_variance(variance)
        follower.begin(f"uncertainty {done}")
        written.append(progress.read_progress(tmp_path).variances)
    assert written[-1] == [1.0, 0.5, 0.25]
    assert "variance 0.25" in watch.plain_line(news(variances=[1.0, 0.25]))
    assert "variance" not in watch.plain_line(news())
    seen = []
    panel, _ = fg.simulate(2, 300, seed=3)
    config = formula_config(state_dim=2, passes=1, tolerance=0.0)
    propagate(set_up(panel, config), config, num_checkpoints=5, observe=seen.append)
    assert len(seen) >= 5
    assert seen[-1] < seen[0]
