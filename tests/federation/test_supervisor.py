"""A party's supervisor, with a fake program in place of FLARE's."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from fedgranger.flare.health import News, read_health
from fedgranger.flare.party_process import append_to_log
from fedgranger.flare.processes import abandon_jobs, alone, is_running, remove_job_folders
from tests.federation.flare import wait_for

SUPERVISE = """
import sys
from pathlib import Path
from fedgranger.flare import party_process, supervisor
supervisor.FIRST_PAUSE_SECONDS = float(sys.argv[2])
party_process.HEALTH_SECONDS = 0.2
supervisor.supervise(Path(sys.argv[1]), lambda s: print(s, flush=True), sys.argv[3:])
"""


@pytest.fixture
def kit(tmp_path):
    kit = tmp_path / "client-pump"
    (kit / "startup").mkdir(parents=True)
    (kit / "local").mkdir()
    service = {"target": "localhost:1", "scheme": "grpc"}
    content = {"servers": [{"service": service}], "client": {"fqsn": "pump"}}
    (kit / "startup" / "fed_client.json").write_text(json.dumps(content))
    return kit


class Supervised:
    """A supervisor of a fake program; what it says is in `lines`."""

    def __init__(self, kit, program, pause=0.5):
        script = kit.parent / "program.py"
        script.write_text(program)
        # the program's command line looks like FLARE's: -m MODULE -m KIT
        loader = "import runpy, sys; runpy.run_path(sys.argv[1])"
        command = [sys.executable, "-c", loader, script, "-m", "program", "-m", kit]
        self._said = kit.parent / "said.txt"
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SUPERVISE, kit, str(pause), *map(str, command)],
                stdout=said,
                stderr=said,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    @property
    def text(self):
        return self._said.read_text()

    def says(self, sentence, seconds=20):
        assert wait_for(lambda: sentence in self.text, seconds), self.text

    def children(self):
        return psutil.Process(self.process.pid).children(recursive=True)


def test_a_supervisor_imports_no_numerical_library_and_no_engine():
    code = "import fedgranger.flare.supervisor, psutil, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    roots = {name.partition(".")[0] for name in done.stdout.split()}
    heavy = {
        "jax",
        "numpy",
        "scipy",
        "pandas",
        "pyarrow",
        "nvflare",
        "grpc",
        "rich",
        "typer",
        "ssl",
    }
    assert not roots & heavy


def test_connection_and_runs_are_told_once_and_health_agrees(kit):
    program = """
import json, pathlib, time
state = pathlib.Path("fedgranger-state")
def tell(**facts):
    (state / "new").write_text(json.dumps(facts)); (state / "new").replace(state / "status.json")
tell(state="connecting", sentence="connecting to the server h:1", since=0); time.sleep(1)
tell(state="connected", sentence="connected to the server h:1", since=0); time.sleep(1)
with (state / "log.txt").open("a") as f: f.write("2026-01-01T00:00:00Z a run began\\n")
while not (state / "go").exists(): time.sleep(0.1)
tell(state="refused", sentence="not connected: its certificate was revoked", since=0)
time.sleep(60)
"""
    (kit / "fedgranger-state").mkdir()
    (kit / "fedgranger-state" / "log.txt").write_text("2025-01-01 00:00:00 old news\n")
    assert "is not started" in read_health(kit).sentence
    assert not (kit / "running.lock").exists()
    with Supervised(kit, program) as party:
        party.says("connected to the server h:1")
        party.says("a run began")
        assert wait_for(lambda: read_health(kit).is_good, 5), read_health(kit)
        (kit / "fedgranger-state" / "go").touch()
        party.says("not connected: its certificate was revoked")
        assert wait_for(lambda: "revoked" in read_health(kit).sentence, 5)
        assert not read_health(kit).is_good
        time.sleep(1.5)
        assert party.text.count("\nconnected to the server") == 1
        assert party.text.count("a run began") == 1
        assert "old news" not in party.text
    assert not read_health(kit).is_good


def test_a_program_that_dies_at_once_is_started_in_growing_pauses_and_its_reason_told(kit):
    program = "print('one line\\n')\nraise OSError(28, 'No space left on device')"
    with Supervised(kit, program, pause=0.5) as party:
        reason = "ended (1): OSError: [Errno 28] No space left on device; starting it again in"
        party.says(f"{reason} 0 s")
        party.says(f"{reason} 1 s")
        party.says(f"{reason} 2 s")
        party.says(f"{reason} 4 s")
        assert "raise OSError" in (kit / "console.txt").read_text()
        assert (kit / "console.txt").stat().st_mode & 0o777 == 0o600
        assert "No space left" in read_health(kit).sentence


def test_the_reason_is_told_when_nothing_can_be_written(kit):
    (kit / "console.txt").symlink_to("/dev/full")
    with Supervised(kit, "raise SystemExit('the disk is full')") as party:
        party.says("ended (1): the disk is full")
        party.says("cannot write")
        party.says("No space left on device")


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
words = [sys.executable, "-c", "import time; time.sleep(100)", "-m", "job", *sys.argv[-2:]]
subprocess.Popen(words, start_new_session=True)
print("ready", flush=True)
time.sleep(100)
"""


