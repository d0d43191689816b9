"""Weights of time steps, drift detection and edges over time: what they do on simulated data.

    python -m benchmarks.drift weights|detection|bands|alarms [--sets N] [--first-seed K]
    python -m benchmarks.drift example [--out FOLDER]

`weights`: size and standard errors of the latent test with weights, on stationary data.
`detection`: how often a change halfway is found, with its client and place.
`alarms`: how often whole runs on data that do not change warn of drift (six clients; slow).
`example`: data in which an edge appears halfway, for the commands of docs/drift.md.
`bands`: coverage of the bands of edges over time, and an edge that appears in the middle.
Three clients with two states each unless said otherwise; figures are mean(Monte Carlo error).
"""

import argparse
import sys
import warnings

import numpy as np

import fedgranger
from fedgranger.config import RunConfig
from fedgranger.data.simulation_options import SCENARIOS
from fedgranger.inference.drift import find_drift, in_regime
from fedgranger.inference.infer import infer
from fedgranger.inference.latent import fit_latent, pair_tests
from fedgranger.inference.shifts import tabulate
from fedgranger.inference.states import StateChunk, StateSource

DIMS = (2, 2, 2)
LATENT = {"test": "debiased", "lags": 1, "solver": "none"}
EFFECT, CAUSE = slice(2, 4), slice(0, 2)


def transitions(rng, num_steps, edge=0.0, radius=0.8, appears=0.5):
    """Three clients without links but, from a share of the record on, client 1 on client 2."""
    own = np.zeros((6, 6))
    for m in range(3):
        block = rng.normal(size=(2, 2))
        here = slice(2 * m, 2 * m + 2)
        own[here, here] = radius * block / np.abs(np.linalg.eigvals(block)).max()
    linked = own.copy()
    direction = rng.normal(size=(2, 2))
    linked[EFFECT, CAUSE] = edge * direction / np.linalg.norm(direction)
    return np.stack([linked if t >= appears * num_steps else own for t in range(num_steps)])


def states_of(rng, path, tail=np.inf, noise=0.3):
    """States along a path of transition matrices, with white measurement error."""
    draw = rng.normal if np.isinf(tail) else (lambda size: rng.standard_t(tail, size))
    T = len(path)
    h = np.zeros((T + 300, 6))
    drive = draw(size=h.shape)
    for t in range(1, len(h)):
        h[t] = path[max(t - 300, 0)] @ h[t - 1] + drive[t]
    s = h[300:] + np.sqrt(noise) * rng.normal(size=(T, 6))
    chunk = StateChunk(s, np.ones((T, 3), dtype=bool), np.arange(T) == 0)
    covs = tuple(noise * np.eye(2) for _ in DIMS)
    names = ("client1", "client2", "client3")
    return StateSource(names, DIMS, covs, lambda: iter([chunk]), T, (4, 4, 4))


def share(values):
    values = np.asarray(values, dtype=float)
    return f"{values.mean():.3f}({values.mean(axis=-1).std(ddof=1) / len(values) ** 0.5:.3f})"


def weights(sets, first):
    cases = {
        "none, T = 2000": (2000, {}),
        "ewma, half-life 100": (2000, {"weighting": "ewma", "weighting_span": 100}),
        "ewma, half-life 300": (2000, {"weighting": "ewma", "weighting_span": 300}),
        "window of 200": (2000, {"weighting": "window", "weighting_span": 200}),
        "window of 500": (2000, {"weighting": "window", "weighting_span": 500}),
        "periodic, 24 steps, T = 6000": (6000, {"weighting": "periodic", "weighting_span": 24}),
        "regime of 500": (2000, {"weighting": "regime", "regime_start": "1500"}),
    }
    print("weights | effective pairs | size, edges | size, entries | std. error / spread")
    for name, (T, options) in cases.items():
        config = RunConfig(**LATENT, **options)
        edges, entries, ratio = [], [], []
        path = transitions(np.random.default_rng(0), T)
        for seed in range(first, first + sets):
            rng = np.random.default_rng(seed)
            found = fit_latent(in_regime(states_of(rng, path), config), config)
            p = pair_tests(found).p_value
            edges.append(p[~np.eye(3, dtype=bool)] < 0.05)
            a = found.fit.transition[EFFECT, CAUSE].reshape(-1)
            v = np.diag(found.covariance.block(1, 0))
            ratio.append((a, v))
        estimates, variances = (np.stack(part) for part in zip(*ratio, strict=True))
        z = np.sqrt(variances.mean(axis=0)) / estimates.std(axis=0, ddof=1)
        entries = np.abs(estimates) > 1.96 * np.sqrt(variances)
        n = found.fit.moments.effective_pairs
        error = 1 / np.sqrt(2 * sets * z.size)
        print(f"{name} | {n:.0f} | {share(edges)} | {share(entries)} | {z.mean():.3f}({error:.3f})")
        sys.stdout.flush()


