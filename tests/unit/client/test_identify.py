"""Identification of a local model from data of a known system."""

import numpy as np
import pytest

from fedgranger.client.identify import identify
from fedgranger.client.kalman import filter_data
from fedgranger.client.model_selection import select_state_dim
from fedgranger.client.sensor_moments import measurement_moments
from fedgranger.client.state_noise import state_readout
from fedgranger.errors import ModelError
from tests.slow_sensors import first_only, make

A = np.array([[0.9, 0.2], [0.0, 0.5]])
EIGENVALUES = np.array([0.9, 0.5])
C = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [0.5, -1.0], [-1.0, 0.3], [0.2, 1.0]])
NOISES = np.array([0.5, 1.0, 2.0, 0.8, 1.5, 0.6])
NUM_STEPS, NUM_REPLICAS = 20_000, 8


def simulate_states(rng, transition, num_steps, num_replicas):
    p = len(transition)
    states, h = np.empty((num_replicas, num_steps, p)), np.zeros((num_replicas, p))
    for t in range(-100, num_steps):
        h = h @ transition.T + rng.standard_normal((num_replicas, p))
        if t >= 0:
            states[:, t] = h
    return states


@pytest.fixture(scope="module")
def states():
    return simulate_states(np.random.default_rng(0), A, NUM_STEPS, NUM_REPLICAS)


def measure(states, noises, seed):
    noise = np.random.default_rng(seed).standard_normal((*states.shape[:2], len(C)))
    return states @ C.T + noise * np.sqrt(noises)


def within_error(estimates, truth, largest_sd):
    """Mean over replicas within five standard errors; each replica spreads as little as stated."""
    estimates = np.array(estimates)
    sd = estimates.std(axis=0, ddof=1)
    assert (sd < largest_sd).all()
    bound = 5 * sd / np.sqrt(len(estimates)) + 10 / NUM_STEPS  # + finite-sample bias O(1/T)
    np.testing.assert_array_less(np.abs(estimates.mean(axis=0) - truth), bound)


def eigenvalues(matrix):
    values = np.linalg.eigvals(matrix)
    return np.sort(values.real)[::-1]


@pytest.mark.parametrize(
    ("method", "noises"), [("factor", NOISES), ("ppca", np.ones(6)), ("svd", np.ones(6))]
)
def test_recovers_dynamics_and_noise(states, method, noises):
    starts, found, noise_found, dynamics, drives = first_only(NUM_STEPS), [], [], [], []
    for y in measure(states, noises, seed=1):
        model = identify(
            make(y), starts, method=method, state_dim=2, standardise=method == "factor"
        )
        assert (model.method, model.notes) == (method, ())
        found.append(eigenvalues(model.self_transition))
        noise_found.append(np.diag(model.measurement_cov) * model.scale**2)
        implied = model.observation_matrix * model.scale[:, None]
        dynamics.append(implied @ model.self_transition @ np.linalg.pinv(implied))
        drives.append(np.diag(implied @ model.process_cov @ implied.T))
    within_error(found, EIGENVALUES, largest_sd=0.02)
    within_error(noise_found, noises, largest_sd=0.06)
    # A and Q = I as the sensors see them: free of the coordinates chosen for the state
    within_error(dynamics, C @ A @ np.linalg.pinv(C), largest_sd=0.03)
    within_error(drives, np.diag(C @ C.T), largest_sd=0.2)


