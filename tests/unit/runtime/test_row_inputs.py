"""A run's data as rows of the recursion."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.runtime.row_inputs import run_noise, single_row
from fedgranger.runtime.setup import set_up
from tests.configs import formula_config


def test_single_row_adds_noise_to_the_measurements_only():
    panel = fg.simulate(2, 402, sensor_dims=(3, 3), seed=3)[0]
    config = formula_config()
    setup = set_up(panel, config)
    noise = run_noise(setup, dict.fromkeys(setup.names, 4.0))
    quiet, noisy = (single_row(setup, config, 0, noise=n) for n in (None, noise))
    change = np.asarray(noisy.windows.measurements - quiet.windows.measurements)
    assert change.var() == pytest.approx(4.0, rel=0.1)
    np.testing.assert_array_equal(noisy.windows.causes, quiet.windows.causes)
    none = single_row(setup, config, 0, noise=run_noise(setup, dict.fromkeys(setup.names, 0.0)))
    np.testing.assert_array_equal(none.windows.measurements, quiet.windows.measurements)
