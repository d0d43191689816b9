"""A party's supervisor, with a fake program in place of FLARE's."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fedgranger.runtime.flare import logs, tidying
from fedgranger.runtime.flare.health import read_health
from fedgranger.runtime.flare.news import News
from fedgranger.runtime.flare.reach import explain_silence
from tests.federation.flare import wait_for

SUPERVISE = """
import sys
from pathlib import Path
from fedgranger.runtime.flare import supervisor
supervisor.FIRST_PAUSE_SECONDS = float(sys.argv[2])
supervisor.HEALTH_SECONDS = 0.2
supervisor.supervise(Path(sys.argv[1]), lambda s: print(s, flush=True), sys.argv[3:])
"""


@pytest.fixture
def kit(tmp_path):
    kit = tmp_path / "client-pump"
    (kit / "startup").mkdir(parents=True)
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
    code = "import fedgranger.runtime.flare.supervisor, psutil, sys; print(*sys.modules)"
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
tell(state="connecting", sentence="", since=0); time.sleep(1)
tell(state="connected", sentence="", since=0); time.sleep(1)
with (state / "log.txt").open("a") as f: f.write("2026-01-01 00:00:00 a run began\\n")
while not (state / "go").exists(): time.sleep(0.1)
tell(state="refused", sentence="its certificate was revoked; ask for a new one", since=0)
time.sleep(60)
"""
    (kit / "fedgranger-state").mkdir()
    (kit / "fedgranger-state" / "log.txt").write_text("2025-01-01 00:00:00 old news\n")
    assert "is not started" in read_health(kit).sentence
    with Supervised(kit, program) as party:
        party.says("connected to the server localhost:1")
        party.says("a run began")
        assert wait_for(lambda: read_health(kit).is_good, 5), read_health(kit)
        (kit / "fedgranger-state" / "go").touch()
        party.says("not connected: its certificate was revoked")
        assert wait_for(lambda: "revoked" in read_health(kit).sentence, 5)
        assert not read_health(kit).is_good
        time.sleep(1.5)
        assert party.text.count("connected to the server") == 1
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


