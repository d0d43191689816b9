"""Peak memory of a fit over a million steps, read from files as a user would.

    python -m benchmarks.memory

Each part runs in a process of its own, so that its peak is its own: the data, the test by formula
of one lag (`fit`), and the defaults with their shifted copies (`defaults`).
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NUM_STEPS = 1_000_000
LIMIT_GIB = 2.0


def child(task, folder):
    import fedgranger as fg

    if task == "simulate":
        panel, _ = fg.simulate(6, NUM_STEPS, seed=0)
        panel.write(folder, format="parquet")
    else:
        start = time.perf_counter()
        panel = fg.Panel.read(folder)
        options = {"passes": 1, "tolerance": 0.0, "test": "debiased", "lags": 1}
        result = fg.fit(panel, fg.RunConfig(**(options if task == "fit" else {})))
        print(json.dumps({"seconds": time.perf_counter() - start, **result.manifest["timings"]}))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"task": task, "peak_gib": round(peak, 3)}))


def main():
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        for task in ("simulate", "fit", "defaults"):
            command = [sys.executable, "-m", "benchmarks.memory", task, folder]
            output = subprocess.run(
                command, check=True, capture_output=True, text=True, env=os.environ
            ).stdout
            print(output.strip(), flush=True)
            peaks[task] = json.loads(output.strip().splitlines()[-1])["peak_gib"]
    Path("benchmarks/results").mkdir(exist_ok=True)
    record = {"num_steps": NUM_STEPS, "clients": 6, "sensors": 8}
    record |= {f"{task}_peak_gib": peaks[task] for task in ("fit", "defaults")}
    Path("benchmarks/results/memory.json").write_text(json.dumps(record, indent=1) + "\n")
    print(
        f"{NUM_STEPS:,} steps, 6 clients: {peaks['fit']:.2f} GiB by formula, "
        f"{peaks['defaults']:.2f} GiB with the defaults (limit {LIMIT_GIB})"
    )
    sys.exit(max(peaks["fit"], peaks["defaults"]) > LIMIT_GIB)


if __name__ == "__main__":
    child(*sys.argv[1:]) if len(sys.argv) > 1 else main()
