"""Training, edge tests and propagation beside another commit of this repository, in one run.

    python -m benchmarks.against COMMIT [--repeats 3] [--out FILE.json]

Both versions run `fedgranger fit` on the same files in turn; seconds are those of the manifest, the
smallest of the repeats, with compilation. Edge tests are timed twice: as they are, and, to compare
the same work, without what they also do since: look for drift, say what the edges do, and find the
regression that forecasts come from.
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
WITHOUT_NEW = """
import sys
import runpy
from fedgranger.inference import drift, infer
infer.find_drift = lambda _: drift.Drift((), 0)
infer.find_predictor = lambda *_: None
infer.add_responses = lambda found, *_: found
runpy.run_module("fedgranger", run_name="__main__")  # of either version
"""


def seconds(source, job, data, out, same_work=False):
    """Seconds of a job with the library of one version."""
    run = ["-c", WITHOUT_NEW] if same_work else ["-m", "fedgranger"]
    words = [sys.executable, *run, "fit", data, "--out", out, "--overwrite"]
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
        versions = {"other": (other, False), "now": (ROOT / "src", False)}
        if job == "edge_tests":
            versions["same work"] = (ROOT / "src", True)
        found = {version: [] for version in versions}
        for _ in range(repeats):
            for version, (source, same_work) in versions.items():
                out = work / f"{job}-{version}"
                found[version].append(seconds(source, job, data, out, same_work))
        before = min(found.pop("other"))
        for version, times in found.items():
            name, now = (job if version == "now" else f"{job}, {version}"), min(times)
            row = {"job": name, "now": now, "other": before, "ratio": round(now / before, 3)}
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
