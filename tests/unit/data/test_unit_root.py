"""The sensors' unit-root test: against statsmodels, and how often it calls what."""

import numpy as np
import pytest
from scipy.signal import lfilter
from statsmodels.tsa.stattools import adfuller

from fedgranger.data.unit_root import MOST_POINTS, unit_root_test


def first_order(root: float, num_steps: int, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(num_steps + 500)
    return np.asarray(lfilter([1.0], [1.0, -root], noise))[-num_steps:]


@pytest.mark.parametrize("root", [0.5, 0.95, 1.0])
@pytest.mark.parametrize("num_steps", [150, 800])
@pytest.mark.filterwarnings("ignore")  # statsmodels announces changes of its interface
def test_equals_statsmodels_with_the_same_rows_and_lags(root, num_steps):
    """statsmodels chooses the lags on common rows but estimates on all: give it the common ones."""
    series = 7 + 3 * first_order(root, num_steps, seed=1)
    most = int(12 * (num_steps / 100) ** 0.25)
    lags = adfuller(series, maxlag=most, autolag="BIC")[2]
    expected = adfuller(series[most - lags :], maxlag=lags, autolag=None)[1]
    assert unit_root_test(series).p_value == pytest.approx(expected, rel=1e-6)


def test_time_constants_of_a_first_order_sensor():
    """T (1 - ρ) = 100 time constants, measured with an error of about sqrt(2 · 100) + 5."""
    found = [unit_root_test(first_order(0.95, 2000, seed)).time_constants for seed in range(20)]
    assert np.mean(found) == pytest.approx(105, abs=4 * 14 / np.sqrt(20))


def test_scale_shift_and_length_do_not_matter():
    series = first_order(1.0, 3 * MOST_POINTS, seed=2)
    found = unit_root_test(series)
    assert unit_root_test(1e6 - 1e-3 * series) == pytest.approx(found, rel=1e-4)
    assert unit_root_test(series[::3]).p_value == pytest.approx(found.p_value, rel=1e-9)


def test_too_short_exact_or_missing_is_not_judged():
    series = first_order(1.0, 400, seed=3)
    assert unit_root_test(series[:90]) is None
    assert unit_root_test(np.sin(0.1 * np.arange(400.0))) is None
    assert unit_root_test(np.full(400, 3.0)) is None
    assert unit_root_test(np.arange(400.0)) is None
    assert unit_root_test(np.full(400, np.nan)) is None


def test_missing_samples_are_passed_over():
    series = first_order(1.0, 400, seed=3)
    holes = np.where(np.arange(400) % 3 == 0, np.nan, series)
    assert unit_root_test(holes) == unit_root_test(series[np.arange(400) % 3 != 0])
