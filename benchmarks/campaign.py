"""Kill the processes of a real federation at random, and see whether every run still ends the same.

    python -m benchmarks.campaign [--kills 30] [--seed 0] [--out FILE.json] [--folder DIR]

A server and three clients on this machine, started as a user would start them. One run is left
alone; in every other one, processes die by SIGKILL: jobs and parents, at clients and server.
"""

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

import fedgranger as fg

NUM_CLIENTS = 3
NUM_STEPS = 2001
MESSAGE_STEPS = 50
WAIT_SECONDS = 300
RUN_SECONDS = 600
STOP_SECONDS = 30
LARGEST_FAILURES = 5
VICTIMS = {  # and the word that follows the module on their command lines
    "client job": "client-job",
    "client parent": "client",
    "server job": "server-job",
    "server parent": "server",
}


@dataclass
class Kill:
    """A killed process; `seconds_lost` passed until all parties had a job again."""

    run: int
    at_seconds: float
    victim: str
    party: str
    seconds_lost: float | None = None


@dataclass
class Run:
    """How a run ended."""

    run: int
    seconds: float
    kills: int
    submissions: int
    identical: bool
    problem: str = ""


def tool(*words):
    return [sys.executable, "-m", "fedgranger", "federation", *map(str, words)]


class Federation:
    """Server and clients as child processes in a folder of their own."""

    def __init__(self, folder):
        self.folder, self.kits = folder, folder / "kits"
        self._children = []

    def start(self):
        """Make data and kits, start everybody, and see that all can be reached."""
        panel, _ = fg.simulate(NUM_CLIENTS, NUM_STEPS, seed=0)
        data = {path.stem: path for path in panel.write(self.folder / "data")}
        names = ",".join(data)
        words = ("init", self.kits, "--local", "--server", "localhost", "--clients", names)
        subprocess.run(tool(*words, "--port", free_port()), check=True, capture_output=True)
        self._open("server")
        for name, path in data.items():
            (self.kits / f"client-{name}" / "policy.toml").write_text("rounds = 1_000_000\n")
            self._open(f"client-{name}", "--data", path)
        subprocess.run(tool("check", self.kits / "admin"), check=True, capture_output=True)

    def stop(self):
        """End everything; whatever outlives its supervisor is told and killed."""
        for child in self._children:
            child.terminate()
        for child in self._children:
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"did not end within {STOP_SECONDS} s: {child.args[5]}")
                child.kill()
        for process, kind, party, _ in self.processes():
            print(f"outlived its supervisor: {kind} of {party}")
            process.kill()

    def _open(self, kit, *words):
        with (self.folder / f"{kit}.log").open("wb") as log:
            command = tool("start", self.kits / kit, *words)
            # a session of its own: Ctrl-C reaches this process only, which then ends the children
            self._children.append(
                subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            )

    def processes(self):
        """FLARE's processes of this federation: (process, kind, party, job)."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            modules = [after for word, after in itertools.pairwise(words) if word == "-m"]
            if len(modules) < 2 or self.kits not in Path(modules[1]).parents:
                continue
            role = words[words.index(modules[0]) + 1]
            kind = next((kind for kind, word in VICTIMS.items() if role == word), None)
            if kind is not None:
                job = words[words.index("-n") + 1] if "-n" in words else ""
                found.append((process, kind, Path(modules[1]).name, job))
        return found

    def jobs(self):
        """Names of the jobs that every party has a process for."""
        parties = {}
        for _, _, party, job in self.processes():
            if job:
                parties.setdefault(job, set()).add(party)
        return {job for job, members in parties.items() if len(members) == NUM_CLIENTS + 1}


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def one_run(federation, index, victims, chance, seconds_alone):
    """Give the run command and kill the victims while it works."""
    out, log_path = federation.folder / f"run{index}", federation.folder / f"run{index}.log"
    words = ("run", federation.kits / "admin", "--out", out, "--message-steps", MESSAGE_STEPS)
    words += ("--solver", "newton")
    kills, started = [], time.monotonic()
    with log_path.open("wb") as log:
        command = tool(*words, "--wait-seconds", WAIT_SECONDS)
        child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            problem = _watch(federation, index, child, victims, kills, chance, seconds_alone)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    text = log_path.read_text("utf-8", "replace")
    if not problem and child.returncode != 0:
        problem = f"exit code {child.returncode}"
    if problem:
        problem += ": " + text[-1500:]
    submissions = 1 + text.count("submitting it again")
    seconds = round(time.monotonic() - started, 1)
    return Run(index, seconds, len(kills), submissions, False, problem), kills


def _watch(federation, index, child, victims, kills, chance, seconds_alone):
    """Kill until the victims are used up; tell what went wrong."""
    started, victims = time.monotonic(), list(victims)
    moment, jobs_before = chance.uniform(4, 4 + 0.6 * seconds_alone), set()
    while child.poll() is None:
        time.sleep(0.2)
        now = time.monotonic() - started
        if now > RUN_SECONDS:
            return f"not finished after {RUN_SECONDS} s"
        if kills and kills[-1].seconds_lost is None and federation.jobs() - jobs_before:
            kills[-1].seconds_lost = round(now - kills[-1].at_seconds, 1)
        if victims and now > moment:
            alive = [found for found in federation.processes() if found[1] == victims[0]]
            if not alive:
                continue
            process, kind, party, _ = chance.choice(alive)
            jobs_before = {job for *_, job in federation.processes()}
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
            victims.pop(0)
            kills.append(Kill(index, round(now, 1), kind, party))
            print(f"  {now:6.1f} s  killed {kind} of {party}", flush=True)
            moment = now + chance.uniform(1, 0.6 * seconds_alone)
    return ""


def arrays_of(folder):
    with np.load(folder / "estimate.npz", allow_pickle=False) as stored:
        return {name: (stored[name].dtype, stored[name].tobytes()) for name in stored.files}


def campaign(federation, num_kills, seed):
    """Run until enough processes were killed; return all runs and kills."""
    chance, folder = random.Random(seed), federation.folder
    first, _ = one_run(federation, 0, [], chance, 0.0)
    if first.problem:
        raise SystemExit(f"the undisturbed run failed: {first.problem}")
    print(f"undisturbed run: {first.seconds:.1f} s", flush=True)
    first.identical = True
    runs, kills, expected = [first], [], arrays_of(folder / "run0")
    while len(kills) < num_kills and sum(bool(run.problem) for run in runs) < LARGEST_FAILURES:
        victims = chance.sample(list(VICTIMS), chance.randint(3, 4))
        run, killed = one_run(federation, len(runs), victims, chance, first.seconds)
        if not run.problem:
            run.identical = arrays_of(folder / f"run{run.run}") == expected
            run.problem = "" if run.identical else "another result"
        runs.append(run)
        kills += killed
        print(
            f"run {run.run}: {run.seconds:.0f} s, {run.kills} kills, {run.submissions} "
            f"submissions, identical: {'yes' if run.identical else 'no'} {run.problem}",
            flush=True,
        )
    return runs, kills


def summarise(runs, kills):
    disturbed = runs[1:]
    print(
        f"\n{len(disturbed)} runs, {len(kills)} kills; alone, a run takes {runs[0].seconds:.0f} s"
    )
    for kind in VICTIMS:
        own = [kill for kill in kills if kill.victim == kind]
        lost = sorted(kill.seconds_lost for kill in own if kill.seconds_lost is not None)
        tail = f"; again with a job after {lost[0]:.0f} to {lost[-1]:.0f} s" if lost else ""
        print(f"  {kind:<14} {len(own):>3} kills{tail}")
    failures = [run for run in runs if run.problem]
    print(f"identical results: {sum(run.identical for run in disturbed)} of {len(disturbed)}")
    print(f"failures: {len(failures)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path, help="keep everything here instead of a scratch one")
    given = parser.parse_args()
    if given.folder is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="campaign-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    federation = Federation(folder.resolve())
    try:
        federation.start()
        runs, kills = campaign(federation, given.kills, given.seed)
    finally:
        federation.stop()
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    summarise(runs, kills)
    if given.out is not None:
        values = {"runs": [asdict(run) for run in runs], "kills": [asdict(kill) for kill in kills]}
        given.out.write_text(json.dumps(values, indent=1) + "\n")
    sys.exit(any(run.problem for run in runs))


if __name__ == "__main__":
    main()
