"""Memory of a federation on this machine: idle, and the most of it during a run.

    python -m benchmarks.federation_memory [--clients 3] [--steps 5000] [--out FILE.json]

A server and its clients are started as a user would start them. Memory is the sum of the
proportional set size (a page that n processes share counts 1/n for each) of the supervisors, of
FLARE's processes and of their jobs; the admin's command is not counted. Linux only.
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

import fedgranger as fg

CONNECT_SECONDS = 240
SETTLE_SECONDS = 5
POLL_SECONDS = 1.0
STOP_SECONDS = 30
KINDS = ("supervisor", "FLARE parent", "job")


def tool(*words):
    return [sys.executable, "-m", "fedgranger", "federation", *map(str, words)]


def own_memory(process):
    """Proportional set size of a process in MB; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def memory(supervisors):
    """Megabytes by kind of process: how deep it stands below the command that was given."""
    found = dict.fromkeys(KINDS, 0.0)
    level = [psutil.Process(child.pid) for child in supervisors]
    for kind in KINDS:
        found[kind] = sum(map(own_memory, level))
        level = [child for process in level for child in _children(process)]
    return found


def _children(process):
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []


def start(folder, num_clients, num_steps):
    """Make data and kits and start everybody."""
    panel, _ = fg.simulate(num_clients, num_steps, seed=0)
    data = {path.stem: path for path in panel.write(folder / "data")}
    kits = folder / "kits"
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    words = (
        "init",
        kits,
        "--local",
        "--server",
        "localhost",
        "--clients",
        ",".join(data),
        "--port",
        port,
    )
    subprocess.run(tool(*words), check=True, capture_output=True)
    commands = [tool("start", kits / "server")]
    commands += [tool("start", kits / f"client-{n}", "--data", path) for n, path in data.items()]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return kits, [subprocess.Popen(command, **quiet) for command in commands]


def await_all(kits, num_clients):
    """Seconds until the admin sees every client."""
    started = time.monotonic()
    while time.monotonic() - started < CONNECT_SECONDS:
        done = subprocess.run(
            tool("status", kits / "admin"), capture_output=True, text=True, check=False
        )
        if done.stdout.count("connected") >= num_clients and "away" not in done.stdout:
            return time.monotonic() - started
        time.sleep(POLL_SECONDS)
    raise SystemExit(f"not everybody was connected after {CONNECT_SECONDS} s: {done.stdout}")


def measure(folder, num_clients, num_steps):
    """Idle memory, the largest sum seen during a run, and how long both took."""
    kits, parties = start(folder, num_clients, num_steps)
    try:
        connected = await_all(kits, num_clients)
        time.sleep(SETTLE_SECONDS)
        idle, largest = memory(parties), dict.fromkeys(KINDS, 0.0)
        before = time.monotonic()
        with (folder / "run.log").open("wb") as log:
            command = tool("run", kits / "admin", "--out", folder / "run")
            admin = subprocess.Popen(command, stdout=log, stderr=log)
            while admin.poll() is None:
                largest = max(largest, memory(parties), key=lambda found: sum(found.values()))
                time.sleep(POLL_SECONDS)
        if admin.returncode != 0:
            raise SystemExit("the run failed:\n" + (folder / "run.log").read_text()[-2000:])
        seconds = time.monotonic() - before
    finally:
        for party in parties:
            party.terminate()
        _, alive = psutil.wait_procs([psutil.Process(p.pid) for p in parties], STOP_SECONDS)
        for process in alive:
            process.kill()
    return {"connected_seconds": connected, "run_seconds": seconds, "idle": idle, "run": largest}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="federation-memory-") as folder:
        found = measure(Path(folder), given.clients, given.steps)
    print(f"{given.clients} clients, {given.steps} steps, MB (proportional set size):")
    for phase in ("idle", "run"):
        parts = ", ".join(f"{kind} {found[phase][kind]:.0f}" for kind in KINDS)
        print(f"  {phase:<5} {sum(found[phase].values()):7.0f}  ({parts})")
    print(f"  connected after {found['connected_seconds']:.0f} s, run {found['run_seconds']:.0f} s")
    if given.out is not None:
        record = {"clients": given.clients, "steps": given.steps, **found}
        given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