def test_a_second_supervisor_of_a_kit_is_refused(kit):
    with Supervised(kit, "import time; time.sleep(100)") as party:
        assert wait_for(lambda: party.children(), 10)
        done = subprocess.run(
            [sys.executable, "-m", "fedgranger.runtime.flare.supervisor", str(kit)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr == f"error: {kit}: is running already\n"


def test_news_gives_a_reason_after_ten_seconds_and_then_in_growing_pauses(kit):
    (kit / "fedgranger-state").mkdir()
    news, said = News(kit, "client", 0.0), {}
    for second in range(400):
        for sentence in news.look(float(second)):
            said[second] = sentence
        if news._question is not None:
            news._question.wait(20)
    assert list(said) == [11, 41, 131] or [*said] == [11, 41, 131, 401], said
    missing = "startup/rootCA.pem is missing in the kit"
    assert said[11].startswith(f"not connected for 11 s: {missing}")


def test_why_a_server_cannot_be_reached(kit, tmp_path):
    make_certificate(kit / "startup")
    assert "nothing listens at localhost:1; is the server started" in explain_silence(kit)
    (kit / "startup" / "client.key").write_text("no key")
    assert "certificate or key cannot be read" in explain_silence(kit)
    (kit / "startup" / "client.key").unlink()
    assert "startup/client.key is missing" in explain_silence(kit)


@pytest.mark.parametrize(
    ("days", "is_foreign", "sentence"),
    [
        (10, False, "answers and accepts the certificate, but has not let this client in"),
        (-1, False, "does not accept"),
        (10, True, "shows a certificate that this kit does not accept"),
    ],
)
def test_why_a_server_does_not_let_a_client_in(kit, tmp_path, days, is_foreign, sentence):
    import socket
    import ssl
    import threading

    startup, theirs = kit / "startup", tmp_path / "server"
    theirs.mkdir()
    make_certificate(startup, days)
    root = None if is_foreign else (startup / "rootCA.key", startup / "rootCA.pem")
    make_certificate(theirs, 10, root)
    context = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cafile=str(startup / "rootCA.pem")
    )
    context.load_cert_chain(theirs / "client.crt", theirs / "client.key")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    with socket.create_server(("localhost", 0)) as listener:
        config = startup / "fed_client.json"
        port = listener.getsockname()[1]
        config.write_text(config.read_text().replace("localhost:1", f"localhost:{port}"))

        def serve():
            plain, _ = listener.accept()
            try:
                with context.wrap_socket(plain, server_side=True) as secure:
                    secure.sendall(b"settings")
            except (ssl.SSLError, OSError):
                plain.close()

        thread = threading.Thread(target=serve)
        thread.start()
        assert sentence in explain_silence(kit)
        thread.join()


def make_certificate(folder, days=10, root=None):
    """A root (its own, or a given one) and a certificate for `localhost` signed by it."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    today = datetime.datetime.now(datetime.UTC)

    def signed(subject, key, issuer, signer, days, is_root):
        name = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in (subject, issuer)]
        builder = x509.CertificateBuilder(name[1], name[0], key.public_key(), 1 + is_root)
        builder = builder.not_valid_before(today - datetime.timedelta(days=30))
        builder = builder.not_valid_after(today + datetime.timedelta(days=days))
        builder = builder.add_extension(x509.BasicConstraints(is_root, None), critical=True)
        if not is_root:
            names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(signer, hashes.SHA256())

    def write(path, thing):
        pem = serialization.Encoding.PEM
        path.write_bytes(
            thing.public_bytes(pem)
            if isinstance(thing, x509.Certificate)
            else thing.private_bytes(
                pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    if root is None:
        authority = ec.generate_private_key(ec.SECP256R1())
        write(folder / "rootCA.key", authority)
        write(folder / "rootCA.pem", signed("root", authority, "root", authority, 100, True))
    else:
        authority = serialization.load_pem_private_key(root[0].read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    write(folder / "client.key", key)
    write(folder / "client.crt", signed("localhost", key, "root", authority, days, False))


def test_a_log_is_moved_aside_when_it_is_large(tmp_path):
    file = logs.RotatingFile(tmp_path / "console.txt", largest_bytes=100, kept=3)
    for number in range(60):
        file.write(f"line {number:04d}\n".encode())
    assert file.problem == ""
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
    removed = tidying.remove_job_folders(tmp_path, {jobs[1]}, kept=3)
    assert removed == [jobs[0], *jobs[2:5]]
    assert {p.name for p in tmp_path.iterdir()} == {jobs[1], *jobs[5:], *others}
    young = tmp_path / jobs[5]
    os.utime(young)
    assert tidying.remove_job_folders(tmp_path, {jobs[1]}, kept=0) == jobs[6:]
    assert young.is_dir()


def test_jobs_that_a_dead_server_was_running_are_given_up(tmp_path):
    states = ("RUNNING", "DISPATCHED", "SUBMITTED", "FINISHED:COMPLETED")
    for state in states:
        (tmp_path / "jobs-storage" / state).mkdir(parents=True)
        meta = {"status": state, "name": "run"}
        (tmp_path / "jobs-storage" / state / "meta").write_text(json.dumps(meta))
    (tmp_path / "jobs-storage" / "torn").mkdir()
    (tmp_path / "jobs-storage" / "torn" / "meta").write_text('{"status"')
    assert sorted(tidying.abandon_jobs(tmp_path)) == ["DISPATCHED", "RUNNING"]
    found = [
        json.loads((tmp_path / "jobs-storage" / state / "meta").read_text()) for state in states
    ]
    assert [meta["status"] for meta in found] == [
        "FINISHED:ABANDONED", "FINISHED:ABANDONED", "SUBMITTED", "FINISHED:COMPLETED",
    ]  # fmt: skip
    assert all(meta["name"] == "run" for meta in found)
    assert tidying.abandon_jobs(Path(tmp_path)) == []
