"""How often new data in which nothing happens raise an alarm, by the length of training.

    python -m benchmarks.false_alarms [--fits N]

The chain of three clients of `benchmarks.incidents`, four sensors each, Gaussian. Every fit is
tried on 20 records of 1000 new rows, without and with 3 % of all cells empty. Printed: the share
of records with an alarm, and its error, counted by fit.
"""

import argparse

import numpy as np

import fedgranger as fg
from benchmarks.incidents import records
from fedgranger.rca import OnlineAnalysis

LENGTHS = (600, 2000, 5000)
RECORDS, STEPS = 20, 1000


def with_gaps(panel, share, seed):
    rng = np.random.default_rng([seed, 7])
    arrays = {
        client.name: np.where(rng.random(client.values.shape) < share, np.nan, client.values)
        for client in panel
    }
    return fg.Panel.from_arrays(arrays)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=10)
    given = parser.parse_args()
    config = fg.RunConfig(test="debiased", lags=1, state_dim=1, solver="none")
    print("training rows  empty cells  records with an alarm")
    for steps in LENGTHS:
        for share in (0.0, 0.03):
            rates = []
            for fit in range(given.fits):
                run = fg.fit(with_gaps(records(steps, 1000 + fit), share, fit), config)
                new = (records(STEPS, 5000 + 100 * fit + k) for k in range(RECORDS))
                calm = [with_gaps(panel, share, k) for k, panel in enumerate(new)]
                rates.append(np.mean([bool(OnlineAnalysis(run).feed(panel)) for panel in calm]))
            error = np.std(rates, ddof=1) / np.sqrt(len(rates))
            print(f"{steps:13}  {share:11.0%}  {np.mean(rates):.3f} ± {error:.3f}", flush=True)


if __name__ == "__main__":
    main()
