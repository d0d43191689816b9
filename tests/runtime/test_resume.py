"""An interrupted run continues to the same bits."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.cli import watch_screen
from fedgranger.cli.fit_screen import check_folder
from fedgranger.errors import ConvergenceWarning, RunError
from fedgranger.federation.codec import pack, unpack
from fedgranger.inference import copy_audit
from fedgranger.run_folder import CHECKPOINT, FORMER, MANIFEST
from fedgranger.runtime import fitting, progress, stepwise
from fedgranger.runtime.fitting import COPIES_FILE
from tests.configs import formula_config

CONFIG = formula_config(state_dim=2, passes=6, tolerance=0, window=5)
FILES = ("estimate.npz", "edges.csv", "entries.csv")


@pytest.fixture(scope="module")
def panel():
    return fg.simulate(3, 700, missing_share=0.02, seed=1)[0]


@pytest.fixture(scope="module")
def uninterrupted(panel):
    return fg.fit(panel, CONFIG)


def interrupt_after(monkeypatch, num_chunks):
    """Raise what Ctrl-C raises after so many chunks."""
    real = stepwise.train

    def interrupted(*args):
        for count, item in enumerate(real(*args)):
            if count == num_chunks:
                raise KeyboardInterrupt
            yield item

    monkeypatch.setattr(stepwise, "train", interrupted)


@pytest.mark.parametrize("num_chunks", [1, 8, 13, 47])
def test_resume_is_bit_identical(panel, uninterrupted, tmp_path, monkeypatch, num_chunks):
    with monkeypatch.context() as patch:
        interrupt_after(patch, num_chunks)
        with pytest.raises(KeyboardInterrupt):
            fg.fit(panel, CONFIG, checkpoint_folder=tmp_path)
    resumed = fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.granger, uninterrupted.granger)
    for name, theta in uninterrupted.augmentations.items():
        np.testing.assert_array_equal(resumed.augmentations[name], theta)
    assert resumed.trace.equals(uninterrupted.trace)
    assert resumed.manifest["training"] == uninterrupted.manifest["training"]


def test_two_interrupts(panel, uninterrupted, tmp_path, monkeypatch):
    for num_chunks, resume in ((5, False), (7, True)):
        with monkeypatch.context() as patch:
            interrupt_after(patch, num_chunks)
            with pytest.raises(KeyboardInterrupt):
                fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, resume=resume)
    resumed = fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.granger, uninterrupted.granger)
    assert resumed.trace.equals(uninterrupted.trace)


def test_periodic_checkpoints(panel, uninterrupted, tmp_path):
    """A killed process leaves the last periodic checkpoint, which is enough."""
    fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, checkpoint_seconds=0.0)
    assert (tmp_path / CHECKPOINT).exists()
    resumed = fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.granger, uninterrupted.granger)


@pytest.mark.parametrize("change", ["data", "options"])
def test_other_run_is_refused(panel, tmp_path, change):
    fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, checkpoint_seconds=0.0)
    other_panel = panel.slice(0, 600) if change == "data" else panel
    other_config = formula_config(state_dim=2, passes=7) if change == "options" else CONFIG
    with pytest.raises(RunError, match="other data, options or version"):
        fg.fit(other_panel, other_config, checkpoint_folder=tmp_path, resume=True)


def test_nothing_to_resume(panel, tmp_path):
    with pytest.raises(RunError, match="there is no checkpoint; run without --resume"):
        fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, resume=True)
    (tmp_path / MANIFEST).touch()
    with pytest.raises(RunError, match="the run is finished; to fit again use --overwrite"):
        fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, resume=True)


def test_damaged_checkpoint(panel, tmp_path):
    """Whichever byte the disk has changed."""
    fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, checkpoint_seconds=0.0)
    whole = (tmp_path / CHECKPOINT).read_bytes()
    for place in (0, 30, len(whole) // 2, len(whole) - 1):
        changed = bytes([whole[place] ^ 1])
        (tmp_path / CHECKPOINT).write_bytes(whole[:place] + changed + whole[place + 1 :])
        with pytest.raises(RunError, match="damaged checkpoint; use --overwrite instead"):
            fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, resume=True)


@pytest.mark.parametrize("lost", ["values", "fingerprint", "position", "changes", "local_loss"])
def test_a_checkpoint_without_one_of_its_parts_is_damaged(panel, tmp_path, lost):
    """Even where its digest fits."""
    fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, checkpoint_seconds=0.0)
    header, arrays = unpack((tmp_path / CHECKPOINT).read_bytes())
    parts = [header, header["values"], arrays]
    assert sum(part.pop(lost, None) is not None for part in parts) == 1
    (tmp_path / CHECKPOINT).write_bytes(pack(header, arrays))
    with pytest.raises(RunError, match="damaged checkpoint"):
        fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, resume=True)


def test_a_checkpoint_of_the_former_format_is_refused_in_one_sentence(panel, tmp_path):
    """Until the run is started again: then the new one counts."""
    (tmp_path / FORMER).write_bytes(b"PK")
    with pytest.raises(RunError, match=r"of an older version .* use --overwrite to start again"):
        fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, resume=True)
    for resume in (True, False):
        with pytest.raises(RunError, match="of an older version"):
            check_folder(tmp_path, resume=resume, overwrite=False)
    with pytest.raises(RunError, match="of an older version"):
        watch_screen.check_folder(tmp_path)
    with pytest.raises(RunError, match="of an older version"):
        fg.Result.load(tmp_path)
    check_folder(tmp_path, resume=False, overwrite=True)
    fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, checkpoint_seconds=0.0)
    check_folder(tmp_path, resume=True, overwrite=False)


def test_failed_write_keeps_the_old_checkpoint(panel, tmp_path, monkeypatch):
    fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, checkpoint_seconds=0.0)
    before = (tmp_path / CHECKPOINT).read_bytes()

    def full_disk(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", full_disk)
        with pytest.raises(OSError, match="No space"):
            fg.fit(panel, CONFIG, checkpoint_folder=tmp_path, checkpoint_seconds=0.0)
    assert (tmp_path / CHECKPOINT).read_bytes() == before
    kept = [CHECKPOINT, progress.FILE_NAME]
    assert sorted(p.name for p in tmp_path.iterdir()) == kept


def test_not_converged_warns(panel):
    with pytest.warns(ConvergenceWarning, match="stopped at the last allowed pass, 2"):
        fg.fit(panel, formula_config(state_dim=2, passes=2))


@pytest.mark.slow  # five real processes; 60 passes over 20 000 steps
def test_real_interrupt_of_the_command(tmp_path):
    """SIGINT to the real process, then --resume: same files as an uninterrupted run."""
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}

    def command(*args):
        return [sys.executable, "-m", "fedgranger", *map(str, args)]

    data = tmp_path / "data"
    subprocess.run(
        command("simulate", data, "--clients", 3, "--steps", 20000),
        check=True,
        env=env,
        capture_output=True,
    )
    options = ["--passes", 60, "--tolerance", 0, "--state-dim", 2]
    subprocess.run(
        command("fit", data, "--out", tmp_path / "whole", *options),
        check=True,
        env=env,
        capture_output=True,
    )
    cut = command("fit", data, "--out", tmp_path / "cut", *options, "--checkpoint-every", 0)
    process = subprocess.Popen(cut, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    wait_for_checkpoint(process, tmp_path / "cut" / CHECKPOINT)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert b"--resume" in stderr
    assert b"Traceback" not in stderr
    assert not (tmp_path / "cut" / "manifest.json").exists()
    refused = subprocess.run(cut, env=env, capture_output=True)
    assert refused.returncode == 2
    assert b"--resume" in refused.stderr
    subprocess.run([*cut, "--resume"], check=True, env=env, capture_output=True)
    for name in FILES:
        whole, resumed = tmp_path / "whole" / name, tmp_path / "cut" / name
        assert whole.read_bytes() == resumed.read_bytes(), name
    assert not (tmp_path / "cut" / CHECKPOINT).exists()


def wait_for_checkpoint(process, path):
    while process.poll() is None and not path.exists():
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("solver", ["none", "newton"])
def test_interrupted_copies_are_not_made_again(panel, tmp_path, monkeypatch, solver):
    """Ctrl-C among the shifted clocks: the finished copies are kept, the answer is the same."""
    config = fg.RunConfig(solver=solver, test="readings", lags=1, copies=20, state_dim=2)
    whole = fg.fit(panel, config)
    right, made = copy_audit._write, []

    def write(record, key, copy, tests):
        right(record, key, copy, tests)
        made.append(copy)
        if len(made) == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(copy_audit, "_write", write)
    with pytest.raises(KeyboardInterrupt):
        fg.fit(panel, config, checkpoint_folder=tmp_path)
    resumed = fg.fit(panel, config, checkpoint_folder=tmp_path, resume=True)
    assert sorted(made) == list(range(20))
    assert resumed.inference.edges.equals(whole.inference.edges)
    assert not (tmp_path / COPIES_FILE).exists()


@pytest.mark.parametrize("options", [
    {"solver": "newton", "passes": 6},
    {"solver": "neural", "network_passes": 2, "batch_steps": 100, "server_hidden_dim": 3},
], ids=["newton", "neural"])  # fmt: skip
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["killed", "interrupted"])
def test_rounds_go_on_where_they_were(panel, tmp_path, monkeypatch, options, seconds):
    """Each round is made once, twice where it was under way, and no bit differs."""
    config = formula_config(state_dim=2, test="none", **options)
    uninterrupted, made, real = fg.fit(panel, config), [], fitting._LocalRun._on_round

    def interrupted(run, round_index, *rest):
        made.append(round_index)
        if made in ([0, 1, 2, 3], [0, 1, 2, 3, 2, 3, 4]):
            raise KeyboardInterrupt
        real(run, round_index, *rest)

    monkeypatch.setattr(fitting._LocalRun, "_on_round", interrupted)
    for resume in (False, True):
        with pytest.raises(KeyboardInterrupt):
            fg.fit(
                panel, config, checkpoint_folder=tmp_path, checkpoint_seconds=seconds, resume=resume
            )
    resumed = fg.fit(panel, config, checkpoint_folder=tmp_path, resume=True)
    assert made[:6] == [0, 1, 2, 3, 2, 3]
    assert len(made) == made[-1] + 1 + 4
    np.testing.assert_array_equal(resumed.granger, uninterrupted.granger)
    for name, theta in uninterrupted.augmentations.items():
        np.testing.assert_array_equal(resumed.augmentations[name], theta)
    assert resumed.trace.equals(uninterrupted.trace)
    assert resumed.manifest["training"] == uninterrupted.manifest["training"]
