"""Every compared method on C-Town: nine controllers, ten documented links.

    python -m benchmarks.ctown_methods [METHOD ...]

Reads the recordings beside the project (as `benchmarks.recordings`), whole year, the states that
clients would send. Links that are not documented may still exist, so pairs found beyond the ten are
not all false; the area under the curve ranks documented against undocumented pairs.
"""

import json
import sys
import warnings
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402

from benchmarks.recordings import CONTROLS, ctown, load_panels, pairs_of  # noqa: E402
from fedgranger.evaluation.metrics import score  # noqa: E402
from fedgranger_research.baselines.method_list import find_methods  # noqa: E402
from fedgranger_research.baselines.method_trials import run_method  # noqa: E402
from fedgranger_research.baselines.recorded_problems import problem_of_control  # noqa: E402

METHODS = (
    "fedgc", "debiased", "auto", "fedpc-horizontal", "feddag-horizontal",
    "notears-admm-horizontal", "fdbnl-horizontal", "dynotears", "var", "granger-pairs",
)  # fmt: skip


def main():
    control = ctown(load_panels(CONTROLS), "ctown")
    links = set(control.truths)
    problem = problem_of_control(control.arrays, set(pairs_of(control.arrays)) - links, links)
    names = problem.columns.names
    is_link = np.array([[(cause, effect) in links for cause in names] for effect in names])
    across = ~np.eye(len(names), dtype=bool)
    rows = {}
    for name, method in find_methods(sys.argv[1:] or METHODS).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run_method(name, method, problem)
        edges = found.is_client_edge & across
        rows[name] = {
            "links_found": f"{int((edges & is_link).sum())} of {len(links)}",
            "pairs_found": f"{int(edges.sum())} of {int(across.sum())}",
            "auc": round(score(is_link[across], found.client_score[across])["auc_roc"], 3),
            "seconds": round(found.seconds, 1),
            "status": found.status,
        }
        print(f"{name:<26} {rows[name]}", flush=True)
    if not sys.argv[1:]:
        Path("benchmarks/results/ctown_methods.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
