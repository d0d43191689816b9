"""Whole public recordings through `fedgranger fit` with its defaults, as a user would run it.

    python -m benchmarks.whole_recordings [NAME ...] [--data FOLDER] [--out FILE.json]

Names: tep, hai, hai100, batadal, and every SMD machine (machine-1-1, ...); all of them by default.
For each recording: which test was chosen and why, pairs that were not tested, the largest spectral
radius of a local model, how FedGC's training ended, seconds of the whole command, and seconds of
the tests with their copies. The recordings lie in `../shared/data` beside the repository; without
it there is nothing to do. Constant sensors are left out (`--constant drop`).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from fedgranger.results import Result

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FILES = {
    "tep": ("tep", "train_normal.parquet", None),
    "hai": ("hai", "normal_train1_first58min_1hz.parquet", "time"),
    "hai100": ("hai", "normal_train1_every100s.parquet", "time"),
    "batadal": ("batadal", "train_normal.parquet", "DATETIME"),
}


def recordings(data, wanted):
    """Yield (name, table, partition, time column), only what is wanted."""
    for name, (folder, file, time_column) in FILES.items():
        if not wanted or name in wanted:
            yield (
                name,
                pd.read_parquet(data / folder / file),
                partition_of(data, folder),
                time_column,
            )
    machines = pd.read_parquet(data / "smd" / "train.parquet")
    for name, table in machines.groupby("machine"):
        if not wanted or name in wanted:
            yield str(name), table, partition_of(data, "smd"), None


def partition_of(data, folder):
    return json.loads((data / folder / "partition.json").read_text())["clients"]


def run(name, table, partition, time_column, work):
    """Run the command on one recording; plain values."""
    columns = [column for group in partition.values() for column in group if column in table]
    table = table[([time_column] if time_column else []) + columns]
    table.to_parquet(work / "data.parquet", index=False)
    known = {c: [x for x in group if x in table] for c, group in partition.items()}
    (work / "clients.json").write_text(json.dumps(known))
    words = [sys.executable, "-m", "fedgranger", "fit", work / "data.parquet"]
    words += ["--partition", work / "clients.json", "--constant", "drop", "--out", work / name]
    words += ["--time-column", time_column] if time_column else []
    started = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    row = {"recording": name, "rows": len(table), "exit": done.returncode, "seconds": seconds}
    if done.returncode not in (0, 3) or not (work / name / "manifest.json").exists():
        return row | {"error": done.stderr.strip().splitlines()[-1:]}
    result = Result.load(work / name)
    manifest = result.manifest
    facts, clients = manifest["inference"], manifest["data"]["clients"]
    edges = pd.read_csv(work / name / "edges.csv")
    return row | {
        "clients": len(clients),
        "test": facts["test"],
        "reason": facts.get("test_reason") or facts.get("reason"),
        "untested": int(edges["p_value"].isna().sum()),
        "pairs": len(edges),
        "found": int(edges["is_edge"].fillna(False).astype(bool).sum()),
        "largest_local_radius": largest_radius(result),
        "training": manifest["training"]["status"],
        "converged": bool(manifest["training"].get("converged")),
        "seconds_edge_tests": manifest["timings"]["seconds_edge_tests"],
    }


def largest_radius(result):
    own = (result.block(name, name) for name in result.clients)
    return max(float(np.abs(np.linalg.eigvals(block)).max()) for block in own)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if not given.data.is_dir():
        print(f"skipped: {given.data} does not exist (--data FOLDER)")
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for recording in recordings(given.data, given.names):
            row = run(*recording, Path(folder))
            rows.append(row)
            print(json.dumps(row), flush=True)
    seconds = [row["seconds"] for row in rows]
    refused = sum("error" in row or row["test"] is None for row in rows)
    print(f"{len(rows)} recordings, {refused} refused, slowest {np.max(seconds):.0f} s")
    if given.out:
        given.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
