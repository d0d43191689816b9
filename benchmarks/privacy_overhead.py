"""What privacy adds to the time of a run: the same run with and without noise, in one process.

    python -m benchmarks.privacy_overhead

Both have declared local models and the same options otherwise. Repeats alternate, so that whatever
else the machine does hits both alike; the processor's time is compared. The first of each, which
compiles, does not count.

Noisy states look as if they remembered longer, so tests that choose their lags themselves choose
more of them (2 to 4 instead of 1), which is work of the tests on other
data. "same lags" has them fixed; "chosen lags" is what a user waits for.
"""

import json
import statistics
import time
import warnings
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import fedgranger as fg  # noqa: E402
from fedgranger.client.params import known_models  # noqa: E402

REPEATS = 5
SAME = {"lags": 1}
FORMULA = {"test": "debiased"}
ROUNDS = {"test": "debiased", "solver": "newton"}
SETTINGS = {
    "formula, 6 clients, 20000 steps, same lags": (20_000, {**FORMULA, **SAME}),
    "with 8 rounds, 6 clients, 5000 steps, same lags": (5000, {**ROUNDS, **SAME}),
    "default test, 4 clients, 1000 steps, same lags": (1000, {"test": "auto", **SAME}),
    "formula, 6 clients, 20000 steps, chosen lags": (20_000, FORMULA),
    "with 8 rounds, 6 clients, 5000 steps, chosen lags": (5000, ROUNDS),
    "default test, 4 clients, 1000 steps, chosen lags": (1000, {"test": "auto"}),
}


def seconds(panel, models, config):
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fg.fit(panel, config, models=models)
    return time.process_time() - started


def measure(num_clients, num_steps, options):
    panel, truth = fg.simulate(num_clients, num_steps, state_dims=2, sensor_dims=8, seed=0)
    models = known_models(truth)
    chosen = {"solver": "none", "period": "none", "private_rounds": 8, "epsilon": 500.0, **options}
    private = fg.RunConfig(privacy="to-server", **chosen)
    plain = fg.RunConfig(**chosen)
    if plain.solver == "newton":  # as many rounds
        plain = fg.RunConfig(**{**chosen, "passes": 7})
    took = {"plain": [], "private": []}
    for _ in range(REPEATS + 1):
        took["plain"].append(seconds(panel, models, plain))
        took["private"].append(seconds(panel, models, private))
    ratios = [b / a for a, b in zip(*(part[1:] for part in took.values()), strict=True)]
    return {
        "plain_seconds": round(statistics.median(took["plain"][1:]), 3),
        "private_seconds": round(statistics.median(took["private"][1:]), 3),
        "ratio": round(statistics.median(ratios), 3),
    }


def main():
    rows = {}
    for name, (num_steps, options) in SETTINGS.items():
        rows[name] = measure(4 if "4 clients" in name else 6, num_steps, options)
        print(f"{name:<50} {rows[name]}", flush=True)
    target = Path("benchmarks/results/privacy_overhead.json")
    target.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
