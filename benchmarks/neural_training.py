"""Neural training measured: time of a fit, links found on linear and nonlinear data.

python -m benchmarks.neural_training            # everything, the tables of docs/neural-training.md
python -m benchmarks.neural_training time       # or one part: time, linear, paper, nonlinear
"""

import sys
import time
import warnings

import numpy as np
from sklearn.metrics import f1_score, roc_auc_score

import fedgranger as fg

THRESHOLD = 0.2
"""Norm of a block above which it counts as a link; chosen before these data sets were drawn."""


def fitted(panel, **options):
    """A run without edge tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fg.fit(panel, fg.RunConfig(test="none", **options))


def scores(truth, result, matrix):
    """F1 at the threshold and area under the curve of the norms of blocks."""
    names = result.clients
    pairs = [(m, n) for m in range(len(names)) for n in range(len(names)) if m != n]
    links = np.array([(names[n], names[m]) in set(truth.edges) for m, n in pairs])
    found = np.array([matrix[m, n] for m, n in pairs])
    return f1_score(links, found > THRESHOLD), roc_auc_score(links, found)


def norms(result):
    """Norms of the blocks of Â."""
    starts = np.concatenate([[0], np.cumsum(result.state_dims)[:-1]])
    return np.sqrt(np.add.reduceat(np.add.reduceat(result.granger**2, starts, 0), starts, 1))


def line(label, values):
    mean, error = np.mean(values, axis=0), np.std(values, axis=0, ddof=1) / np.sqrt(len(values))
    cells = " | ".join(f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True))
    print(f"| {label} | {len(values)} | {cells} |", flush=True)


def measure_time():
    """M = 3, T = 3000, defaults; the second fit compiles nothing."""
    panel, _ = fg.simulate(3, 3000, seed=0)
    for what in ("with compiling", "without"):
        wall, cpu = time.perf_counter(), time.process_time()
        result = fitted(panel, solver="neural")
        print(
            f"M = 3, T = 3000, {result.manifest['training']['rounds'] + 1} rounds, {what}: "
            f"{time.perf_counter() - wall:.1f} s, {time.process_time() - cpu:.1f} CPU seconds",
            flush=True,
        )


def measure_linear():
    print("| linear data | data sets | F1 | area under the curve |\n|---|---|---|---|")
    for M, T, seeds in ((3, 3000, range(10, 16)), (6, 2000, range(10, 14))):
        neural, exact = [], []
        for seed in seeds:
            panel, truth = fg.simulate(M, T, seed=seed)
            result = fitted(panel, solver="neural")
            neural.append(scores(truth, result, norms(result)))
            linear = fitted(panel, solver="newton")
            exact.append(scores(truth, linear, norms(linear)))
        line(f"neural, {M} clients, T = {T}", neural)
        line(f"FedGC's own Â (newton), {M} clients, T = {T}", exact)


def measure_paper():
    print("| the paper's loss alone, 6 clients, T = 2000 | data sets | F1 | area under the curve |")
    print("|---|---|---|---|")
    found = []
    for seed in range(10, 13):
        panel, truth = fg.simulate(6, 2000, seed=seed)
        result = fitted(panel, solver="neural", next_state_weight=0.0)
        found.append(scores(truth, result, norms(result)))
    line("ω = 0", found)


def measure_nonlinear():
    print(
        "| nonlinear data, 4 clients, T = 3000 | data sets | mean Jacobian | size of the Jacobian |"
    )
    print("|---|---|---|---|")
    for dynamics in ("nonlinear-var", "lorenz96", "lotka-volterra", "quadratic"):
        found = []
        for seed in range(10, 13):
            clients = 6 if dynamics == "lorenz96" else 4  # on a ring of four all pairs are links
            panel, truth = fg.simulate(clients, 3000, dynamics=dynamics, seed=seed)
            result = fitted(panel, solver="neural")
            views = (
                result.jacobian.strengths(result.state_dims),
                result.jacobian.strengths(result.state_dims, is_mean=False),
            )
            found.append([scores(truth, result, view)[1] for view in views])
        line(f"{dynamics}: area under the curve", found)


PARTS = {
    "time": measure_time,
    "linear": measure_linear,
    "paper": measure_paper,
    "nonlinear": measure_nonlinear,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
