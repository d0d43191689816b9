"""What sixty copies with shifted clocks cost, as multiples of the test that they repeat.

    python -m benchmarks.copies [--steps 24000] [--clients 5] [--copies 60] [--lags 1 5]

Simulated clients of two states; both tests, each at the lags given, in one run: seconds of one test
of the data by itself (on as many threads as it takes), seconds of all copies on all cores, and
their ratio.
"""

import argparse
import functools
import time

import numpy as np
from threadpoolctl import threadpool_limits

import fedgranger as fg
from fedgranger.config import RunConfig
from fedgranger.federation.direct import state_source
from fedgranger.inference.copy_audit import PairTests, run_copies
from fedgranger.inference.lag_columns import LagColumns
from fedgranger.inference.latent import fit_latent, pair_tests, refit
from fedgranger.inference.readings import regress
from fedgranger.inference.readings_test import pair_tests_of
from fedgranger.inference.shifts import draw_shifts, tabulate
from fedgranger.runtime.setup import set_up

REPEATS = 3


def tests_of(source, table, lags):
    """Name, the test of the data, and that of a copy with shifted clocks."""
    config = RunConfig(lags=lags)
    fit = fit_latent(source, config)
    K = np.full((len(source.dims), len(source.dims)), lags)
    lagged = LagColumns(table.shifted(np.zeros_like(K[0])), K)
    yield (
        "latent",
        lambda: pair_tests(fit_latent(source, config)),
        lambda row: refit(fit, table.shifted(row), config),
    )
    yield (
        "readings",
        lambda: pair_tests_of(regress(source, K)),
        lambda row: pair_tests_of(
            regress(table.shifted(row), K, lagged=lagged, shifts=row, with_errors=False)
        ),
    )


def seconds(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=24_000)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--copies", type=int, default=60)
    parser.add_argument("--lags", type=int, nargs="*", default=[1, 5])
    given = parser.parse_args()
    panel, _ = fg.simulate(given.clients, given.steps, seed=0)
    setup = set_up(panel, RunConfig(state_dim=2))
    source = state_source(panel, {stream.name: stream.model for stream in setup.client_data})
    table = tabulate(source)
    shifts = draw_shifts(given.clients, source.num_steps, given.copies, 0, 1)
    print(f"{given.clients} clients, {given.steps} steps, {given.copies} copies")
    with threadpool_limits(1):  # as `infer` does
        compare(source, table, shifts, given.lags)


def compare(source, table, shifts, lag_counts):
    for lags in lag_counts:
        for name, test, test_copy in tests_of(source, table, lags):
            test()
            once = float(np.median([seconds(test) for _ in range(REPEATS)]))
            made = functools.partial(run_copies, test_copy, PairTests, shifts, lambda *_: None)
            copies = seconds(made)
            print(
                f"{name:9s} lags {lags}: one test {once:6.3f} s, copies {copies:7.2f} s, "
                f"ratio {copies / once:5.1f}"
            )


if __name__ == "__main__":
    main()
