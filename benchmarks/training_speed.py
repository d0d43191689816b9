"""Training steps per second beside the plain NumPy loop, in one run.

    python -m benchmarks.training_speed

Compile time is reported apart from run time. The NumPy loop is the one the tests compare with.
"""

import json
import time
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import fedgranger as fg  # noqa: E402
from fedgranger.runtime.inprocess import run_rounds, stack_windows  # noqa: E402
from fedgranger.runtime.setup import initial_state, set_up  # noqa: E402
from tests.reference import numpy_fedgc  # noqa: E402

STEPS = 20_000
NUMPY_SECONDS = 3.0
REPEATS = 3


def measure(num_clients):
    panel, _ = fg.simulate(num_clients, STEPS + 1, seed=0)
    config = fg.RunConfig(state_dim=2, state_model="ppca")
    setup = set_up(panel, config)
    state = initial_state(setup, config)
    windows = stack_windows(setup, 0, STEPS)

    def run():
        start = time.perf_counter()
        jax.block_until_ready(run_rounds(setup.params, state, windows))
        return time.perf_counter() - start

    first = run()
    seconds = min(run() for _ in range(REPEATS))

    clients = numpy_fedgc.from_setup(setup)
    plain = numpy_fedgc.state_to_plain(setup, state)
    options = {"window": 1, "ridge_theta": 1e-3, "ridge_granger": 1e-3}
    start = time.perf_counter()
    numpy_fedgc.run(clients, *plain, num_steps=20, **options)
    steps = max(20, int(20 * NUMPY_SECONDS / (time.perf_counter() - start)))
    steps = min(steps, STEPS)
    start = time.perf_counter()
    numpy_fedgc.run(clients, *plain, num_steps=steps, **options)
    numpy_rate = steps / (time.perf_counter() - start)
    return {
        "clients": num_clients,
        "compile_seconds": round(first - seconds, 2),
        "steps_per_second": round(STEPS / seconds),
        "numpy_steps_per_second": round(numpy_rate),
        "ratio": round(STEPS / seconds / numpy_rate, 1),
    }


def main():
    rows = []
    print(f"{'M':>4} {'steps/s':>12} {'NumPy steps/s':>14} {'ratio':>8} {'compile s':>10}")
    for num_clients in (2, 6, 16, 64):
        row = measure(num_clients)
        rows.append(row)
        print(
            f"{row['clients']:>4} {row['steps_per_second']:>12,} "
            f"{row['numpy_steps_per_second']:>14,} {row['ratio']:>8} {row['compile_seconds']:>10}",
            flush=True,
        )
    target = Path("benchmarks/results/training_speed.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
