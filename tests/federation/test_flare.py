"""Provisioned FLARE processes on loopback give the in-process result, and let in nobody else."""

import json
import os
import re
import socket
import ssl
import stat
import subprocess
import warnings

import numpy as np
import pytest

import fedgranger as fg
from tests.federation.flare import FEDGRANGER, RealFederation, wait_for

pytest.importorskip("nvflare", reason="needs the extra 'flare'")


def same_as_alone(panel, run, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        alone = fg.fit(panel, config=fg.RunConfig(solver="newton", **options))
    found = fg.Result.load(run)
    order = [alone.clients.index(name) for name in found.clients]
    assert order == sorted(order)
    np.testing.assert_allclose(found.granger, alone.granger, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        found.inference.transition, alone.inference.transition, rtol=0, atol=1e-12
    )
    return found


def test_three_clients_as_processes_find_what_one_process_finds(tmp_path):
    panel = fg.simulate(3, 301, seed=0)[0]
    with RealFederation(panel, tmp_path) as federation:
        done = federation.command("run", "--out", str(tmp_path / "run"))
        assert done.returncode == 0, done.stderr
        assert "edges are supported" in done.stdout
        assert "what crossed the wire" in done.stdout
        found = same_as_alone(panel, tmp_path / "run")
        assert found.manifest["training"]["rounds"] <= 40
    for name in panel.names:
        state = federation.kits[name] / "fedgranger-state"
        assert (state / "edges.csv").read_text().startswith("cause,effect,p_value,strength\n")
        raw = (tmp_path / "data" / f"{name}.csv").read_text().splitlines()[1].split(",")[1]
        server = federation.kits["server"]
        texts = [
            p.read_bytes() for p in server.rglob("*") if p.is_file() and p.stat().st_size < 1e7
        ]
        assert not any(raw.encode() in text for text in texts)
        assert not any(str(tmp_path / "data").encode() in text for text in texts)


@pytest.mark.slow
def test_the_simulator_finds_what_one_process_finds(tmp_path):
    panel = fg.simulate(3, 301, seed=0)[0]
    panel.write(tmp_path / "data")
    command = ["fit", str(tmp_path / "data"), "--out", str(tmp_path / "run"), "--runtime", "flare"]
    done = subprocess.run(
        [*FEDGRANGER, *command, "--solver", "newton"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = same_as_alone(panel, tmp_path / "run")
    assert found.manifest["runtime"] == "flare"


@pytest.mark.slow
def test_six_clients_check_run_and_status(tmp_path):
    panel = fg.simulate(6, 5000, seed=1)[0]
    with RealFederation(panel, tmp_path) as federation:
        done = federation.command("check")
        assert done.returncode == 0, done.stderr
        assert "5000 common time steps; everything is ready" in done.stdout
        done = federation.command("run", "--out", str(tmp_path / "run"))
        assert done.returncode == 0, done.stderr
        same_as_alone(panel, tmp_path / "run")
        done = federation.command("status")
        assert done.stdout.count("connected") == 6


@pytest.mark.slow
def test_two_hosts_are_two_loopback_addresses(tmp_path):
    """The server listens on 127.0.0.2 only; its certificate names that address."""
    panel = fg.simulate(2, 301, seed=0)[0]
    with RealFederation(panel, tmp_path, host="127.0.0.2") as federation:
        done = federation.command("run", "--out", str(tmp_path / "run"))
        assert done.returncode == 0, done.stderr
        same_as_alone(panel, tmp_path / "run")
        with pytest.raises(OSError, match="refused"), socket.socket() as other:
            other.connect(("127.0.0.1", federation.port))


@pytest.mark.slow
def test_foreign_certificates_and_plain_text_are_refused(tmp_path):
    panel = fg.simulate(3, 301, seed=0)[0]
    with RealFederation(panel, tmp_path / "ours") as federation:
        away = federation.processes["client3"]
        foreign = RealFederation(panel, tmp_path / "theirs")
        foreign.port = federation.port
        config = foreign.kits["client3"] / "startup" / "fed_client.json"
        text = config.read_text()
        config.write_text(re.sub(r":\d{4,5}", f":{federation.port}", text))
        away.terminate()
        away.wait(20)
        foreign.start("client3")
        try:
            done = federation.command("check", "--wait-seconds", "40")
            assert done.returncode == 2
            assert "'client3' not connected" in done.stderr
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            for wrap in (lambda s: s, lambda s: context.wrap_socket(s)):
                assert not _answers(federation.port, wrap)
            federation.start("client3")
            assert wait_for(lambda: "away" not in federation.command("status").stdout, 60)
        finally:
            foreign.__exit__()


def _answers(port, wrap):
    """Whether the server says anything but goodbye to a stranger who speaks HTTP/2."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    request = b"\x00\x00\x05\x01\x05\x00\x00\x00\x01\x82\x84\x86\x41\x00"
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as plain, wrap(plain) as sock:
            sock.settimeout(5)
            sock.sendall(preface + request)
            answer = sock.recv(4096)
            return b"grpc-status" in answer
    except (OSError, ssl.SSLError):
        return False


def test_kits_are_private_and_let_in_no_code(tmp_path):
    from fedgranger.runtime.flare.kits import make_kits, role_of

    kits = make_kits(tmp_path / "kits", "server.example", ["pump", "tank"], 8002)
    for path in (tmp_path / "kits").rglob("*"):
        assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0, path
    assert {party: role_of(kit) for party, kit in kits.items()} == {
        "server": ("server", "server"),
        "admin": ("admin", "admin"),
        "pump": ("client", "pump"),
        "tank": ("client", "tank"),
    }
    for party in ("server", "pump"):
        local = kits[party] / "local"
        rights = json.loads((local / "authorization.json").read_text())
        assert rights["permissions"]["project_admin"]["byoc"] == "none"
        assert rights["permissions"]["project_admin"]["shell_commands"] == "none"
        resources = json.loads((local / "resources.json").read_text())
        assert "fedgranger." in resources["class_allow_list"]
        names = [component["id"] for component in resources["components"]]
        assert not {"site_log_streamer", "log_receiver"} & set(names)
    readme = (kits["pump"] / "README.md").read_text()
    assert "client 'pump'" in readme
    assert "What leaves your site" in readme


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--server", "h", "--clients", "a"], "at least two clients"),
        (["--server", "h", "--clients", "a,a"], "the same name"),
        (["--server", "h", "--clients", "a,b c"], "client name 'b c'"),
        (["--server", "h", "--clients", "a,server"], "client name 'server'"),
        (["--server", "h/", "--clients", "a,b"], "server is 'h/'"),
        (["--server", "h", "--clients", "a,b", "--port", "0"], "port is 0"),
    ],
)
def test_init_refuses_in_a_sentence_and_writes_nothing(tmp_path, words, sentence):
    command = [*FEDGRANGER, "federation", "init", str(tmp_path / "kits"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "kits").exists()
