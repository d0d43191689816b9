"""Charge a site's ledger on the disk, in as many processes at once as there are names:
`python -m tests.privacy.charging FOLDER EPSILON NAME...`."""

import math
import os
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from fedgranger.federation.policy import UNLIMITED, SitePolicy
from fedgranger.federation.release_ledger import BudgetError, Period, ReleaseLedger
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.privacy.release import Release

DAY = Period(Fraction(0), Fraction(99), Fraction(1))


def release(content="a", size=1.0):
    """A release of states, memoryless as they are."""
    return Release("states", content, lambda near: size * math.sqrt(near.length(10**6)))


def charge(folder, epsilon, name):
    """Slowly, between reading and writing the ledger: others would come in between."""
    policy = replace(SitePolicy(**UNLIMITED), epsilon=float(epsilon))
    quick = release(name)
    slow = quick._replace(size=lambda near: time.sleep(0.05) or quick.size(near))
    try:
        ReleaseLedger(Store(DiskFiles(Path(folder))), policy).charge("run", [slow], DAY, 0.0)
    except BudgetError:
        return "refused"
    return "charged"


def main(folder, epsilon, *names):
    """Everything is imported once, and all processes wait for one signal."""
    waiting, signal = os.pipe()
    children = []
    for name in names:
        child = os.fork()
        if child == 0:
            os.close(signal)
            os.read(waiting, 1)  # until the parent closes the other end
            os.write(1, f"{charge(folder, epsilon, name)}\n".encode())
            os._exit(0)
        children.append(child)
    os.close(signal)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
