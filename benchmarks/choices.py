"""Monte Carlo behind three choices: long gaps, sensors that are differenced, tails of copies.

    python -m benchmarks.choices [gaps] [sensors] [tails] [--data-sets 100]

gaps: false edges at 5 % of the latent test by formula when the client that drives the three others
is off for gaps of a given length, with the rows as they are and with incomplete rows left out for
all (docs/theory/inference.md). sensors: how many simulated stationary sensors and random walks are
differenced or named as slow (docs/data.md). tails: false edges of calibrated p-values with 20 and
60 copies of exact F laws, every pair by itself and pooled (docs/theory/readings.md).
"""

import argparse
import collections
import warnings

import numpy as np
from scipy import stats

import fedgranger as fg
from fedgranger.config import RunConfig
from fedgranger.inference import calibrate
from fedgranger.inference.latent import fit_latent, latent_tables
from fedgranger.inference.states import StateChunk, StateSource, complete_rows

T, CLIENTS, NOISE, BURN_IN = 2000, 4, 0.3, 500
LENGTHS = {1: 0.1, 2: 0.1, 3: 0.1, 5: 0.1, 10: 0.1, 20: 0.1, 50: 0.1, 200: 0.1, 1000: 0.5}
HUBS = ((0.95, 0.5), (0.97, 0.3))
"""Pole of every client, and gain from the first client to the others."""
CONFIG = RunConfig(solver="none", test="debiased", lags=1)


def hub_states(rng, pole, gain):
    """One state per client; the first drives the others. Measured with white noise."""
    A = pole * np.eye(CLIENTS)
    A[1:, 0] = gain
    w, h = rng.normal(size=(T + BURN_IN, CLIENTS)), np.zeros((T + BURN_IN, CLIENTS))
    for t in range(1, len(h)):
        h[t] = A @ h[t - 1] + w[t]
    return h[BURN_IN:] + np.sqrt(NOISE) * rng.normal(size=(T, CLIENTS))


def first_client_off(rng, share, length):
    """Gaps of one length at random places, never overlapping."""
    observed = np.ones((T, CLIENTS), dtype=bool)
    count = max(1, round(share * T / length))
    for k, cut in enumerate(np.sort(rng.integers(0, T - count * length + 1, count))):
        observed[cut + k * length : cut + (k + 1) * length, 0] = False
    return observed


def source_of(states, observed):
    chunk = StateChunk(np.where(observed, states, 0.0), observed, np.arange(T) == 0)
    names = tuple(f"c{m}" for m in range(CLIENTS))
    errors = (NOISE * np.eye(1),) * CLIENTS
    ones = (1,) * CLIENTS
    return StateSource(names, ones, errors, lambda: iter([chunk]), T, ones)


def size_of(pole, gain, length, treat, data_sets):
    """Share of absent links below 5 %, and its error between data sets."""
    shares = []
    for seed in range(data_sets):
        rng = np.random.default_rng(seed)
        states = hub_states(rng, pole, gain)
        source = treat(source_of(states, first_client_off(rng, LENGTHS[length], length)))
        table = latent_tables(fit_latent(source, CONFIG), CONFIG).edges
        shares.append((table["p_value"][table["cause"] != "c0"] <= 0.05).mean())
    return np.mean(shares), np.std(shares, ddof=1) / np.sqrt(len(shares))


def gaps(data_sets):
    print("rows per gap            " + "".join(f"{length:>10}" for length in LENGTHS))
    for pole, gain in HUBS:
        for label, treat in (("as they are", lambda source: source), ("left out", complete_rows)):
            cells = [size_of(pole, gain, length, treat, data_sets) for length in LENGTHS]
            row = "".join(f"{f'{size:.3f}({1000 * se:.0f})':>10}" for size, se in cells)
            print(f"pole {pole}, {label:<12}{row}", flush=True)


def sensors(data_sets):
    for label, pole, lengths in (
        ("stationary, pole 0.9", 0.9, (300, 1000, 5000)),
        ("stationary, pole 0.98", 0.98, (300, 1000, 5000)),
        ("random walk", 1.0, (500, 2000)),
    ):
        for length in lengths:
            kinds = collections.Counter()
            for seed in range(data_sets):
                w = np.random.default_rng([seed, length]).normal(size=(length + BURN_IN, 10))
                x = np.zeros_like(w)
                for t in range(1, len(w)):
                    x[t] = pole * x[t - 1] + w[t]
                x = x[BURN_IN:] if pole < 1 else x[:length]
                panel = fg.Panel.from_arrays({"a": x}).prepared()
                kinds.update(finding.kind for finding in panel.findings)
            total = 10 * data_sets
            print(
                f"{label:<22} {length:>5} rows: of {total} sensors "
                f"{kinds['integrated'] + kinds['counter']} differenced, {kinds['slow']} named slow"
            )


def tails(data_sets):
    """Sizes at 5 % and 1 %, six clients, k = 4, scales that differ between pairs."""
    df = np.full((6, 6), 4.0)
    for copies in (20, 60):
        for tail in (4.0, 8.0, 20.0, 1e6):
            rng = np.random.default_rng(9)
            cells = []
            found = {None: [], 1.0: [], 3.0: [], 10.0: []}
            for _ in range(data_sets):
                scale = np.exp(rng.normal(0, 0.3, (6, 6)))
                drawn = scale * stats.f.rvs(4, tail, size=(copies + 1, 6, 6), random_state=rng)
                for even, p in found.items():
                    calibrate.EVEN_PAIRS = even or 0.0
                    pooled = even is not None
                    law = calibrate.calibrate(drawn[0], df, drawn[1:], is_pooled=pooled)
                    p.append(law.p_value.ravel())
            for even, p in found.items():
                share = [(np.concatenate(p) < level).mean() for level in (0.05, 0.01)]
                cells.append(f"s = {even}: {share[0]:.3f} / {share[1]:.4f}")
            print(f"{copies} copies, d2 = {tail:g}: " + ", ".join(cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["gaps", "sensors", "tails"])
    parser.add_argument("--data-sets", type=int, default=100)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.what:
        {"gaps": gaps, "sensors": sensors, "tails": tails}[name](given.data_sets)


if __name__ == "__main__":
    main()
