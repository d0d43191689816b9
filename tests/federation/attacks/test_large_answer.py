"""An answer of hundreds of megabytes costs the server no memory, and the run ends the same."""

import json
import re
import threading
import time

import psutil
import pytest

import fedgranger as fg
from tests.federation.flare import RealFederation

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

from tests.federation.attacks import orders
from tests.federation.attacks.job import BLOATED
from tests.federation.attacks.orders import Altered

SIZE = 500_000_000
LARGEST_GROWTH = 200_000_000


class Peaks:
    """Largest resident memory of any process of a kit, while one looks."""

    def __init__(self, kit):
        self._kit, self._is_over, self.largest = kit, False, 0

    def __enter__(self):
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over = True
        self._thread.join()

    def _look(self):
        while not self._is_over:
            for process in psutil.process_iter(["cmdline", "memory_info"]):
                if (
                    str(self._kit) in (process.info["cmdline"] or [])
                    and process.info["memory_info"]
                ):
                    self.largest = max(self.largest, process.info["memory_info"].rss)
            time.sleep(0.1)


def _lift_own_limits(kit):
    """The attacker's own FLARE would not send so much."""
    path = kit / "local" / "comm_config.json"
    content = json.loads(path.read_text())
    largest = dict.fromkeys(("max_message_size", "streaming_max_blob_size"), 2**31)
    path.write_text(json.dumps({**content, **largest}))


@pytest.mark.slow  # real FLARE processes; an answer of 500 MB
def test_a_large_answer_is_refused_before_memory_is_taken(tmp_path, monkeypatch):
    panel = fg.simulate(2, 301, seed=0)[0]
    with RealFederation(panel, tmp_path) as federation:
        with Peaks(federation.kits["server"]) as quiet:
            done = federation.command("run", "--out", str(tmp_path / "quiet"))
            assert done.returncode == 0, done.stderr
        monkeypatch.setitem(orders.ENVIRONMENT, BLOATED, str(SIZE))
        _lift_own_limits(federation.kits["client1"])
        with Altered(federation, "client1"), Peaks(federation.kits["server"]) as attacked:
            done = federation.command("run", "--out", str(tmp_path / "attacked"), timeout=400)
            assert done.returncode == 0, done.stderr
    told = (tmp_path / "attacker.txt").read_text()  # what the server's job answered
    assert re.search(r"failed_destination=server\.\S+ Blob size 5\d{8} exceeds", told)
    print(f"largest server process: {quiet.largest / 1e6:.0f} MB, {attacked.largest / 1e6:.0f} MB")
    assert attacked.largest < quiet.largest + LARGEST_GROWTH
    edges = [(tmp_path / run / "edges.csv").read_bytes() for run in ("quiet", "attacked")]
    assert edges[0] == edges[1]
