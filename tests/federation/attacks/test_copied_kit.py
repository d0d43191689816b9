"""A copy of a kit does not displace the client it was taken from, and both sides are told."""

import json
import shutil
import subprocess
import time

import pytest

import fedgranger as fg
from tests.federation.flare import ENVIRONMENT, FEDGRANGER, RealFederation

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

COPY_SECONDS = 25.0


@pytest.mark.slow  # real FLARE processes; two runs and a wait between
def test_a_copied_kit_does_not_displace_the_client(tmp_path):
    panel, other = (fg.simulate(2, 301, seed=seed)[0] for seed in (0, 1))
    other.write(tmp_path / "other")
    with RealFederation(panel, tmp_path) as federation:
        done = federation.command("run", "--out", str(tmp_path / "quiet"))
        assert done.returncode == 0, done.stderr
        kit, copy = federation.kits["client2"], tmp_path / "copy" / "client-client2"
        shutil.copytree(kit, copy, ignore=shutil.ignore_patterns("fedgranger-state", "*.lock"))
        words = ["federation", "start", str(copy), "--data", str(tmp_path / "other/client2.csv")]
        thief = subprocess.Popen(
            [*FEDGRANGER, *words], env=ENVIRONMENT, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            time.sleep(COPY_SECONDS)
            done = federation.command("run", "--out", str(tmp_path / "attacked"))
        finally:
            thief.terminate()
            thief.wait(30)
        assert done.returncode == 0, done.stderr
    edges = [(tmp_path / run / "edges.csv").read_bytes() for run in ("quiet", "attacked")]
    assert edges[0] == edges[1]
    for party in ("server", "client2"):
        log = federation.kits[party] / "fedgranger-state" / "audit.jsonl"
        events = [json.loads(line)["event"] for line in log.read_text("utf-8").splitlines()]
        assert "second session" in events, party
