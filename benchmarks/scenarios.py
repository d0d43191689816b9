"""Size, power and delays through `test = auto`, for everything that recordings bring with them.

    python -m benchmarks.scenarios [--data-sets 40] [--first-seed 0] [--folder FOLDER]
        [--scenario NAME ...] [--summary-only] [--note TEXT] [--out FILE]

The same study as `fedgranger study calibration --test auto`, in the same folder format: data sets
are kept, so the command continues where it was interrupted. What is finished of each scenario (two
data sets at least) is written to benchmarks/results/scenarios.json with its Monte Carlo errors.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from fedgranger.data.simulation_options import DECLARED_NOISE
from fedgranger_research.studies.calibration_study import load_records, run_study
from fedgranger_research.studies.calibration_trials import Setting, summarise

TARGET = Path("benchmarks/results/scenarios.json")
NAMES = (
    *("outage10", "outage50", "outagehub10", "outagehub50", "gaps20", "deadtime6", "onesensor"),
    *("unit1e5", "counter", "loop1", "loop3", "declaredhalf", "declaredtwice", "daily"),
)
STEPS = 2000
BAND = (0.03, 0.08)


def finished(folder, setting, first_seed, most):
    """How many data sets from the first seed on are there without a gap."""
    count = 0
    while count < most and (folder / setting.name / f"{first_seed + count:05d}.npz").exists():
        count += 1
    return count


def row(folder, setting, first_seed, most):
    count = finished(folder, setting, first_seed, most)
    if count < 2:
        return None
    found = asdict(summarise(load_records(folder, setting, count, first_seed)))
    size, error = found["edge_size"], found["edge_size_se"]
    rounded = {name: round(value, 4) for name, value in found.items() if value == value}
    return rounded | {"is_inside": BAND[0] - 2 * error <= size <= BAND[1] + 2 * error}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-sets", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("study-scenarios"))
    parser.add_argument("--scenario", nargs="*", default=NAMES)
    parser.add_argument("--summary-only", action="store_true")
    parser.add_argument("--note", default="", help="kept in the record")
    parser.add_argument("--out", type=Path, default=TARGET)
    given = parser.parse_args()
    settings = [
        Setting(name, STEPS, name in DECLARED_NOISE, {"test": "auto"}) for name in given.scenario
    ]
    if not given.summary_only:
        run_study(given.folder, settings, given.data_sets, jobs=1, first_seed=given.first_seed)
    rows = {
        setting.scenario: row(given.folder, setting, given.first_seed, given.data_sets)
        for setting in settings
    }
    for name, values in rows.items():
        print(name, "-" if values is None else values)
    record = {
        "note": given.note,
        "test": "auto",
        "steps": STEPS,
        "first_seed": given.first_seed,
        "band": BAND,
        "scenarios": {name: values for name, values in rows.items() if values is not None},
    }
    given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