def test_uncorrected_least_squares_is_visibly_wrong(states):
    """High measurement noise: the naive eigenvalues are attenuated, the corrected ones are not."""
    noises, starts, naive, corrected = 20 * NOISES, first_only(NUM_STEPS), [], []
    for y in measure(states, noises, seed=2):
        model = identify(make(y), starts, method="factor", state_dim=2)
        moments = measurement_moments(make(y), starts, standardise=True)
        W, _ = state_readout(model.observation_matrix, model.measurement_cov)
        regression = W @ moments.lag_cov @ W.T @ np.linalg.inv(W @ moments.cov @ W.T)
        naive.append(eigenvalues(regression))
        corrected.append(eigenvalues(model.self_transition))
    within_error(corrected, EIGENVALUES, largest_sd=0.1)
    error = np.abs(np.mean(corrected, axis=0) - EIGENVALUES)
    naive_error = np.abs(np.mean(naive, axis=0) - EIGENVALUES)
    assert (naive_error > 5 * error).all()
    assert (naive_error > 0.1).all()


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("method", ["auto", "ppca"])
def test_information_criterion_finds_the_number_of_states(p, method):
    for seed in range(5):
        rng = np.random.default_rng(100 * p + seed)
        block = rng.standard_normal((p, p))
        block *= 0.8 / np.abs(np.linalg.eigvals(block)).max()
        h = simulate_states(rng, block, 2000, 1)[0]
        y = h @ rng.standard_normal((p, 9)) + rng.standard_normal((2000, 9))
        model = identify(make(y), first_only(2000), method=method, standardise=False)
        assert model.state_dim == p
        assert model.method == "ppca"  # the noise is the same for all sensors
        assert model.notes == ()


def test_largest_allowed_number_of_states_is_noted():
    rng = np.random.default_rng(3)
    h = simulate_states(rng, 0.5 * np.eye(3), 2000, 1)[0]
    y = h @ rng.standard_normal((3, 9)) + rng.standard_normal((2000, 9))
    model = identify(make(y), first_only(2000), max_state_dim=2)
    assert model.state_dim == 2
    assert "largest allowed number of states, 2; raise max_state_dim" in model.notes[0]


@pytest.mark.parametrize("method", ["ppca", "svd", "auto"])
def test_collinear_sensors_stop_the_search_at_their_rank(method):
    rng = np.random.default_rng(4)
    h = simulate_states(rng, 0.5 * np.eye(2), 1000, 1)[0]
    client = make(h @ rng.standard_normal((2, 5)))
    model = identify(client, first_only(1000), method=method)
    assert model.state_dim == 2
    assert not model.measurement_cov.any()
    assert any("without remainder" in note for note in model.notes)


def test_one_sensor():
    """One state, no noise: A is the plain autoregression coefficient."""
    y = simulate_states(np.random.default_rng(5), 0.7 * np.eye(1), 3000, 1)[0] * 40.0 + 7.0
    model = identify(make(y), first_only(3000))
    assert (model.state_dim, model.method) == (1, "ppca")
    assert not model.measurement_cov.any()
    centred = (y - y.mean())[:, 0]
    expected = centred[1:] @ centred[:-1] / (centred[:-1] @ centred[:-1])
    assert model.self_transition[0, 0] == pytest.approx(expected, rel=1e-10)
    residual = centred[1:] - expected * centred[:-1]
    q = model.process_cov[0, 0] * (model.observation_matrix[0, 0] * model.scale[0]) ** 2
    assert q == pytest.approx((residual**2).mean(), rel=1e-10)


def test_paper_recipe_always_has_two_standardised_states():
    y = measure(simulate_states(np.random.default_rng(6), A, 2000, 1), NOISES, 7)[0]
    model = identify(make(y), first_only(2000), method="paper", standardise=False)
    assert (model.state_dim, model.method) == (2, "paper")
    np.testing.assert_allclose(model.scale, y.std(axis=0), rtol=1e-12)  # standardised regardless
    W, _ = state_readout(model.observation_matrix, model.measurement_cov)
    np.testing.assert_allclose((model.scaled(y) @ W.T).std(axis=0), 1.0, rtol=1e-9)


def test_standardising_does_not_change_factor_predictions(states):
    """Units drop out: predicted measurements in raw units agree."""
    units = np.array([1.0, 1e4, 1e-3, 1.0, 50.0, 1.0])
    y = measure(states[:1, :3000], NOISES, seed=8)[0] * units + 3.0 * units
    starts, predictions = first_only(3000), []
    for standardise in (True, False):
        model = identify(make(y), starts, method="factor", state_dim=2, standardise=standardise)
        assert (model.scale == 1).all() == (not standardise)
        h = filter_data(make(y), model, starts).filtered_states
        predicted = h @ model.predicted_observation.T
        predictions.append((predicted * model.scale + model.centre) / units)
    np.testing.assert_allclose(predictions[0], predictions[1], atol=1e-6)
    assert predictions[0].std() > 0.5


