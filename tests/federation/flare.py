"""Real parties on loopback: kits, processes of `fedgranger federation start`, and their end."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import warnings

import numpy as np
import psutil
from threadpoolctl import threadpool_limits

import fedgranger as fg
from fedgranger.flare.kits import make_kits

FEDGRANGER = [sys.executable, "-m", "fedgranger"]
ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}


def free_port(host="127.0.0.1"):
    with socket.socket() as found:
        found.bind((host, 0))
        return found.getsockname()[1]


class RealFederation:
    """A server and its clients as processes; a context manager that leaves none behind."""

    def __init__(self, panel, folder, host="localhost", policy=None):
        self.folder, self.host, self.names = folder, host, panel.names
        self.port = free_port("127.0.0.1" if host == "localhost" else host)
        panel.write(folder / "data")
        self.kits = self.make_kits(folder / "kits")
        for name in panel.names if policy else ():
            (self.kits[name] / "policy.toml").write_text(policy)
        self.processes, self._children = {}, []

    def make_kits(self, folder):
        return make_kits(folder, self.host, list(self.names), self.port)

    def __enter__(self):
        self.start("server")
        for name in self.names:
            self.start(name)
        return self

    def __exit__(self, *_):
        for party in self.processes:
            self._note_children(party)
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        for child in self._children:  # by their ids: nobody else's processes can be meant
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()

    def _note_children(self, party):
        """Processes that a party has started; psutil tells them from later ones of the same id."""
        with contextlib.suppress(psutil.NoSuchProcess):
            found = psutil.Process(self.processes[party].pid).children(recursive=True)
            self._children += found

    def start(self, party):
        data = [] if party == "server" else ["--data", str(self.folder / "data" / f"{party}.csv")]
        new = self.folder / "new" / f"{party}.csv"
        data += ["--watch", str(new)] if new.exists() else []
        with (self.folder / f"{party}.out").open("ab") as said:
            self.processes[party] = subprocess.Popen(
                [*FEDGRANGER, "federation", "start", str(self.kits[party]), *data],
                env=ENVIRONMENT, stdout=said, stderr=said,
            )  # fmt: skip

    def said(self, party):
        """What a party's terminal shows."""
        return (self.folder / f"{party}.out").read_text()

    def kill(self, party):
        self._note_children(party)  # nobody can ask for them afterwards
        self.processes[party].send_signal(signal.SIGKILL)

    def command(self, *words, timeout=240):
        """Run a federation command with the admin's kit."""
        return subprocess.run(
            [*FEDGRANGER, "federation", words[0], str(self.kits["admin"]), *words[1:]],
            env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip


def wait_for(condition, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.3)
    return False


def same_as_alone(panel, run, solver="none", models=None, **options):
    with warnings.catch_warnings(), threadpool_limits(1):  # as the parties: sums in one order
        warnings.simplefilter("ignore", UserWarning)
        alone = fg.fit(panel, config=fg.RunConfig(solver=solver, **options), models=models)
    found = fg.Result.load(run)
    order = [alone.clients.index(name) for name in found.clients]
    assert order == sorted(order)
    if solver == "none":
        assert found.granger is None
    elif solver == "newton":  # the limit does not know that each site began at a θ⁰ of its own
        np.testing.assert_allclose(found.granger, alone.granger, rtol=0, atol=1e-8)
    for name in ("transition", "std_error", "p_value"):
        np.testing.assert_array_equal(
            getattr(found.inference, name), getattr(alone.inference, name)
        )
    return found
