"""Whatever happens to messages, processes and disks, a run ends as if nothing had happened."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.federation.schedules import ALL_FAULTS, case_of, main
from tests.federation.simulated import Crash, Disk, Faults, World
from tests.unchecked import unchecked

ROOT = Path(__file__).parents[2]


def run_schedules(first, count):
    done = subprocess.run(
        [sys.executable, "-m", "tests.federation.schedules", str(first), str(count)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{count} schedules ended identically" in done.stdout
    assert all(what in done.stdout for what in ALL_FAULTS)


def test_schedules_end_with_the_identical_result():
    seeds = (*range(20), 50)  # 50 is the first one with three clients
    with unchecked():
        assert main(*seeds) == ALL_FAULTS
    assert len({case_of(seed) for seed in seeds}) == 8  # all there are


@pytest.mark.slow  # a minute of 980 further seeds of the same
def test_more_schedules_end_with_the_identical_result():
    run_schedules(20, 980)


@pytest.mark.slow  # 10 000 schedules
@pytest.mark.parametrize("chunk", range(10))
def test_many_schedules_end_with_the_identical_result(chunk):
    run_schedules(1000 + chunk * 1000, 1000)


class _OnDisk(World):
    def __init__(self, seed, faults):
        self.rng = np.random.default_rng(seed)
        self.faults, self.happened, self.now = faults, [], 0.0


def test_the_simulated_disk_would_show_a_missing_flush():
    """The check that fails: rename without flush loses records, the store's order does not."""
    torn = 0
    for seed in range(200):
        disk = Disk(_OnDisk(seed, Faults(crash=0.0, full_disk=0.0)))
        disk.write("new", b"x" * 100)
        disk.rename("new", "record")
        disk.crash()
        torn += disk.read("record") not in (None, b"x" * 100)
    assert torn > 20
    for seed in range(200):
        disk = Disk(_OnDisk(seed, Faults(crash=0.2, full_disk=0.0)))
        disk.seen["record"] = disk.safe["record"] = b"old"
        try:
            disk.write("record.new", b"new")
            disk.flush("record.new")
            disk.rename("record.new", "record")
            disk.flush_folder()
        except Crash:
            pass
        disk.crash()
        assert disk.read("record") in (b"old", b"new")
