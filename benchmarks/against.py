"""Training, edge tests and propagation beside another commit of this repository, in one run.

    python -m benchmarks.against COMMIT [--repeats 3] [--out FILE.json]

Both versions run `fedgranger fit` on the same files in turn; seconds are those of the manifest, the
smallest of the repeats, with compilation.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import fedgranger as fg

ROOT = Path(__file__).resolve().parents[1]
COMMON = ["--state-dim", "2", "--seed", "0"]
JOBS = {
    "training": (
        {"num_clients": 6, "num_steps": 4000},
        ["--solver", "sgd", "--passes", "100", "--tolerance", "0", "--test", "none"],
    ),
    "edge_tests": (
        {"num_clients": 6, "num_steps": 60_000},
        ["--solver", "newton", "--passes", "1", "--test", "debiased", "--lags", "1"],
    ),
    "uncertainty": (
        {"num_clients": 3, "num_steps": 150},
        ["--solver", "sgd", "--passes", "1", "--test", "none", "--uncertainty", "joint"],
    ),
}


def seconds(source, job, data, out):
    """Seconds of a job with the library of one version."""
    words = [sys.executable, "-m", "fedgranger", "fit", data, "--out", out, "--overwrite"]
    done = subprocess.run(
        [*words, *COMMON, *JOBS[job][1]],
        env=os.environ | {"PYTHONPATH": str(source), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 3):
        raise SystemExit(f"{source}, {job}: {done.stderr.strip()}")
    manifest = json.loads((out / "manifest.json").read_text())
    return manifest["timings"][f"seconds_{job}"]


def compare(other, work, repeats):
    """One row per job: seconds of both versions and their ratio."""
    rows = []
    for job, (options, _) in JOBS.items():
        data = work / job
        fg.simulate(**options, seed=0)[0].write(data)
        found = {"now": [], "other": []}
        for _ in range(repeats):
            for version, source in (("other", other), ("now", ROOT / "src")):
                found[version].append(seconds(source, job, data, work / f"{job}-{version}"))
        now, before = min(found["now"]), min(found["other"])
        row = {"job": job, "now": now, "other": before, "ratio": round(now / before, 3)}
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work, tree = Path(folder), Path(folder) / "other"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", tree, given.commit], check=True)
        try:
            rows = compare(tree / "src", work, given.repeats)
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)
    if given.out:
        given.out.write_text(json.dumps({"beside": given.commit, "jobs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