def test_missing_rows_do_not_bias(states):
    observed = np.random.default_rng(9).random((NUM_STEPS, 1)) > 0.3
    observed = np.repeat(observed, 6, axis=1)
    starts = first_only(NUM_STEPS)
    found = [
        eigenvalues(identify(make(y, observed), starts, state_dim=2).self_transition)
        for y in measure(states, NOISES, seed=10)
    ]
    within_error(found, EIGENVALUES, largest_sd=0.03)


@pytest.mark.parametrize("growth", [1.02, 1.05])
def test_growing_series_is_noted_as_non_stationary(growth):
    rng = np.random.default_rng(11)
    h = np.zeros(300)
    for t in range(1, 300):
        h[t] = growth * h[t - 1] + rng.standard_normal()
    y = np.outer(h, [1.0, -0.5, 2.0, 1.0]) + 0.5 * rng.standard_normal((300, 4))
    model = identify(make(y), first_only(300), state_dim=1)
    assert model.self_transition[0, 0] == pytest.approx(growth, abs=0.01)
    assert any("non-stationary, consider differencing" in note for note in model.notes)


def test_indefinite_process_covariance_is_noted():
    """A pure rotation has no process noise; what is left of it by sampling can be negative."""
    t = np.arange(600)
    h = np.stack([np.sin(0.3 * t), np.cos(0.3 * t)], axis=1)
    rng = np.random.default_rng(12)
    y = h @ rng.standard_normal((2, 6)) + rng.standard_normal((600, 6))
    model = identify(make(y), first_only(600), method="ppca", state_dim=2, standardise=False)
    assert any("process covariance was not positive definite" in note for note in model.notes)
    assert np.linalg.eigvalsh(model.process_cov)[0] > 0


def test_state_coordinates_of_ppca_have_unit_covariance(states):
    """G0 = I for ppca, up to the one row that is no pair's first."""
    y = measure(states[:1, :5000], np.ones(6), seed=13)[0]
    model = identify(make(y), first_only(5000), method="ppca", state_dim=2, standardise=False)
    W, E = state_readout(model.observation_matrix, model.measurement_cov)
    s = model.scaled(y) @ W.T
    np.testing.assert_allclose(s.T @ s / 5000 - E, np.eye(2), atol=1e-10)


# errors


def test_state_dim_beyond_sensors_names_the_client():
    y = np.random.default_rng(14).standard_normal((50, 4))
    with pytest.raises(ModelError, match=r"client 'boiler': state_dim is 9 for 4 sensors"):
        identify(make(y), first_only(50), state_dim=9)


def test_factor_with_two_sensors():
    y = np.random.default_rng(15).standard_normal((50, 2))
    with pytest.raises(
        ModelError, match=r"client 'boiler': factor analysis is not identified from 2"
    ):
        identify(make(y), first_only(50), method="factor")
    moments = measurement_moments(make(y), first_only(50), standardise=True)
    assert select_state_dim(moments, "auto", 4) == (1, ())


def test_noise_above_signal():
    """The signal is only in rows without a neighbour, so no pair has room for its noise."""
    rng = np.random.default_rng(16)
    y = 0.01 * rng.standard_normal((400, 4))
    y[:200] = 100 * rng.standard_normal((200, 1)) + 5 * rng.standard_normal((200, 4))
    y[:200:2] -= y[:200:2].mean(axis=0)  # or the quiet rows would sit at an offset
    observed = np.ones((400, 4), dtype=np.bool_)
    observed[1:200:2] = False
    model = identify(make(y, observed), first_only(400), method="ppca", state_dim=1)
    assert model.noise_share < 1e-3
    assert any("less than 1 % can be white noise" in note for note in model.notes)
