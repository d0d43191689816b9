"""What privacy adds to the time of a run: the same run with and without noise, in one process.

    python -m benchmarks.privacy_overhead

Both have declared local models and the same options otherwise. Repeats alternate, so that whatever
else the machine does hits both alike; the processor's time is compared. The first of each, which
compiles, does not count.

Noisy states look as if they remembered longer, so tests that choose their lags themselves choose
more of them (2 to 4 instead of 1), which is work of the tests on other
data. "same lags" has them fixed; "chosen lags" is what a user waits for. These are the computations
alone; "command" is `fedgranger fit` as a user runs it, from files to the report, and "between
parties" the same on FLARE's simulator: processor time of all processes.
"""

import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import fedgranger as fg  # noqa: E402
from fedgranger.cli.simulation_files import write_simulation  # noqa: E402
from fedgranger.client.params import known_models, write_models  # noqa: E402

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
    chosen = {"solver": "none", "period": "none", **options}
    private = fg.RunConfig(privacy="to-server", private_rounds=8, epsilon=500.0, **chosen)
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


PRIVATE = ("--privacy", "to-server", "--epsilon", "500")
COMMANDS = {
    "command, default options, 6 clients, 5000 steps": (),
    "command, with 8 rounds": ("--solver", "newton", "--passes", "7", "--test", "debiased"),
    "between parties, default options": ("--runtime", "flare"),
}


def measure_command(folder, options):
    """Ratio of the processor's seconds of whole commands, three times each in turn."""
    took = {"plain": [], "private": []}
    for k in range(4):
        for name, extra in (("plain", ()), ("private", PRIVATE)):
            words = ["fit", "data", "--out", f"{name}{k}", "--models", "models.json", *options]
            if "--passes" in words and extra:
                words = [*words[: words.index("--passes")], "--private-rounds", "8", *words[-2:]]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "fedgranger", *words, "--period", "none", *extra]
            out = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if out.returncode:
                raise SystemExit(out.stderr)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took[name].append(sum(after[:2]) - sum(before[:2]))
        for out in folder.glob("p*[0-9]"):
            shutil.rmtree(out)
    ratios = [b / a for a, b in zip(*(part[1:] for part in took.values()), strict=True)]
    return {
        "plain_seconds": round(statistics.median(took["plain"][1:]), 3),
        "private_seconds": round(statistics.median(took["private"][1:]), 3),
        "ratio": round(statistics.median(ratios), 3),
    }


def measure_commands():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        panel, truth = fg.simulate(6, 5000, state_dims=2, sensor_dims=8, seed=0)
        write_simulation(folder / "data", panel, truth)
        write_models(folder / "models.json", known_models(truth))
        for words, options in COMMANDS.items():
            yield words, measure_command(folder, options)


def main():
    rows = {}
    for name, (num_steps, options) in SETTINGS.items():
        rows[name] = measure(4 if "4 clients" in name else 6, num_steps, options)
        print(f"{name:<50} {rows[name]}", flush=True)
    for name, row in measure_commands():
        rows[name] = row
        print(f"{name:<50} {row}", flush=True)
    target = Path("benchmarks/results/privacy_overhead.json")
    target.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
