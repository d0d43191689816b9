"""False edges and added edges on control panels from real recordings.

    python -m benchmarks.recordings [SET ...] [--states 1|2|3|auto] [--panels N] [--first-seed K]
        [--test NAME] [--option name=value] [--steps T] [--out FILE.json] [--controls FOLDER]

Sets: null panels smd, batadal (its day and week given as `period`), batadal_found (the clients have
to find them), hai, hai100, tep; partly_linked (all clients but one belong together); added edges
smd:0.5, smd:1.0, batadal:0.5, ...; ctown (nine controllers, documented links). The panels come from
panels.py in the folder of controls, `../shared/controls` beside the repository; without it there
is nothing to do. With --out the summary is written as JSON and every finished panel to FILE.jsonl:
the same command continues where it was interrupted.
"""

import argparse
import functools
import hashlib
import importlib.util
import json
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

import fedgranger
from fedgranger.evaluation.metrics import score
from fedgranger.inference.decision import adjust
from fedgranger_research.recordings.journal import Journal, run_controls
from fedgranger_research.recordings.summary import summarise_controls
from fedgranger_research.recordings.trial import (
    ABSENT,
    ADDED,
    Control,
    Source,
    fitting_config,
    study_config,
)

STEPS = {"smd": 2000, "batadal": 2900, "hai": 1100, "hai100": 1000, "tep": 480}
LINKED_STEPS = 2000
FOUND = "_found"
"""Ending of sets whose periods are known and not given to the fit."""
SETS = (
    *STEPS,
    f"batadal{FOUND}",
    "partly_linked",
    *(f"{name}:{size}" for name in ("smd", "batadal", "hai") for size in (0.5, 1.0)),
    "ctown",
)
FDR = 0.05
CODE = (
    *(f"fedgranger/{part}" for part in ("client", "data", "inference", "linalg", "runtime")),
    *("fedgranger/config.py", "fedgranger_research/recordings"),
)
CONTROLS = Path(__file__).resolve().parents[2] / "shared" / "controls"


