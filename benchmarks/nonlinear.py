"""Size and power of the nonlinear test on systems with known edges, beside the readings' test.

    python -m benchmarks.nonlinear [SYSTEM ...] [--sets N] [--steps T] [--first-seed K]
        [--regression NAME] [--sensors N] [--out FILE.jsonl]

Systems are those of `fedgranger simulate --dynamics` (four clients, six for lorenz96) and `linear`;
`weak`, linear with influences of a tenth of that; `delays`: a square drives a second
client at once and a third a step later, which looks like a link between these.
With --out every finished data set is kept: the same command continues where it was interrupted.
Shares at 5 % with their Monte Carlo errors, counted by data set. Power is also given for the pairs
whose mean Jacobian is zero: edges without a linear part; and last for levels at which either test
has 5 % of the absent edges, so that a test that finds too much has no advantage.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import fedgranger as fg
from fedgranger.data.simulation_options import DYNAMICS

CLIENTS = {"lorenz96": 6}
SYSTEMS = (*DYNAMICS, "weak", "delays")
WEAK = 0.1
"""Of the influences of `linear`: the linear test then finds about half of them at T = 2000."""
FLAT = 0.05
"""Blocks of the mean Jacobian with a smaller norm count as no linear part."""


def weak_panel(steps, sensors, seed):
    """The linear system with its influences between clients scaled down."""
    _, truth = fg.simulate(4, 10, sensor_dims=sensors, seed=seed)
    A = WEAK * truth.transition
    for name in truth.clients:
        own = truth.rows(name)
        A[own, own] = truth.transition[own, own]
    return fg.simulate(num_steps=steps, system=replace(truth, transition=A), seed=seed)


def delayed_panel(steps, sensors, seed):
    """Three clients of one state each: c2's square drives c0 at lag 1 and c1 at lag 2."""
    rng = np.random.default_rng(seed)
    x = np.zeros((steps + 100, 3))
    for t in range(1, len(x) - 1):
        driven = [x[t, 2] ** 2, x[t - 1, 2] ** 2, 0.0]
        x[t + 1] = 0.5 * x[t] + 0.5 * np.array(driven) + rng.standard_normal(3)
    arrays = {}
    for m in range(3):
        loadings, noise = rng.standard_normal(sensors), rng.standard_normal((steps, sensors))
        arrays[f"c{m}"] = x[100:, [m]] * loadings + 0.3 * noise
    edges = (("c2", "c0"), ("c2", "c1"))
    zeros = np.zeros((3, 3))  # no influence has a linear part
    return fg.Panel.from_arrays(arrays), fg.Truth(
        tuple(arrays), edges, zeros, dict.fromkeys(arrays, 1)
    )


def panel_of(system, seed, given):
    made = {"weak": weak_panel, "delays": delayed_panel}
    if system in made:
        return made[system](given.steps, given.sensors, seed)
    clients = CLIENTS.get(system, 4)
    options = {"dynamics": system, "sensor_dims": given.sensors, "seed": seed}
    return fg.simulate(clients, given.steps, **options)


def one(system, seed, given):
    panel, truth = panel_of(system, seed, given)
    options = {"nonlinear_regression": given.regression}
    config = fg.RunConfig(test="nonlinear", solver="none", **options)
    start = time.perf_counter()
    result = fg.fit(panel, config)
    seconds = time.perf_counter() - start
    edges, linear = result.edges(), result.inference.beside.edges["p_value"].tolist()
    pairs = []
    for cause, effect, p, q in zip(
        edges["cause"], edges["effect"], edges["p_value"], linear, strict=True
    ):
        is_flat = np.linalg.norm(truth.block(effect, cause)) < FLAT
        pairs.append([(cause, effect) in truth.edges, bool(is_flat), p, q])
    facts = result.manifest["inference"]
    found = {"audit": facts["audit"]["rate"][0], "kinds": facts["kinds"]}
    return {"system": system, "seed": seed, "pairs": pairs, "seconds": seconds, **found}


def share(records, wanted, column):
    """Share of p-values below 5 % among the wanted pairs, and its error over data sets."""
    per_set = []
    for record in records:
        p = [pair[column] for pair in record["pairs"] if wanted(pair)]
        if p:
            per_set.append((np.sum(np.array(p, dtype=float) < 0.05), len(p)))
    if len(per_set) < 2:
        return "-"
    hits, counts = np.array(per_set, dtype=float).T
    rate = hits.sum() / counts.sum()
    error = np.std(hits - rate * counts, ddof=1) * np.sqrt(len(counts)) / counts.sum()
    return f"{rate:.3f}({error:.3f})"


def equal_size(records, column, size=0.05):
    """Share of true edges below the level at which so many of the absent ones are."""
    pairs = np.array([pair for record in records for pair in record["pairs"]], dtype=float)
    is_true, p = pairs[:, 0] > 0, pairs[:, column]
    known = np.isfinite(p)
    level = np.quantile(p[known & ~is_true], size)
    return f"{(p[known & is_true] <= level).mean():.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("systems", nargs="*", metavar="SYSTEM")
    parser.add_argument("--sets", type=int, default=50)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--sensors", type=int, default=8)
    parser.add_argument("--regression", default="features")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    for name in given.systems:
        if name not in SYSTEMS:
            parser.error(f"no system '{name}'; choose of {', '.join(SYSTEMS)}")
    question = {"steps": given.steps, "sensors": given.sensors, "regression": given.regression}
    records = []
    if given.out and given.out.exists():
        head, *lines = given.out.read_text(encoding="utf-8").splitlines()
        if json.loads(head) != question:
            parser.error(f"{given.out}: holds data sets of other options; give another file")
        records = [json.loads(line) for line in lines]
    elif given.out:
        given.out.write_text(json.dumps(question) + "\n", encoding="utf-8")
    known = {(record["system"], record["seed"]) for record in records}
    seeds = range(given.first_seed, given.first_seed + given.sets)
    print(f"{'system':<16}{'sets':>5}{'size':>14}{'linear':>14}{'power':>14}{'linear':>14}", end="")
    print(
        f"{'no linear part':>16}{'linear':>14}{'audit':>8}{'seconds':>9}{'at 5 %':>8}{'linear':>8}"
    )
    for system in given.systems or SYSTEMS:
        for place, seed in enumerate(seeds):
            if (system, seed) not in known:
                records.append(one(system, seed, given))
                if given.out:
                    with given.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(records[-1]) + "\n")
            if sys.stderr.isatty():
                print(f"\r{system} {place + 1} of {len(seeds)}", end="\r", file=sys.stderr)
        own = [r for r in records if r["system"] == system and r["seed"] in seeds]
        cells = [
            share(own, wanted, column)
            for wanted in (lambda p: not p[0], lambda p: p[0], lambda p: p[0] and p[1])
            for column in (2, 3)
        ]
        audit, seconds = np.mean([r["audit"] for r in own]), np.median([r["seconds"] for r in own])
        print(f"{system:<16}{len(own):>5}", *(f"{cell:>13}" for cell in cells), end="")
        print(
            f"{audit:>9.3f}{seconds:>9.1f}",
            *(f"{equal_size(own, k):>7}" for k in (2, 3)),
            flush=True,
        )


if __name__ == "__main__":
    main()
