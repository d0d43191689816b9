"""The drift warning on recordings, and what drift options cost on a million rows.

    python -m benchmarks.drift_records recordings [SET ...] [--panels N] [--controls FOLDER]
    python -m benchmarks.drift_records cost [--steps N]

`recordings`: share of control panels (benchmarks.recordings) with a warning, what changes, and the
same for stationary twins: every client's sensors with the phases of their Fourier coefficients
drawn anew, the same for all its sensors, so that spectra and cross-spectra stay and nothing
changes. Errors are those of independent panels; panels of one set share recordings.
`cost`: seconds and peak memory of fits by formula, each in a process of its own, data from files.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import fedgranger as fg
from benchmarks.recordings import CONTROLS, STEPS, load_panels
from fedgranger.errors import FedGrangerError

PLAIN = {"test": "debiased", "solver": "none", "state_dim": 2}
COST = {
    "no option": {},
    "ewma, half-life 100 000": {"weighting": "ewma", "weighting_span": 100_000},
    "regime, found": {"weighting": "regime"},
    "8 time windows": {"time_windows": 8},
}
KINDS = ("level", "dynamics", "variability", "influence")


def twin(values, rng):
    """Sensors with the same spectra and cross-spectra whose statistics do not change."""
    centred = values - values.mean(axis=0)
    spectrum = np.fft.rfft(centred, axis=0)
    turn = np.exp(2j * np.pi * rng.random(len(spectrum)))
    turn[0] = 1
    if len(values) % 2 == 0:
        turn[-1] = 1
    return np.fft.irfft(spectrum * turn[:, None], n=len(values), axis=0) + values.mean(axis=0)


def drift_of(arrays, periods):
    """Changes that a fit finds; None where it is refused or nothing was tested."""
    options = {**PLAIN, "period": [int(period) for period in periods] or "auto"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = fg.fit(fg.Panel.from_arrays(arrays), fg.RunConfig(**options))
        except FedGrangerError:
            return None
    drift = result.manifest["inference"].get("drift")
    return None if drift is None else drift["changes"]


def share(flags):
    if not flags:
        return "-"
    rate = float(np.mean(flags))
    return f"{rate:.2f}({(rate * (1 - rate) / len(flags)) ** 0.5:.2f})"


def recordings(names, count, folder):
    if not (folder / "panels.py").exists():
        print(f"skipped: {folder / 'panels.py'} does not exist (--controls FOLDER)")
        return
    panels = load_panels(folder)
    kinds = " | ".join(KINDS)
    print(f"| panels of | rows | panels | with a warning | {kinds} |\n|{'---|' * 8}", flush=True)
    for name in names or STEPS:
        found, rows = {label: [] for label in (name, f"{name}, stationary twins")}, []
        for seed in range(count):
            arrays = panels.null_panel(name, seed, STEPS[name])
            if arrays is None:
                continue
            rng = np.random.default_rng(seed)
            still = {client: twin(values, rng) for client, values in arrays.items()}
            for made, kept in zip((arrays, still), found.values(), strict=True):
                changes = drift_of(made, panels.PERIODS.get(name, ()))
                if changes is not None:
                    kept.append([one["what"] for one in changes])
            rows.append(min(map(len, arrays.values())))
        for label, kept in found.items():
            any_kind = [share([bool(what) for what in kept])]
            each = [share([any(kind in text for text in what) for what in kept]) for kind in KINDS]
            cells = " | ".join(any_kind + each)
            print(f"| {label} | {np.median(rows):.0f} | {len(kept)} | {cells} |", flush=True)


def child(task, folder, steps):
    if task == "data":
        fg.simulate(6, steps, seed=0)[0].write(folder, format="parquet")
        return
    warnings.simplefilter("ignore")
    panel = fg.Panel.read(folder)
    start, busy = time.perf_counter(), time.process_time()
    options = {**PLAIN, "lags": 1, "period": "none", **COST[task]}
    fg.fit(panel, fg.RunConfig(**options))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    spent = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - busy}
    print(json.dumps({**spent, "peak": peak}))


def cost(steps):
    print(f"| {steps:,} rows, 6 clients with 8 sensors | seconds | CPU seconds | peak GiB |")
    print("|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for task in ("data", *COST):
            command = [sys.executable, "-m", "benchmarks.drift_records", "child"]
            words = [*command, task, folder, "--steps", str(steps)]
            done = subprocess.run(words, check=True, capture_output=True, text=True, env=os.environ)
            if task != "data":
                found = json.loads(done.stdout.strip().splitlines()[-1])
                cells = f"{found['seconds']:.0f} | {found['cpu']:.0f} | {found['peak']:.2f}"
                print(f"| {task} | {cells} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=("recordings", "cost", "child"))
    parser.add_argument("words", nargs="*", metavar="SET", help=f"of {', '.join(STEPS)}")
    parser.add_argument("--panels", type=int, default=12)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--controls", type=Path, default=CONTROLS)
    asked = parser.parse_args()
    if asked.study == "child":
        child(*asked.words, asked.steps)
    elif asked.study == "cost":
        cost(asked.steps)
    else:
        recordings(asked.words, asked.panels, asked.controls)