def is_gone(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_all_processes_end_when_the_supervisor_is_told_to(kit):
    with Supervised(kit, STUBBORN) as party:
        assert wait_for(lambda: len(party.children()) == 2, 10)
        children = party.children()
        party.process.send_signal(signal.SIGTERM)
        party.process.wait(10)
        assert party.process.returncode == 0
        assert wait_for(lambda: all(map(is_gone, children)), 2)
        assert party.text.endswith("ended\n")


@pytest.mark.skipif(sys.platform != "linux", reason="a child learns of it on Linux only")
def test_the_program_ends_when_the_supervisor_is_killed_and_the_next_one_ends_its_jobs(kit):
    with Supervised(kit, STUBBORN) as party:
        assert wait_for(lambda: len(party.children()) == 2, 10)
        program, job = party.children()
        party.process.kill()
        assert wait_for(lambda: is_gone(program), 5)
        assert not is_gone(job)
    with Supervised(kit, "import time; time.sleep(100)"):
        assert wait_for(lambda: is_gone(job), 10)


def test_a_start_waits_for_whoever_asks_whether_the_party_is_running(kit):
    with alone(kit):
        assert is_running(kit)
    with (kit / "running.lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        threading.Timer(0.2, lambda: fcntl.flock(file, fcntl.LOCK_UN)).start()
        with alone(kit):
            assert is_running(kit)
    assert not is_running(kit)


def test_a_second_supervisor_of_a_kit_is_refused(kit):
    with Supervised(kit, "import time; time.sleep(100)") as party:
        assert wait_for(lambda: party.children(), 10)
        done = subprocess.run(
            [sys.executable, "-m", "fedgranger.flare.supervisor", str(kit)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr == f"error: {kit}: is running already\n"


def test_what_has_not_come_is_told_after_ten_seconds_and_then_in_growing_pauses(kit):
    (kit / "fedgranger-state").mkdir()
    status = kit / "fedgranger-state" / "status.json"
    news, said = News(kit, 0.0), {}
    for second in range(600):
        if second == 5:
            status.write_text('{"state": "connecting", "sentence": "not connected: nobody"}')
        if second == 500:
            status.write_text('{"state": "connected", "sentence": "connected to h:1"}')
        for sentence in news.check(float(second)):
            said[second] = sentence
    assert said == {
        5: "not connected: nobody",
        15: "not connected: nobody (for 10 s)",
        45: "not connected: nobody (for 40 s)",
        135: "not connected: nobody (for 130 s)",
        405: "not connected: nobody (for 400 s)",
        500: "connected to h:1",
    }
    assert news.standing == ("connected", "connected to h:1", 500.0)


def test_a_log_that_was_moved_aside_is_read_on(kit):
    (kit / "fedgranger-state").mkdir()
    log = kit / "fedgranger-state" / "log.txt"
    log.write_text("2026-01-01 00:00:00 an old line that is long\n")
    news = News(kit, 0.0)
    with log.open("a") as file:
        file.write("2026-01-01T00:00:01Z a run began\n2026-01-01T00:00:02Z hal")
    assert news.check(1.0) == ["a run began"]
    with log.open("a") as file:
        file.write("f a line\n")
    assert news.check(2.0) == ["half a line"]
    log.rename(log.with_name("log.1.txt"))
    log.write_text("2026-01-01T00:00:03Z new\n")
    assert news.check(3.0) == ["new"]


def test_a_log_is_moved_aside_when_it_is_large(tmp_path):
    for number in range(60):
        line = f"line {number:04d}\n".encode()
        assert append_to_log(tmp_path / "console.txt", line, largest_bytes=100) == ""
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["console.1.txt", "console.2.txt", "console.3.txt", "console.txt"]
    assert all(path.stat().st_size <= 110 for path in tmp_path.iterdir())
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())
    order = [*names[2::-1], names[3]]
    lines = "".join((tmp_path / name).read_text() for name in order).splitlines()
    assert lines == [f"line {number:04d}" for number in range(60 - len(lines), 60)]


def test_only_old_folders_of_finished_jobs_are_removed(tmp_path):
    jobs = [f"00000000-0000-0000-0000-{number:012d}" for number in range(8)]
    for age, name in enumerate(reversed(jobs)):
        (tmp_path / name / "app").mkdir(parents=True)
        os.utime(tmp_path / name, (time.time() - 100 * age - 100,) * 2)
    others = ["local", "startup", "transfer", "fedgranger-state", "jobs-storage"]
    for name in others:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    removed = remove_job_folders(tmp_path, {jobs[1]}, kept=3)
    assert removed == [jobs[0], *jobs[2:5]]
    assert {p.name for p in tmp_path.iterdir()} == {jobs[1], *jobs[5:], *others}
    young = tmp_path / jobs[5]
    os.utime(young)
    assert remove_job_folders(tmp_path, {jobs[1]}, kept=0) == jobs[6:]
    assert young.is_dir()


def test_jobs_that_a_dead_server_was_running_are_given_up(tmp_path):
    states = ("RUNNING", "DISPATCHED", "SUBMITTED", "FINISHED:COMPLETED")
    for state in states:
        (tmp_path / "jobs-storage" / state).mkdir(parents=True)
        meta = {"status": state, "name": "run"}
        (tmp_path / "jobs-storage" / state / "meta").write_text(json.dumps(meta))
    (tmp_path / "jobs-storage" / "torn").mkdir()
    (tmp_path / "jobs-storage" / "torn" / "meta").write_text('{"status"')
    assert sorted(abandon_jobs(tmp_path)) == ["DISPATCHED", "RUNNING"]
    found = [
        json.loads((tmp_path / "jobs-storage" / state / "meta").read_text()) for state in states
    ]
    assert [meta["status"] for meta in found] == [
        "FINISHED:ABANDONED", "FINISHED:ABANDONED", "SUBMITTED", "FINISHED:COMPLETED",
    ]  # fmt: skip
    assert all(meta["name"] == "run" for meta in found)
    assert abandon_jobs(Path(tmp_path)) == []
