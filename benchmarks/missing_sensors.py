"""Edge tests when single samples are missing: with the sensors that are there, or whole rows lost.

    python -m benchmarks.missing_sensors [--sets N] [--steps T] [--sensors D] [--out FILE.jsonl]

Three clients in a chain with D sensors each. `random`: 5 % of all cells are missing, at random.
`dead`: one sensor of every client is missing for half of the record (the first, middle or second
half). Each data set is tested complete, with missing cells, and with whole rows missing where a
cell is; by the latent test and by the readings' test. Shares at 5 %, with Monte Carlo errors by
data set. With --out every finished data set is kept: the same command continues.
"""

import argparse
import warnings
from dataclasses import replace

import numpy as np

import fedgranger as fg
from benchmarks.resumed import resumed, seconds_per_set
from fedgranger.errors import FedGrangerError, InferenceWarning

CHAIN = [("client1", "client2"), ("client2", "client3")]
PATTERNS = ("random", "dead")
DATA = ("complete", "cells", "rows")
TESTS = ("debiased", "readings")


def holes(pattern, panel, rng):
    """Bool per client, (time, sensor): the sample is there."""
    out, length = [], panel.num_steps
    for k, client in enumerate(panel):
        observed = np.ones(client.values.shape, dtype=bool)
        if pattern == "random":
            observed = rng.random(client.values.shape) > 0.05
        else:
            observed[k * length // 4 : k * length // 4 + length // 2, 0] = False
        out.append(observed)
    return out


def treated(panel, masks, data):
    """The panel with the missing cells, or with the rows that have some."""
    if data == "complete":
        return panel
    clients = []
    for client, mask in zip(panel, masks, strict=True):
        kept = mask if data == "cells" else np.repeat(mask.all(axis=1)[:, None], mask.shape[1], 1)
        values = np.where(kept, client.values, 0.0)
        clients.append(replace(client, values=values, observed=kept))
    return replace(panel, clients=tuple(clients))


def p_values(panel, truth, test):
    """(true link, p-value) of every pair."""
    table = fg.fit(panel, solver="none", test=test, copies=20).edges()
    pairs = zip(table["cause"], table["effect"], table["p_value"], strict=True)
    return [[(cause, effect) in truth.edges, p] for cause, effect, p in pairs]


def one(key, given):
    """All p-values of one data set; None where the fit is refused."""
    seed, pattern = int(key.split()[1]), key.split()[0]
    options = {"edges": CHAIN, "sensor_dims": given.sensors, "seed": seed}
    panel, truth = fg.simulate(3, given.steps, measurement_var=given.noise, **options)
    masks, out = holes(pattern, panel, np.random.default_rng(1000 + seed)), {}
    for data in DATA:
        for test in TESTS:
            try:
                out[f"{data} {test}"] = p_values(treated(panel, masks, data), truth, test)
            except FedGrangerError:
                out[f"{data} {test}"] = None
    return {"p": out}


def share(tables, is_true):
    """Share below 5 % among the true or the absent links, and its error over data sets."""
    counts = []
    for table in tables:
        p = np.array([p for true, p in table if true == is_true], dtype=float)
        counts.append((np.sum(p < 0.05), len(p)))
    hits, total = np.array(counts, dtype=float).T
    rate = hits.sum() / total.sum()
    error = np.std(hits - rate * total, ddof=1) * np.sqrt(len(hits)) / total.sum()
    return f"{rate:.3f}({error:.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=30)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--sensors", type=int, default=10)
    parser.add_argument("--noise", type=float, default=1.0)
    parser.add_argument("--out")
    given = parser.parse_args()
    warnings.simplefilter("ignore", InferenceWarning)
    keys = [f"{pattern} {seed}" for pattern in PATTERNS for seed in range(given.sets)]
    question = {"steps": given.steps, "sensors": given.sensors, "noise": given.noise}
    records = resumed(given.out, question, keys, lambda key: one(key, given))
    print(f"{given.sets} data sets, T = {given.steps}, {seconds_per_set(records)}")
    for pattern in PATTERNS:
        for test in TESTS:
            for data in DATA:
                mine = [r["p"][f"{data} {test}"] for r in records if r["key"].startswith(pattern)]
                known = [table for table in mine if table is not None]
                size, power = (share(known, is_true) for is_true in (False, True))
                refused = f", refused {len(mine) - len(known)}" if len(known) < len(mine) else ""
                print(f"{pattern:6} {test:8} {data:8}: size {size}, power {power}{refused}")


if __name__ == "__main__":
    main()
