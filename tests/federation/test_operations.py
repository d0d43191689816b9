"""What an operator of real parties sees: connected or why not, status, health, what is left."""

import json
import subprocess

import psutil
import pytest

import fedgranger as fg
from fedgranger.flare.processes import processes_of
from tests.federation.flare import ENVIRONMENT, FEDGRANGER, RealFederation, wait_for

pytest.importorskip("nvflare", reason="needs the extra 'flare'")


def health(kit):
    command = [*FEDGRANGER, "federation", "health", str(kit), "--json"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def status(federation):
    done = federation.command("status", "--json")
    return done.returncode, json.loads(done.stdout) if done.stdout else {}


@pytest.mark.slow  # real FLARE processes, started and killed in turn
def test_an_operator_is_told_what_happens(tmp_path):
    panel = fg.simulate(2, 301, seed=0)[0]
    federation = RealFederation(panel, tmp_path)
    try:
        federation.start("client1")
        assert wait_for(lambda: "not connected: " in federation.said("client1"), 40)
        assert "is the server started" in federation.said("client1")
        code, facts = health(federation.kits["client1"])
        assert (code, facts["is_running"], facts["state"]) == (1, True, "connecting")
        assert federation.command("status").returncode == 2

        federation.start("server")
        where = f"{federation.host}:{federation.port}"
        assert wait_for(lambda: f"can connect to {where}" in federation.said("server"), 40)
        assert wait_for(lambda: "\nconnected to" in strip(federation.said("client1")), 60)
        assert wait_for(lambda: status(federation)[0] == 1, 60)  # client2 is away
        federation.start("client2")
        assert wait_for(lambda: status(federation)[0] == 0, 60)
        assert health(federation.kits["client1"])[0] == 0
        assert health(federation.kits["server"])[0] == 0

        done = federation.command("run", "--out", str(tmp_path / "run"))
        assert done.returncode == 0, done.stderr
        assert "the parties start their processes" in done.stderr
        jobs = status(federation)[1]["jobs"]
        assert [job["state"] for job in jobs] == ["completed"]

        # a job that the server was running when it was killed
        server = federation.kits["server"]
        meta = server / "jobs-storage" / jobs[0]["id"] / "meta"
        meta.write_text(json.dumps({**json.loads(meta.read_text()), "status": "RUNNING"}))
        assert not status(federation)[1]["jobs"][0]["is_finished"]
        for process in processes_of(server):
            process.kill()
        assert wait_for(lambda: "FLARE process ended (-9)" in federation.said("server"), 20)
        assert wait_for(lambda: status(federation)[0] == 0, 90)
        assert [job["state"] for job in status(federation)[1]["jobs"]] == ["abandoned"]

        supervisors = [psutil.Process(p.pid) for p in federation.processes.values()]
        assert all(process.memory_info().rss < 40e6 for process in supervisors)
        for process in supervisors:
            process.terminate()
        assert not psutil.wait_procs(supervisors, timeout=10)[1]
        assert not any(processes_of(kit) for kit in federation.kits.values())
        assert health(federation.kits["client1"])[0] == 1
    finally:
        federation.__exit__()


@pytest.mark.slow  # real FLARE processes
def test_processes_end_when_a_supervisor_is_killed(tmp_path):
    panel = fg.simulate(2, 301, seed=0)[0]
    with RealFederation(panel, tmp_path) as federation:
        kit = federation.kits["client1"]
        assert wait_for(lambda: processes_of(kit), 30)
        federation.kill("client1")
        assert wait_for(lambda: not processes_of(kit), 10)


def strip(text):
    """Lines without their time."""
    return "\n".join(line.partition(" ")[2] for line in text.splitlines())
