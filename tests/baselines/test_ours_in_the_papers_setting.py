"""Ours over 20 data sets of the paper's setting: what docs/benchmarks.md claims."""

import numpy as np
import pytest

from fedgranger_research.baselines.method_trials import run_method
from fedgranger_research.baselines.ours import METHODS
from fedgranger_research.baselines.problems import Scenario, draw_problem
from fedgranger_research.baselines.scoring import score_method

NUM_SEEDS = 20


@pytest.fixture(scope="module")
def means():
    found = {}
    for seed in range(NUM_SEEDS):
        problem = draw_problem(Scenario(), seed)
        for name in ("debiased", "debiased-pairs"):
            answer = run_method(name, METHODS[name], problem)
            for row in score_method(name, answer, problem):
                for measure in ("f1", "auc_roc", "shd"):
                    found.setdefault((name, row["level"], measure), []).append(row[measure])
    return {key: float(np.mean(values)) for key, values in found.items()}


@pytest.mark.slow  # `means` fits 20 data sets by two methods
@pytest.mark.parametrize(
    ("name", "level"), [("debiased", "clients"), ("debiased-pairs", "entries")]
)
def test_edges_are_found(means, name, level):
    assert means[name, level, "f1"] >= 0.97
    assert means[name, level, "auc_roc"] >= 0.99
    assert means[name, level, "shd"] <= 4


@pytest.mark.slow  # `means` fits 20 data sets by two methods
def test_entries_one_by_one(means):
    """Small entries of true blocks are missed: 0.947 and 0.980 were measured."""
    assert means["debiased", "entries", "f1"] >= 0.93
    assert means["debiased", "entries", "auc_roc"] >= 0.97
    assert means["debiased", "entries", "shd"] <= 4