def load_panels(folder):
    spec = importlib.util.spec_from_file_location("control_panels", folder / "panels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_control(panels, steps, key):
    """Build the panel `SET/SEED`; None where a client would have no sensor.

    Null panels have as many steps as `steps` says of their recording.
    """
    name, _, seed = key.rpartition("/")
    seed = int(seed)
    if name == "ctown":
        return ctown(panels, key)
    if name == "partly_linked":
        found = panels.partly_linked(seed, LINKED_STEPS)
        if found is None:
            return None
        arrays, odd = found
        truths = {pair: ABSENT for pair in pairs_of(arrays) if odd in pair}
        return Control(key, name, arrays, truths)
    if ":" not in name:
        recording = name.removesuffix(FOUND)
        arrays = panels.null_panel(recording, seed, steps[recording])
        if arrays is None:
            return None
        return Control(key, name, arrays, dict.fromkeys(pairs_of(arrays), ABSENT))
    name, _, size = name.partition(":")
    found = panels.injected_panel(name, seed, STEPS[name], float(size))
    if found is None:
        return None
    arrays, cause, effect = found
    truths = {**dict.fromkeys(pairs_of(arrays), ABSENT), (cause, effect): ADDED}
    return Control(key, name, arrays, truths, size=float(size))


def make_noisy(panels, steps, added_noise, key):
    """The panel `SET/SEED` whose clients add noise to their states."""
    control = make_control(panels, steps, key)
    return control and replace(control, added_noise=added_noise)


def set_of(key):
    """The recordings that a panel is made of, as panels.py calls them."""
    name = key.rpartition("/")[0].removesuffix(FOUND).partition(":")[0]
    return {"partly_linked": "smd", "ctown": "batadal"}.get(name, name)


def units_of(panels, key, names):
    """Machine, run or stretch of every client of a null or partly linked panel, by name.

    The same recordings serve many panels, so errors are counted over them; the draws are those of
    panels.py.
    """
    name, rng = set_of(key), np.random.default_rng(int(key.rpartition("/")[2]))
    if key.startswith("ctown"):
        return {}
    if key.startswith("partly_linked"):
        home, away = rng.choice(panels.recording("smd")["machine"].unique(), 2, replace=False)
        odd = str(rng.choice(names))
        units = [away if client == odd else home for client in names]
    elif name in ("smd", "tep"):
        column = {"smd": "machine", "tep": "run"}[name]
        units = rng.choice(panels.recording(name)[column].unique(), len(names), replace=False)
    else:
        units = rng.permutation(len(names))
    return {client: str(unit) for client, unit in zip(names, units, strict=True)}


def pairs_of(arrays):
    return [(cause, effect) for effect in arrays for cause in arrays if cause != effect]


def ctown(panels, key):
    """BATADAL's whole year of normal operation, its nine controllers as clients."""
    folder = panels.DATA / "batadal"
    partition = json.loads((folder / "partition_plc.json").read_text())["clients"]
    table = panels.recording("batadal")
    arrays = {name: panels.live(table[columns].to_numpy()) for name, columns in partition.items()}
    links = pd.read_csv(folder / "links_plc.csv")
    truths = {
        (cause, effect): ADDED
        for cause, effect in zip(links["cause_client"], links["effect_client"], strict=True)
        if cause != effect
    }
    sources = {name: Source("batadal", 0, len(table)) for name in arrays}
    return Control(key, "ctown", arrays, truths, sources)


def config_of(periods, options, states, control):
    dim = states if states == "auto" else int(states)
    given = {"period": [int(period) for period in periods.get(control.kind, ())] or "auto"}
    return fitting_config(study_config({**given, **options, "state_dim": dim}), control)


def score_ctown(record):
    """Documented links found at 5 % false discoveries, and the ranking; others are not proven."""
    out = {"kind": "ctown", "reason": record["reason"]}
    pairs = record["pairs"]
    for test, column, order in (("fit", "p_value", "place"), ("textbook", *2 * ("p_textbook",))):
        p, place = (
            np.array([np.nan if pair[name] is None else pair[name] for pair in pairs])
            for name in (column, order)
        )
        if np.isnan(p).all():
            continue
        is_link = np.array([pair["truth"] == ADDED for pair in pairs])
        found = np.nan_to_num(adjust(p, "bh"), nan=1.0) <= FDR
        out[test] = {
            "documented_links": int(is_link.sum()),
            "links_found": int((found & is_link).sum()),
            "pairs_found": int(found.sum()),
            "pairs": len(pairs),
            "auc": score(is_link, -np.nan_to_num(place, nan=np.inf))["auc_roc"],
        }
    return out


def code_hash():
    """Outcomes of two versions of the tests must not be mixed by resuming."""
    digest = hashlib.sha256()
    for name in CODE:
        path = Path(fedgranger.__file__).parents[1] / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def read_options(words):
    options = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            options[name] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            options[name] = text
    return options


def print_table(rows):
    print(
        f"{'panels of':<15}{'size':>5}{'test':>10}{'panels':>8}{'refused':>9}{'pairs':>7}", end=""
    )
    print(f"{'p < 0.05':>16}{'p < 0.01':>16}")
    for row in rows:
        shares = ""
        for level in (0.05, 0.01):
            share, error = row[f"share_{level}"], row[f"error_{level}"]
            shares += f"{'-' if share is None else f'{share:.3f}':>9}"
            shares += f" ({'-' if error is None else f'{error:.3f}':^5})"
        print(
            f"{row['kind']:<15}{row['size'] or '-':>5}{row['test']:>10}{row['panels']:>8}"
            f"{row['refused']:>9}{row['pairs']:>7}{shares}"
        )


def print_ctown(found):
    for test in ("fit", "textbook"):
        if test not in found:
            print(f"ctown          {test:>10}: refused: {found['reason']}")
            continue
        row = found[test]
        print(
            f"ctown          {test:>10}: {row['links_found']} of {row['documented_links']} "
            f"documented links, {row['pairs_found']} of {row['pairs']} pairs found, "
            f"AUC {row['auc']:.3f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; all of them")
    parser.add_argument("--states", default="2", choices=("1", "2", "3", "auto"))
    parser.add_argument("--panels", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="of null panels; as listed when left out")
    parser.add_argument("--test", help="of fit; its default when left out")
    parser.add_argument(
        "--added-noise",
        type=float,
        default=0.0,
        help="s.d. of the noise that clients add to every state they send, in the state's own",
    )
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--controls", type=Path, default=CONTROLS)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    for name in given.sets:
        if name not in SETS:
            parser.error(f"no set '{name}'; choose of {', '.join(SETS)}")
    if not (given.controls / "panels.py").exists():
        print(f"skipped: {given.controls / 'panels.py'} does not exist (--controls FOLDER)")
        return
    panels = load_panels(given.controls)
    options = read_options(given.option) | ({"test": given.test} if given.test else {})
    study_config(options)  # a mistake is told before anything runs
    question = {"states": given.states, "options": options, "code": code_hash()}
    if given.added_noise:
        question["added_noise"] = given.added_noise
    if given.steps:
        question["steps"] = given.steps
    steps = dict.fromkeys(STEPS, given.steps) if given.steps else STEPS
    journal = Journal(given.out and given.out.with_suffix(".jsonl"), question)
    seeds = range(given.first_seed, given.first_seed + given.panels)
    records = []
    for name in given.sets or SETS:
        keys = [f"{name}/{seed}" for seed in (seeds if name != "ctown" else [0])]
        report = functools.partial(show_progress, name)
        records += run_controls(
            journal,
            keys,
            functools.partial(make_noisy, panels, steps, given.added_noise),
            functools.partial(config_of, panels.PERIODS, options, given.states),
            workers=given.workers,
            report=report,
        )
    for record in records:
        if "pairs" in record:
            names = list(panels.partition(set_of(record["key"])))
            record["units"] = units_of(panels, record["key"], names)
    rows = summarise_controls([r for r in records if r.get("kind") != "ctown"])
    print_table(rows)
    links = [score_ctown(record) for record in records if record.get("kind") == "ctown"]
    for found in links:
        print_ctown(found)
    if given.out:
        values = {
            "question": question,
            "seeds": [seeds.start, seeds.stop],
            "skipped": [record["key"] for record in records if "skipped" in record],
            "refusals": refusals(records),
            "seconds_per_fit": seconds_per_fit(records),
            "controls": rows,
            "ctown": links,
        }
        given.out.write_text(json.dumps(values, indent=1) + "\n")


def refusals(records):
    """Reasons by set, the most frequent first."""
    reasons = pd.DataFrame(
        [(r["kind"], r["reason"]) for r in records if r.get("reason")], columns=["set", "reason"]
    )
    return [[*key, int(count)] for key, count in reasons.value_counts().items()]


def seconds_per_fit(records):
    times = pd.Series(
        [r["seconds"] for r in records if "seconds" in r],
        [r["kind"] for r in records if "seconds" in r],
    )
    return {name: round(float(part.median()), 3) for name, part in times.groupby(level=0)}


def show_progress(name, _, done, total):
    if sys.stderr.isatty():
        print(f"\r{name:<15} {done} of {total}", end="\n" if done == total else "", file=sys.stderr)


if __name__ == "__main__":
    main()
