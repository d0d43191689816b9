"""Long-run covariances: known limits and an independent computation."""

import numpy as np
import pytest
from statsmodels.stats.sandwich_covariance import S_hac_simple

from fedgranger.linalg.long_run import andrews_bandwidth, long_run_cov, newey_west_lag


@pytest.fixture
def series():
    rng = np.random.default_rng(0)
    out = np.zeros((4000, 2))
    for t in range(1, len(out)):
        out[t] = 0.6 * out[t - 1] + rng.normal(size=2)
    return out


def test_bartlett_vs_statsmodels(series):
    centred = series - series.mean(axis=0)
    expected = S_hac_simple(centred, nlags=7) / len(series)
    np.testing.assert_allclose(long_run_cov(series, 7), expected, rtol=1e-10)


def test_no_lag_is_the_covariance(series):
    np.testing.assert_allclose(long_run_cov(series, 0), np.cov(series.T, bias=True))


def test_long_run_variance_of_an_autoregression(series):
    """1 / (1 − 0.6)² = 6.25; the estimate has a relative s.e. of about 15 % at this lag."""
    found = np.diag(long_run_cov(series, 40, flat_top=True))
    np.testing.assert_allclose(found, 6.25, rtol=0.45)


def test_filtered_series_vs_running_the_filter(series):
    """S / (1 − λ²) is the variance of the filtered series x⁺ = λx + n, here all lags long."""
    rate = 0.5
    state, states = 0.0, []
    for value in series[:, 0] - series[:, 0].mean():
        state = rate * state + value
        states.append(state)
    S = long_run_cov(series[:, :1], 60, rates=np.array([rate]), flat_top=True)
    assert S[0, 0] / (1 - rate**2) == pytest.approx(np.var(states), rel=0.02)


def test_rules():
    assert newey_west_lag(100) == 4
    assert andrews_bandwidth(0.0, 1000) == 0.0
    assert andrews_bandwidth(0.999, 1000) == andrews_bandwidth(0.97, 1000)
    assert andrews_bandwidth(-0.5, 1000) == andrews_bandwidth(0.5, 1000)
