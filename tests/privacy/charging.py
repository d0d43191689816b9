"""Charge a site's ledger on the disk: `python -m tests.privacy.charging FOLDER EPSILON NAME`."""

import math
import sys
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


def main(folder, epsilon, name):
    policy = replace(SitePolicy(**UNLIMITED), epsilon=float(epsilon))
    try:
        ReleaseLedger(Store(DiskFiles(Path(folder))), policy).charge(
            "run", [release(name)], DAY, 0.0
        )
    except BudgetError:
        print("refused")
    else:
        print("charged")


if __name__ == "__main__":
    main(*sys.argv[1:])
