"""CUSUM tests: Kiefer's law against others', and where a change is."""

import numpy as np
import pytest
from scipy import stats

from fedgranger.linalg.cusum import MOST_ROWS, bridge_tail, cusum_test


def test_one_bridge_is_kolmogorovs_law():
    for size in (0.3, 1.0, 2.0, 5.0, 9.0):
        expected = stats.kstwobign.sf(np.sqrt(size))
        assert bridge_tail(size, 1) == pytest.approx(expected, rel=1e-6)


def test_tail_beyond_the_series_is_small_and_falls():
    for dim in (1, 3, 16):
        far = [bridge_tail(size, dim) for size in (30.0, 40.0, 60.0)]
        assert 0 < far[2] < far[1] < far[0] < 1e-8


@pytest.mark.parametrize("dim", [2, 5])
def test_tail_vs_simulated_bridges(dim):
    rng, steps = np.random.default_rng(0), 400
    walk = np.cumsum(rng.normal(size=(2000, steps, dim)), axis=1) / np.sqrt(steps)
    bridge = walk - np.linspace(1 / steps, 1, steps)[None, :, None] * walk[:, -1:]
    largest = (bridge**2).sum(axis=2).max(axis=1)
    for size in np.quantile(largest, [0.5, 0.9]):
        share = (largest > size).mean()
        # 4 Monte Carlo errors, and the bridge's maximum between the steps
        assert bridge_tail(float(size), dim) == pytest.approx(share, abs=4 * 0.5 / 2000**0.5 + 0.03)


def test_change_is_found_where_it_is_in_any_coordinates():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1000, 3))
    x[600:, 1] += 1.0
    found = cusum_test(x)
    assert found.p_value < 1e-6
    assert abs(found.place - 600) < 20
    other = cusum_test(x * [1e-6, 1.0, 1e6] + 5.0)
    assert other.statistic == pytest.approx(found.statistic, rel=1e-6)


def test_autocorrelation_is_no_change():
    rng = np.random.default_rng(2)
    p_values = []
    for _ in range(100):
        x = np.zeros((600, 1))
        for t in range(1, 600):
            x[t] = 0.6 * x[t - 1] + rng.normal()
        p_values.append(cusum_test(x).p_value)
    assert (np.array(p_values) < 0.05).mean() < 0.12


def test_long_series_are_averaged_first():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3 * MOST_ROWS + 1, 1))
    x[MOST_ROWS:] += 0.1
    found = cusum_test(x)
    assert found.p_value < 1e-6
    assert abs(found.place - MOST_ROWS) < 0.1 * MOST_ROWS


def test_what_never_varies_does_not_change():
    assert cusum_test(np.ones((200, 2))).p_value == 1.0
