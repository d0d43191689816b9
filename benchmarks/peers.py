"""Edge tests beside what a user could run instead, same data, same run.

    make bench-peers                      # 20 seeds; PCMCI takes minutes, so it gets one
    python -m benchmarks.peers --pcmci 0  # without it

- ours: clients identify their models from their own sensors, the server tests edges.
- oracle: statsmodels VAR on the *true* states of all clients in one place, Wald test per pair.
- VAR-LiNGAM on the true states in one place; its non-zero coefficients are its edges.
- PCMCI + ParCorr on all raw sensors in one place; an edge's p-value is the smallest of its
  sensor pairs times their number.

All p-values go through Benjamini-Hochberg at 5 %. Results are kept in benchmarks/results, so an
interrupted run goes on.
"""

import argparse
import dataclasses
import json
import time
import warnings
from pathlib import Path

import jax
import numpy as np

import fedgranger as fg
from fedgranger.client.identify import identify
from fedgranger.evaluation.metrics import score
from fedgranger.inference.decision import adjust
from fedgranger.inference.infer import infer
from fedgranger.runtime.uploads import state_source

jax.config.update("jax_enable_x64", True)
RESULTS = Path("benchmarks/results")
STEPS = 2000


def pairs(clients):
    return [(cause, effect) for effect in clients for cause in clients if cause != effect]


def true_states(truth, num_steps, seed):
    """The same run of the system with (nearly) noiseless sensors, so C⁺y is the state."""
    clean = {name: 1e-20 * np.eye(len(R)) for name, R in truth.measurement_covs.items()}
    panel, _ = fg.simulate(
        num_steps=num_steps, seed=seed, system=dataclasses.replace(truth, measurement_covs=clean)
    )
    return [c.values @ np.linalg.pinv(truth.observation_matrices[c.name]).T for c in panel]


def ours(panel, truth, _seed):
    models = {
        c.name: identify(c, panel.segment_starts, state_dim=truth.state_dims[c.name]) for c in panel
    }
    config = fg.RunConfig(test="debiased", lags=1)
    found = infer(state_source(panel, models), config).edges
    keyed = dict(zip(zip(found.cause, found.effect, strict=True), found.p_value, strict=True))
    return np.array([keyed[pair] for pair in pairs(truth.clients)])


def oracle(_panel, truth, seed):
    from statsmodels.tsa.api import VAR

    parts = true_states(truth, STEPS, seed)
    owner = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
    columns = {name: np.flatnonzero(owner == m).tolist() for m, name in enumerate(truth.clients)}
    fit = VAR(np.concatenate(parts, axis=1)).fit(1)
    return np.array(
        [
            fit.test_causality(columns[effect], columns[cause], kind="wald").pvalue
            for cause, effect in pairs(truth.clients)
        ]
    )


def var_lingam(_panel, truth, seed):
    import lingam

    parts = true_states(truth, STEPS, seed)
    owner = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
    model = lingam.VARLiNGAM(lags=1, prune=True, random_state=0)
    model.fit(np.concatenate(parts, axis=1))
    found = np.abs(np.array(model.adjacency_matrices_)).max(axis=0) > 0
    index = {name: m for m, name in enumerate(truth.clients)}
    return np.array(
        [
            not found[np.ix_(owner == index[effect], owner == index[cause])].any()
            for cause, effect in pairs(truth.clients)
        ],
        dtype=float,
    )


def pcmci(panel, truth, _seed):
    from tigramite import data_processing
    from tigramite.independence_tests.parcorr import ParCorr
    from tigramite.pcmci import PCMCI

    owner = np.repeat(np.arange(len(panel)), [c.num_sensors for c in panel])
    frame = data_processing.DataFrame(np.concatenate([c.values for c in panel], axis=1))
    search = PCMCI(dataframe=frame, cond_ind_test=ParCorr(), verbosity=0)
    p = search.run_pcmci(tau_min=1, tau_max=1, pc_alpha=0.05)["p_matrix"][:, :, 1]
    index = {name: m for m, name in enumerate(truth.clients)}
    out = []
    for cause, effect in pairs(truth.clients):
        block = p[np.ix_(owner == index[cause], owner == index[effect])]
        out.append(min(1.0, block.min() * block.size))
    return np.array(out)


METHODS = {"ours": ours, "oracle": oracle, "VAR-LiNGAM": var_lingam, "PCMCI": pcmci}


def measure(method, seed, num_clients=6, num_edges=9):
    panel, truth = fg.simulate(num_clients, STEPS, edges=num_edges, seed=seed)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = METHODS[method](panel, truth, seed)
    seconds = time.perf_counter() - start
    is_true = np.array([pair in set(truth.edges) for pair in pairs(truth.clients)])
    found = adjust(p, "bh") <= 0.05 if method != "VAR-LiNGAM" else p < 0.5
    size = float((p[~is_true] <= 0.05).mean())
    return {"f1": score(is_true, -p, found)["f1"], "size": size, "seconds": seconds}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--pcmci", type=int, default=1, help="seeds for PCMCI")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    store = RESULTS / "peers.json"
    kept = json.loads(store.read_text()) if store.exists() else {}

    def run(method, seed, *system):
        key = f"{method} {seed} {system}"
        if key not in kept:
            if seed == 0 and method != "PCMCI":
                measure(method, seed, *system)  # compile and import outside the timed run
            kept[key] = measure(method, seed, *system)
            store.write_text(json.dumps(kept, indent=1) + "\n")
        return kept[key]

    print(f"{'method':<12} {'seeds':>5} {'F1':>7} {'(se)':>8} {'size':>7} {'seconds':>9}")
    for method in METHODS:
        seeds = options.pcmci if method == "PCMCI" else options.seeds
        rows = [run(method, seed) for seed in range(seeds)]
        if not rows:
            continue
        f1, size, seconds = (np.array([row[k] for row in rows]) for k in ("f1", "size", "seconds"))
        error = f1.std(ddof=1) / np.sqrt(len(f1)) if len(f1) > 1 else float("nan")
        print(
            f"{method:<12} {seeds:>5} {f1.mean():>7.3f} {error:>8.4f} {size.mean():>7.3f} "
            f"{np.median(seconds):>9.2f}",
            flush=True,
        )
    twenty = {method: run(method, 0, 20, 38)["seconds"] for method in ("ours", "oracle")}
    print(
        f"M = 20: ours {twenty['ours']:.2f} s, statsmodels all pairs {twenty['oracle']:.2f} s, "
        f"ratio {twenty['oracle'] / twenty['ours']:.1f}"
    )


if __name__ == "__main__":
    main()
