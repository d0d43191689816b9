"""How soon every command shows a first sign, beside a bare `import pandas`.

    python -m benchmarks.first_output [--repeat 3]

For each command, on a small simulated folder and run: seconds from the start of the process until
the first byte on stdout or stderr (pipes), the median of some repetitions, and the difference to
`python -c "import pandas"` measured in turn with them. The aim is a difference below 0.5 s; the
exit status is 1 where it is missed. Shared machines are noisy: the difference is what counts.
"""

import argparse
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AIM_SECONDS = 0.5
FEDGRANGER = [sys.executable, "-m", "fedgranger"]
LINES = (
    "--help",
    "simulate {0}/new --clients 3 --steps 300 --overwrite",
    "check {0}/data",
    "fit {0}/data --out {0}/again --overwrite --copies 20",
    "edges {0}/run",
    "edges {0}/run --json",
    "diagnose {0}/run",
    "audit {0}/run",
    "evaluate {0}/run --truth {0}/data/truth.json",
    "report {0}/run",
    "privacy {0}/run",
    "privacy plan --clients 2 --states 1 --epsilons 4",
    "rca {0}/run --data {0}/data",
    "watch {0}/run",
    "compare {0}/run {0}/data/truth.json",
    "export {0}/run --format csv",
    "demo --out {0}/demo",
    "federation init {0}/kits-{1} --local --server localhost --clients a,b",
    "federation certificates {0}/kits/authority",
    "federation health {0}/kits/client-a",
    "federation check {0}/kits/admin --wait-seconds 1",
    "datasets list",
    "study calibration --out {0}/study --data-sets 2 --jobs 1",
    "reproduce figure --list",
    "benchmark --list",
    "study --help",
    "benchmark --help",
    "reproduce --help",
)


def first_byte(words):
    """Seconds until the process writes anything; it is then ended."""
    started = time.perf_counter()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, start_new_session=True, **pipes) as process:
        with selectors.DefaultSelector() as both:
            for pipe in (process.stdout, process.stderr):
                both.register(pipe, selectors.EVENT_READ)
            both.select()
        seconds = time.perf_counter() - started
        process.kill()
    return seconds


def import_pandas():
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import pandas"], check=True)
    return time.perf_counter() - started


def prepare(folder):
    for line in (
        f"simulate {folder}/data --clients 3 --steps 500 --seed 1",
        f"fit {folder}/data --out {folder}/run --copies 20",
        f"federation init {folder}/kits --local --server localhost --clients a,b",
    ):
        subprocess.run([*FEDGRANGER, *line.split()], check=True, capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        print(f"{'command':<24} {'first byte':>10} {'pandas':>8} {'difference':>11}")
        for line in LINES:
            pairs = [
                (first_byte([*FEDGRANGER, *line.format(folder, k).split()]), import_pandas())
                for k in range(repeat)
            ]
            ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
            is_late = ours - theirs > AIM_SECONDS
            missed += is_late
            shown = " ".join(word for word in line.split()[:2] if not word.startswith("{"))
            print(
                f"{shown:<24} {ours:>8.2f} s {theirs:>6.2f} s {ours - theirs:>+9.2f} s"
                + ("  late" if is_late else "")
            )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
