"""Provisioned FLARE processes on loopback give the in-process result, and let in nobody else."""

import re
import socket
import ssl
import stat
import subprocess

import numpy as np
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli import demo_screen as demo
from fedgranger.cli.app import app
from fedgranger.client.params import read_models, write_models
from fedgranger.data.panel import Panel
from tests.federation.flare import FEDGRANGER, RealFederation, same_as_alone, wait_for
from tests.federation.gapped_files import write_tables

pytest.importorskip("nvflare", reason="needs the extra 'flare'")


ROUNDS = "rounds = 100_000\nquestions = 9\n"
"""A site that takes part in FedGC's rounds."""


MEASURED = ("timings", "bytes")
"""What a run measured of itself: in one process phases and messages, else exchanges and packets."""
ONLY_BETWEEN = {"run", "left_out"}
ONLY_SAVED = {"files", "sha256", "command"}


def keys_of(part):
    """All keys of a record, at every depth."""
    if not isinstance(part, dict):
        return {}
    names = part.keys() - ONLY_BETWEEN - ONLY_SAVED
    return {name: {} if name in MEASURED else keys_of(part[name]) for name in names}


@pytest.mark.slow  # FLARE's simulator starts a process for each client
def test_the_simulator_finds_what_one_process_finds(tmp_path):
    """On files with gaps, missing rows and empty cells, with declared local models."""
    (tmp_path / "data").mkdir()
    models = write_tables(tmp_path / "data", 5)
    write_models(tmp_path / "models.json", models)
    words = ["--runtime", "flare", "--models", str(tmp_path / "models.json"), "--period", "none"]
    words += ["--missing", "mask"]
    command = ["fit", str(tmp_path / "data"), "--out", str(tmp_path / "run"), *words]
    done = subprocess.run(
        [*FEDGRANGER, *command, "--solver", "newton", "--seed", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    panel = Panel.read(tmp_path / "data", missing="mask")
    read = read_models(tmp_path / "models.json")
    found = same_as_alone(panel, tmp_path / "run", "newton", read, seed=3, period="none")
    assert found.manifest["runtime"] == "flare"
    assert found.manifest["data"]["notes"][: len(panel.notes)] == list(panel.notes)
    with pytest.warns(UserWarning, match="rows were left out"):
        alone = fg.fit(panel, fg.RunConfig(solver="newton", seed=3, period="none"), models=read)
    both = alone.manifest, found.manifest
    assert keys_of(both[0]) == keys_of(both[1])
    assert both[0].training.step_sizes == both[1].training.step_sizes
    assert keys_of(both[0].data.clients) == keys_of(both[1].data.clients)
    for name, own in both[0].data.clients.items():
        assert own | {"local_fit": 0} == both[1].data.clients[name] | {"local_fit": 0}
    assert all(one.bytes_up > 0 for record in both for one in record.bytes.values())
    assert both[0].data.hash == both[1].data.hash


@pytest.mark.slow  # seven real FLARE processes
def test_six_clients_check_run_and_status(tmp_path):
    panel = fg.simulate(
        clients=demo.CLIENTS, num_steps=demo.NUM_STEPS, edges=demo.NUM_EDGES, seed=demo.SEED
    )[0]
    with RealFederation(panel, tmp_path) as federation:
        done = federation.command("check")
        assert done.returncode == 0, done.stderr
        assert "5000 common time steps; everything is ready" in done.stdout
        done = federation.command("run", "--out", str(tmp_path / "run"))
        assert done.returncode == 0, done.stderr
        same_as_alone(panel, tmp_path / "run")
        done = federation.command("status")
        assert done.stdout.count("connected") == 6


@pytest.mark.slow  # real FLARE processes; three runs
def test_two_hosts_are_two_loopback_addresses(tmp_path):
    """The server listens on 127.0.0.2 only; its certificate names that address."""
    panel = fg.simulate(2, 301, seed=0)[0]
    with RealFederation(panel, tmp_path, "127.0.0.2", ROUNDS) as federation:
        done = federation.command("run", "--out", str(tmp_path / "run"))
        assert done.returncode == 0, done.stderr
        same_as_alone(panel, tmp_path / "run")
        done = federation.command("run", "--out", str(tmp_path / "newton"), "--solver", "newton")
        assert done.returncode == 0, done.stderr
        found = same_as_alone(panel, tmp_path / "newton", "newton")
        assert found.manifest["training"]["rounds"] <= 40
        steps = {"window": 50, "passes": 2, "tolerance": 0.0}
        words = [f"--{name}={value}" for name, value in {"solver": "sgd", **steps}.items()]
        done = federation.command("run", "--out", str(tmp_path / "sgd"), *words)
        assert done.returncode == 0, done.stderr
        found = same_as_alone(panel, tmp_path / "sgd", "sgd", **steps)
        assert found.manifest["training"]["rounds"] == 2 * 6  # too few to forget θ⁰
        assert np.isfinite(found.granger).all()
        with pytest.raises(OSError, match="refused"), socket.socket() as other:
            other.connect(("127.0.0.1", federation.port))


@pytest.mark.slow  # real FLARE processes; waits 40 s for a refused client
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


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    from fedgranger.flare.kits import make_kits

    return make_kits(tmp_path_factory.mktemp("k") / "kits", "localhost", ["pump", "tank"], 8002)


def refused(*words):
    done = CliRunner().invoke(app, ["federation", *map(str, words)])
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    return " ".join(done.output.split())


def test_commands_refuse_the_wrong_kit_or_data_in_a_sentence(kits, tmp_path):
    (tmp_path / "bad.csv").write_text("time,a\n0,1\n1,1\n2,1\n")
    assert "is not a start-up kit" in refused("start", tmp_path)
    assert "is the admin's kit" in refused("start", kits["admin"])
    assert "the server has no data" in refused("start", kits["server"], "--data", "x.csv")
    assert "client 'pump' needs its data" in refused("start", kits["pump"])
    assert "there is no file" in refused("start", kits["pump"], "--data", tmp_path / "x.csv")
    assert ".xlsx or .parquet file" in refused("start", kits["pump"], "--data", tmp_path)
    assert "'a' is constant" in refused("start", kits["pump"], "--data", tmp_path / "bad.csv")
    assert "no list of clients" in refused("status", kits["server"])
    run = ["run", kits["admin"], "--out", tmp_path / "run"]
    assert "name a client 'well'" in refused(*run, "--couplings", "well->pump")
    assert "solver='none' runs no FedGC" in refused(*run, "--test", "asymptotic")
    assert "need all data in one place" in refused(
        *run, "--test", "asymptotic", "--solver", "newton"
    )
    assert "every site draws" in refused(*run, "--augmentation-prior-scale", "9")
    assert "transition='gp' would do nothing" in refused(*run, "--transition", "gp")
    assert "on_missing is 'wait'" in refused(*run, "--on-missing", "wait")
    assert "window='full' is for one process" in refused(
        *run, "--solver", "sgd", "--window", "full"
    )
    assert not (tmp_path / "run").exists()
    assert not (kits["pump"] / "local" / "fedgranger.json").exists()


def test_options_come_from_the_command_then_the_file_and_the_help_names_the_default(tmp_path):
    from fedgranger.cli.federation.runs import DEFAULTS
    from fedgranger.cli.options import merge

    done = CliRunner().invoke(app, ["federation", "run", "--help-all"], env={"COLUMNS": "300"})
    solver = next(line for line in done.output.splitlines() if "--solver" in line)
    words = done.output[done.output.index(solver) :].split("--window")[0].split()
    assert words[-2:] == ["Default:", "none."]
    (tmp_path / "c.toml").write_text("solver = 'newton'\n")
    assert merge(None, {}, DEFAULTS)[1].solver == "none"
    assert merge(tmp_path / "c.toml", {}, DEFAULTS)[1].solver == "newton"
    assert merge(tmp_path / "c.toml", {"solver": "none"}, DEFAULTS)[1].solver == "none"


def test_a_client_takes_its_settings_only_when_its_data_can_be_read(kits, tmp_path):
    from fedgranger.cli.federation.site_commands import read_and_check
    from fedgranger.flare.settings import read_settings, write_settings

    rows = "\n".join(f"2026-01-01T00:00:{s:02d},{s * s},{s % 7}" for s in range(30))
    (tmp_path / "pump.csv").write_text(f"time,a,b\n{rows}\n")
    settings, *_ = read_and_check(kits["tank"], tmp_path / "pump.csv", 1.0, {})
    write_settings(kits["tank"], settings)
    found = read_settings(kits["tank"], "tank")
    assert found.data == str(tmp_path / "pump.csv")
    assert found.interval == 1e9
    path = kits["tank"] / "local" / "fedgranger.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
