"""The fast unit-root test equals statsmodels'."""

import numpy as np
import pytest
from statsmodels.tsa.stattools import adfuller

from fedgranger.inference.diagnostics import UNIT_ROOT_LAGS, unit_root_p_value


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
