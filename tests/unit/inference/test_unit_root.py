"""The fast unit-root test equals statsmodels'."""

import numpy as np
import pytest
from statsmodels.tsa.adfvalues import mackinnonp
from statsmodels.tsa.stattools import adfuller

from fedgranger.inference.diagnostics import UNIT_ROOT_LAGS, diagnose, unit_root_p_value
from fedgranger.inference.estimate import estimate
from fedgranger.linalg.dickey_fuller import dickey_fuller_p_value
from tests.state_sources import simulate_states, source_of


@pytest.mark.parametrize("root", [0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("num_steps", [60, 500])
@pytest.mark.filterwarnings("ignore")  # statsmodels announces changes of its interface
def test_equals_statsmodels(root, num_steps):
    rng = np.random.default_rng(1)
    series = np.zeros(num_steps)
    for t in range(1, num_steps):
        series[t] = root * series[t - 1] + rng.standard_normal()
    expected = adfuller(series + 5, maxlag=UNIT_ROOT_LAGS, autolag=None)[1]
    assert unit_root_p_value(series + 5) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "series", [np.zeros(0), np.ones(1), np.arange(6.0), np.ones(50), np.r_[np.zeros(40), 1.0]]
)
def test_what_cannot_be_tested_may_have_a_unit_root(series):
    assert unit_root_p_value(series) == 1.0


def test_the_whole_law_equals_statsmodels():
    for statistic in (-30.0, -18.83, -10.0, -3.0, -1.61, -1.6, 0.0, 2.0, 2.74, 5.0):
        wanted = mackinnonp(statistic, regression="c", N=1)
        assert dickey_fuller_p_value(statistic) == pytest.approx(wanted, rel=1e-10)


def test_effective_samples_of_first_order_states():
    """An AR(1) with coefficient ρ is worth n (1 − ρ)/(1 + ρ) samples; error of ρ: n^-1/2."""
    rng = np.random.default_rng(2)
    noise = 0.5 * rng.standard_normal((20_000, 3))
    states = simulate_states(rng, np.diag([0.8, 0.5, 0.0]), 20_000) + noise
    source = source_of(states, (2, 1), [0.25 * np.eye(2), 0.25 * np.eye(1)])
    worth = diagnose(source, estimate(source)).effective_samples
    assert worth["c0"] == pytest.approx(20_000 / 9, rel=0.1)
    assert worth["c1"] == pytest.approx(20_000, rel=0.05)
