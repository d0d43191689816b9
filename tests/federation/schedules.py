"""Run fault schedules: `python -m tests.federation.schedules FIRST COUNT` (COUNT 1 replays one).

By itself or `unchecked`: many schedules take too long under the tests' run-time type checks.
"""

import sys

import jax

from tests.configs import formula_config
from tests.federation.simulated import Case, Faults, PrivateCase, WatchCase, World

ALL_FAULTS = {"drop", "repeat", "slow", "crash", "full_disk"}


def make_cases():
    short = {"test": "none", "state_dim": 1, "tolerance": 0.0}
    return {
        "newton": Case(formula_config(solver="newton", passes=3, **short)),
        "pieces": Case(formula_config(solver="newton", passes=2, **short), message_steps=15),
        "sgd": Case(formula_config(window=20, passes=5, **short)),
        "edges": Case(formula_config(solver="newton", passes=1, state_dim=1)),
        "default": Case(formula_config(solver="none", state_dim=1), message_steps=15),
        "watch": WatchCase(formula_config(solver="none", state_dim=1, period="none")),
        "private": PrivateCase(
            formula_config(
                solver="newton", state_dim=1, privacy="to-server", epsilon=1e4, private_rounds=3
            ),
            message_steps=15,
        ),
        "three": Case(formula_config(solver="newton", passes=2, **short), num_clients=3),
    }


def case_of(seed):
    """Mostly the quick ones."""
    if seed % 50 == 0:
        return ("edges", "three")[seed // 50 % 2]
    if seed % 10 == 5:
        return "default"
    if seed % 10 == 7:
        return "watch"
    if seed % 10 == 3:
        return "private"
    return "sgd" if seed % 10 == 0 else ("newton", "pieces")[seed % 2]


def run(cases, seed):
    """One schedule; anything but the undisturbed result is an error that names the seed."""
    case = cases[case_of(seed)]
    world = World(seed, case, Faults(budget=5 + seed % 60))
    found, stops = world.run()
    if not case.is_same(found, world):
        message = f"seed {seed} ({case_of(seed)}): another result after {world.happened}"
        raise AssertionError(message)
    return world, stops


def main(*seeds):
    """All of these schedules; the faults that happened in them."""
    count = len(seeds)
    with jax.enable_x64(True):
        cases = make_cases()
        happened, starts, stopped = {}, 0, 0
        for seed in seeds:
            world, stops = run(cases, seed)
            for _, what in world.happened:
                happened[what] = happened.get(what, 0) + 1
            starts += world.starts
            stopped += len(stops)
    faults = ", ".join(f"{what} {n}" for what, n in sorted(happened.items()))
    print(f"{count} schedules ended identically; server starts {starts}, clear stops {stopped}")
    print(f"faults: {faults}")
    return set(happened)


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    main(*range(first, first + count))