def alarms(sets, first, only=()):
    print("data without change | share of records with a warning")
    long = [(name, 2000) for name in ("base", "student4", "nearunit", "missing10", "daily")]
    for name, T in [("base", 500), ("student4", 500), *long]:
        if only and name not in only:
            continue
        period = "auto" if name == "daily" else "none"
        config = RunConfig(test="debiased", solver="none", state_dim=2, period=period)
        told = []
        for seed in range(first, first + sets):
            panel = fedgranger.simulate(num_steps=T, seed=seed, **SCENARIOS[name])[0]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = fedgranger.fit(panel, config)
            drift = found.manifest["inference"].get("drift")
            if drift is not None:
                told.append([bool(drift["changes"])])
        print(f"{name}, T = {T} | {share(told)} of {len(told)}", flush=True)


def detection(sets, first):
    print("data that change halfway | found | right client | place, quartiles in steps")
    for T in (500, 2000):
        for what in (
            "nothing",
            "nothing, t(4)",
            "edge of 0.3",
            "edge of 0.6",
            "level by 1 s.d.",
            "variance by 2",
            "dynamics, radius 0.8 to 0.5",
        ):
            hits, right, places = [], [], []
            for seed in range(first, first + sets):
                rng = np.random.default_rng(seed)
                edge = {"edge of 0.3": 0.3, "edge of 0.6": 0.6}.get(what, 0.0)
                path = transitions(rng, T, edge)
                if what.startswith("dynamics"):
                    path[T // 2 :, EFFECT, EFFECT] *= 0.5 / 0.8
                source = states_of(rng, path, 4 if "t(4)" in what else np.inf)
                s = next(source.chunks()).states
                if what.startswith("level"):
                    s[T // 2 :, 2] += s[:, 2].std()
                if what.startswith("variance"):
                    s[T // 2 :, EFFECT] *= np.sqrt(2)
                changes = find_drift(tabulate(source)).changes
                hits.append([bool(changes)])
                if changes:
                    right.append(changes[0].client == "client2")
                    places.append(changes[0].step - T // 2)
            where = np.quantile(places, (0.25, 0.5, 0.75)).round() if places else "-"
            own = f"{np.mean(right):.2f}" if right else "-"
            print(f"{what}, T = {T} | {share(hits)} | {own} | {where}", flush=True)


def bands(sets, first):
    print(
        "T, windows, edge | bands cover all along | any false window (5 %) | false edge-windows "
        "before | found after | windows after found"
    )
    for T, count, edge, tail in (
        (600, 8, 0.6, np.inf),
        (2000, 8, 0.4, np.inf),
        (2000, 8, 0.4, 4.0),
        (6000, 8, 0.3, np.inf),
        (6000, 16, 0.4, np.inf),
    ):
        config = RunConfig(**LATENT, time_windows=count, correction="none")
        cover, false, before, after, windows = [], [], [], [], []
        for seed in range(first, first + sets):
            rng = np.random.default_rng(seed)
            path = transitions(rng, T, edge)
            table = infer(states_of(rng, path, tail), config).over_time
            ends = np.array([int(text.split()[1]) for text in table["end"]])
            starts = np.array([int(text.split()[1]) for text in table["start"]])
            is_link = (table["cause"] == "client1") & (table["effect"] == "client2")
            truth = np.where(is_link & (starts >= T // 2), edge, 0.0)
            pure = ~is_link | (ends < T // 2) | (starts >= T // 2)
            inside = (table["ci_low"] <= truth + 1e-12) & (truth <= table["ci_high"])
            told = table["is_edge"].fillna(False).to_numpy(dtype=bool)
            pair = table["cause"] + table["effect"]
            by_pair = (inside | ~pure).groupby(pair).all()
            cover.append(by_pair.to_numpy())
            null = pair[~is_link]
            false.append(
                (table["is_edge"].fillna(False).astype(bool))[~is_link]
                .groupby(null)
                .any()
                .to_numpy()
            )
            before.append([told[is_link & (ends < T // 2)].any()])
            late = told[is_link & (starts >= T // 2)]
            after.append([late.any()])
            windows.append(late)
        kind = "" if np.isinf(tail) else f", t({tail:g})"
        print(
            f"{T}, {count}, {edge}{kind} | {share(cover)} | {share(false)} | {share(before)} | "
            f"{share(after)} | {share(windows)}",
            flush=True,
        )


def example(folder):
    """Write hourly data of three clients with eight sensors each; an edge appears halfway."""
    rng = np.random.default_rng(1)
    source = states_of(rng, transitions(rng, 2000, 0.5), noise=0.0)
    states = next(source.chunks()).states
    arrays = {}
    for m, name in enumerate(source.names):
        clean = states[:, 2 * m : 2 * m + 2] @ rng.normal(size=(2, 8))
        arrays[name] = clean + 0.5 * rng.normal(size=clean.shape)
    hours = np.datetime64("2026-01-01T00", "ns") + np.arange(2000) * np.timedelta64(1, "h")
    fedgranger.Panel.from_arrays(arrays, time=hours).write(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=("weights", "detection", "bands", "alarms", "example"))
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=(), help="scenarios of alarms")
    parser.add_argument("--out", default="plant", help="folder of the example")
    asked = parser.parse_args()
    if asked.study == "example":
        example(asked.out)
    elif asked.study == "alarms":
        alarms(asked.sets, asked.first_seed, asked.only)
    else:
        {"weights": weights, "detection": detection, "bands": bands}[asked.study](
            asked.sets, asked.first_seed
        )
