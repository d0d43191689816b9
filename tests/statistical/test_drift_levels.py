"""Weights, drift detection and edges over time hold their levels on simulated states."""

import numpy as np
import pytest

from fedgranger.inference.drift import find_drift
from fedgranger.inference.infer import infer
from fedgranger.inference.latent import fit_latent, pair_tests
from fedgranger.inference.shifts import tabulate
from tests.configs import formula_config
from tests.state_sources import source_of

pytestmark = pytest.mark.slow  # 100 or 150 data sets each
DIMS, ACROSS = (2, 1, 1), ~np.eye(3, dtype=bool)
COVS = (0.3 * np.eye(2), 0.3 * np.eye(1), 0.3 * np.eye(1))


def states(seed, num_steps, *, radius=0.7, edge=0.0, tail=np.inf):
    """No links but, in the second half, both states of c0 on c1."""
    rng = np.random.default_rng(seed)
    before = np.diag([radius, 0.5, radius, 0.6])
    after = before.copy()
    after[2, :2] = edge
    size = (num_steps + 300, 4)
    drive = rng.normal(size=size) if np.isinf(tail) else rng.standard_t(tail, size)
    h = np.zeros(size)
    for t in range(1, len(h)):
        h[t] = (after if t - 300 >= num_steps // 2 else before) @ h[t - 1] + drive[t]
    s = h[300:] + np.sqrt(0.3) * rng.normal(size=(num_steps, 4))
    return source_of(s, DIMS, COVS, own_lags=(4, 4, 4))


@pytest.mark.parametrize(
    ("num_steps", "weighting", "span"),
    [(1200, "ewma", 120), (1200, "window", 300), (4800, "periodic", 24)],
)
def test_size_and_standard_errors_with_weights(num_steps, weighting, span):
    """150 data sets: size of 900 tests within 4 errors of 5 %, spreads within 4 of theirs."""
    config = formula_config(weighting=weighting, weighting_span=span)
    rejected, estimates, variances = [], [], []
    for seed in range(150):
        found = fit_latent(states(seed, num_steps), config)
        rejected.append((pair_tests(found).p_value[ACROSS] < 0.05).mean())
        estimates.append(found.fit.transition[2, :2])
        variances.append(np.diag(found.covariance.block(1, 0)))
    error = max(np.std(rejected, ddof=1), 0.05) / 150**0.5
    assert abs(np.mean(rejected) - 0.05) < 4 * error
    ratio = np.sqrt(np.mean(variances, axis=0)) / np.std(estimates, axis=0, ddof=1)
    np.testing.assert_allclose(ratio, 1.0, atol=4 / np.sqrt(2 * 150))


@pytest.mark.parametrize(
    "options", [{}, {"tail": 4}, {"radius": 0.98}], ids=["normal", "student4", "slow"]
)
def test_steady_data_are_rarely_reported(options):
    """Level 1 %: more than 6 of 150 have a probability below 0.001."""
    reported = [
        bool(find_drift(tabulate(states(seed, 1000, **options))).changes) for seed in range(150)
    ]
    assert sum(reported) <= 6


def test_edge_is_found_after_it_appears_and_not_before():
    """100 data sets, level 5 % for all stretches of a pair together (no correction over pairs)."""
    config = formula_config(time_windows=7, correction="none")
    early, late, others, covered = [], [], [], []
    truth = 0.35 * np.sqrt(2)
    for seed in range(100):
        table = infer(states(seed, 2000, edge=0.35), config).over_time
        is_own = ((table["cause"] == "c0") & (table["effect"] == "c1")).to_numpy()
        told = table["is_edge"].to_numpy(dtype=bool)
        own = told[is_own]  # the fourth stretch holds both halves
        early.append(own[:3].any())
        late.append(own[4:].any())
        others.append(told[~is_own].reshape(7, 5).any(axis=0).mean())
        low, high = (table[name].to_numpy()[is_own] for name in ("ci_low", "ci_high"))
        covered.append((low[:3] == 0).all() and ((low <= truth) & (truth <= high))[4:].all())
    assert np.mean(late) == 1.0
    assert np.mean(early) <= 0.05 + 4 * 0.022
    assert np.mean(others) <= 0.05 + 4 * 0.010
    assert np.mean(covered) >= 0.95 - 4 * 0.022
