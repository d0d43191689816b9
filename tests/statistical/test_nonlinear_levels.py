"""The nonlinear test holds its level and finds what the linear test cannot see.

A coarse study that runs with the slow tests; the figures are `python -m benchmarks.nonlinear`'s.
"""

import numpy as np
import pytest

import fedgranger as fg

SETS, STEPS = 10, 800


@pytest.mark.slow  # 10 fits with 60 copies each: three minutes a system
@pytest.mark.parametrize(
    ("dynamics", "num_clients", "least_power"), [("quadratic", 4, 0.95), ("lorenz96", 5, 0.75)]
)
def test_size_and_power(dynamics, num_clients, least_power):
    """At 5 %, within three errors counted by data set; 0.3 more than the linear test finds."""
    absent, found, by_linear = [], [], []
    for seed in range(SETS):
        panel, truth = fg.simulate(num_clients, STEPS, dynamics=dynamics, sensor_dims=6, seed=seed)
        result = fg.fit(panel, fg.RunConfig(test="nonlinear", solver="none"))
        edges = result.edges()
        pairs = zip(edges["cause"], edges["effect"], strict=True)
        is_true = np.array([pair in set(truth.edges) for pair in pairs])
        below = edges["p_value"].to_numpy(dtype=float) < 0.05
        linear = result.inference.beside.edges["p_value"].to_numpy(dtype=float) < 0.05
        absent.append(below[~is_true].mean())
        found.append(below[is_true].mean())
        by_linear.append(linear[is_true].mean())
    error = max(np.std(absent, ddof=1), 0.05) / SETS**0.5
    assert np.mean(absent) <= 0.05 + 3 * error
    assert np.mean(found) >= least_power
    assert np.mean(found) >= np.mean(by_linear) + 0.3
