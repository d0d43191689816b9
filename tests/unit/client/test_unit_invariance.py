"""The same recording in other units and with other offsets gives the same answer."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.identify import identify
from fedgranger.client.kalman import filter_data
from fedgranger.client.loadings import fit_loadings
from fedgranger.client.state_noise import state_message
from fedgranger.data.client_data import ClientData
from tests.configs import formula_config
from tests.slow_sensors import make, slow_sensors

UNITS = np.array([1e5, 1.0, 1e-5, 3.6, 1e5, 0.01])
OFFSETS = np.array([101_325.0, 273.15, 0.0, -5.0, 1e5, 1.0])


def in_other_units(client):
    units, offsets = (np.resize(part, client.num_sensors) for part in (UNITS, OFFSETS))
    values = np.where(client.observed, client.values * units + offsets, 0.0)
    return ClientData(client.name, client.sensors, values, client.observed)


def assert_same_states(client, starts, **options):
    one, two = client, in_other_units(client)
    first, second = (identify(each, starts, **options) for each in (one, two))
    assert (first.method, first.notes) == (second.method, second.notes)
    assert first.noise_share == pytest.approx(second.noise_share, rel=1e-8)
    for name in ("self_transition", "process_cov", "observation_matrix", "measurement_cov"):
        a, b = getattr(first, name), getattr(second, name)
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * np.abs(a).max(), err_msg=name)
    T = len(client.values)
    for read in (
        lambda data, model: np.asarray(state_message(data, model, 0, T).states),
        lambda data, model: filter_data(data, model, starts).filtered_states,
    ):
        a, b = read(one, first), read(two, second)
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * np.abs(a).max())


@pytest.mark.parametrize("method", ["auto", "factor", "ppca", "svd", "paper"])
def test_states_of_simulated_data(method):
    panel, _ = fg.simulate(2, 800, seed=3, sensor_dims=6, measurement_var=1.0)
    for name in panel.names:
        assert_same_states(panel[name], panel.segment_starts, method=method, state_dim=2)


def test_number_of_states_and_missing_samples():
    panel, _ = fg.simulate(2, 800, seed=4, sensor_dims=6, missing_share=0.1)
    for name in panel.names:
        assert_same_states(panel[name], panel.segment_starts)


def test_states_where_the_noise_floor_binds():
    assert_same_states(make(slow_sensors()), np.arange(2000) == 0, state_dim=1)


def test_two_sensors():
    """Their loadings are equal in size, so the sign of the state hangs on which comes first."""
    for seed in range(3):
        client = make(slow_sensors(seed, 400)[:, :2])
        assert_same_states(client, np.arange(400) == 0)


def test_sign_does_not_hang_on_rounding():
    for nudge in (-1e-12, 0.0, 1e-12):
        cov = np.array([[1.0 + nudge, -0.5], [-0.5, 1.0]])
        assert fit_loadings(cov, 1, "ppca").observation_matrix[0, 0] > 0


@pytest.mark.filterwarnings("ignore::fedgranger.errors.InferenceWarning")
def test_edges():
    panel, _ = fg.simulate(3, 3000, seed=5, sensor_dims=(3, 4, 6), measurement_var=1.0)
    other = fg.Panel(tuple(in_other_units(client) for client in panel.clients), panel.time)
    config = formula_config(solver="newton")
    first, second = (fg.fit(each, config=config) for each in (panel, other))
    for column in ("strength", "p_value", "ci_low", "ci_high"):
        np.testing.assert_allclose(
            first.edges()[column], second.edges()[column], rtol=1e-8, atol=1e-8
        )
    np.testing.assert_allclose(first.granger, second.granger, rtol=1e-8, atol=1e-8)
