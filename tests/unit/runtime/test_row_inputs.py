"""A run's data as rows of the recursion."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.linalg.time_weights import Weighting
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.row_inputs import run_noise, single_row, tracked_noise
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


def test_tracked_noise_follows_the_sensors_and_stays_where_they_do():
    """Twice the measurement noise from the middle on: R doubles there, and λ → 0 keeps R."""
    rng = np.random.default_rng(0)
    panel = fg.simulate(2, 1001, sensor_dims=(6, 6), seed=3)[0]
    setup = set_up(panel, formula_config())
    R = {client.name: client.model.measurement_cov for client in setup.client_data}
    slow = tracked_noise(setup._replace(weighting=Weighting("ewma", 1e14)))
    for name, cov in slow.items():
        np.testing.assert_allclose(cov, np.tile(np.diag(R[name]), (1001, 1)), rtol=1e-10)
    first = setup.client_data[0]
    more = np.where(np.arange(1001)[:, None] >= 500, 1.0, 0.0) * rng.normal(size=(1001, 6))
    scale = first.model.scaled(np.ones((1, 6))) - first.model.scaled(np.zeros((1, 6)))
    louder = first.values + np.sqrt(np.diag(R[first.name])) * more / scale
    clients = (setup.clients[0]._replace(data=first._replace(values=louder)), *setup.clients[1:])
    louder = setup._replace(clients=clients)
    for weighting in (Weighting("window", 250), Weighting("regime", 0, 500)):
        found = tracked_noise(louder._replace(weighting=weighting))[first.name]
        ratio = found[-1] / found[499]
        assert ratio.mean() == pytest.approx(2.0, rel=0.2)


@pytest.mark.slow  # compiles the recursion for both weightings
def test_propagation_with_slow_weights_is_the_stationary_one():
    panel = fg.simulate(2, 202, sensor_dims=(3, 3), seed=3)[0]
    sizes = {"local_step_size": 0.002, "feedback_step_size": 0.002, "server_step_size": 0.01}
    config = formula_config(**sizes)
    slow = formula_config(**sizes, weighting="ewma", weighting_span=10**14)
    plain, tracked = (
        propagate(set_up(panel, each), each, num_checkpoints=1) for each in (config, slow)
    )
    totals = (found.table["total"].to_numpy(dtype=float) for found in (tracked, plain))
    np.testing.assert_allclose(*totals, rtol=1e-10)
