"""Peak memory of a fit over a million steps, read from files as a user would.

    python -m benchmarks.memory

Each part runs in a process of its own, so that its peak is its own.
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
        result = fg.fit(panel, fg.RunConfig(passes=1, tolerance=0.0, test="debiased", lags=1))
        print(json.dumps({"seconds": time.perf_counter() - start, **result.manifest["timings"]}))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"task": task, "peak_gib": round(peak, 3)}))


def main():
    with tempfile.TemporaryDirectory() as folder:
        for task in ("simulate", "fit"):
            command = [sys.executable, "-m", "benchmarks.memory", task, folder]
            output = subprocess.run(
                command, check=True, capture_output=True, text=True, env=os.environ
            ).stdout
            print(output.strip(), flush=True)
    peak = json.loads(output.strip().splitlines()[-1])["peak_gib"]
    Path("benchmarks/results").mkdir(exist_ok=True)
    record = {"num_steps": NUM_STEPS, "clients": 6, "sensors": 8, "fit_peak_gib": peak}
    Path("benchmarks/results/memory.json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"fit of {NUM_STEPS:,} steps, 6 clients: {peak:.2f} GiB (limit {LIMIT_GIB})")
    sys.exit(peak > LIMIT_GIB)


if __name__ == "__main__":
    child(*sys.argv[1:]) if len(sys.argv) > 1 else main()
