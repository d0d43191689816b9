"""What a test of single entries can reach in the paper's setting, beside what ours reaches.

    python -m benchmarks.entry_bound [--data-sets 20]

Rows: ours on the states that clients send; an ideal test with the states themselves and the
smallest possible standard errors; the same when it is told which clients are causes. "best F1" is
F1 at the threshold that is best given the truth, which nobody has.
"""

import argparse
import warnings

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402

from fedgranger.evaluation.metrics import score  # noqa: E402
from fedgranger_research.baselines.ideal_entries import best_f1, ceiling  # noqa: E402
from fedgranger_research.baselines.method_list import find_methods  # noqa: E402
from fedgranger_research.baselines.method_trials import run_method  # noqa: E402
from fedgranger_research.baselines.problems import Scenario, draw_problem  # noqa: E402

OURS = "debiased"
COLUMNS = ("F1", "area", "best F1")


def rows_of(seed):
    problem = draw_problem(Scenario(), seed)
    across = problem.owner[:, None] != problem.owner
    is_true = problem.is_true[across]
    found = run_method(OURS, find_methods([OURS])[OURS], problem)
    strength, decided = found.score[across], found.is_edge[across]
    scores = score(is_true, strength, decided)
    ideal, told = (
        ceiling(problem, np.random.default_rng(seed), parents_known=known)
        for known in (False, True)
    )
    return {
        OURS: (scores["f1"], scores["auc_roc"], best_f1(is_true, strength)),
        "ideal test, states without noise": ideal[:3],
        "the same, told the causes": told[:3],
    }, (ideal.below_two, int(is_true.sum()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-sets", type=int, default=20)
    given = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows, small = zip(*(rows_of(seed) for seed in range(given.data_sets)), strict=True)
    print("| entries across clients | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        cells = [
            f"{m:.3f} ± {s:.3f}" for m, s in zip(values.mean(0), values.std(0, ddof=1), strict=True)
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")
    below, true = np.mean(small, axis=0)
    print(f"{below:.1f} of {true:.0f} true entries are below two of the ideal standard errors.")


if __name__ == "__main__":
    main()
