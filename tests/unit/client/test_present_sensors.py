"""States from the sensors that are there, against the textbook with the present sensors alone."""

import numpy as np
import pytest

from fedgranger.client.kalman import filter_data, steady_gain
from fedgranger.client.noise_limit import limited_noise
from fedgranger.client.params import LocalModel
from fedgranger.client.present_sensors import fill_partial, fill_rows, sensor_model
from fedgranger.client.state_noise import state_message, state_readout
from fedgranger.data.client_data import ClientData


def random_cov(rng, size):
    root = rng.standard_normal((size, size))
    return root @ root.T + size * np.eye(size)


def made(seed=0, steps=60, sensors=7, missing=0.25, noise=True, share=1.0):
    """A local model with correlated noise, and data of which single samples are missing."""
    rng = np.random.default_rng(seed)
    C = rng.standard_normal((sensors, 2))
    R = random_cov(rng, sensors) if noise else np.zeros((sensors, sensors))
    centre, scale = rng.standard_normal(sensors), rng.uniform(0.5, 2.0, sensors)
    A = np.array([[0.7, 0.2], [0.0, 0.5]])
    R = limited_noise(C, R, share)
    model = LocalModel(A, C, np.eye(2), R, centre, scale, "factor", (), share)
    observed = rng.random((steps, sensors)) > missing
    observed[::5], observed[7] = True, False
    values = np.where(observed, centre + scale * rng.standard_normal((steps, sensors)), 0.0)
    return ClientData("a", tuple("abcdefg"[:sensors]), values, observed), model


def textbook(y, there, C, R):
    """State and error covariance from the present sensors alone."""
    inverse = np.linalg.inv(R[np.ix_(there, there)])
    E = np.linalg.inv(C[there].T @ inverse @ C[there])
    return E @ C[there].T @ inverse @ y[there], E


def test_filled_rows_give_the_states_of_the_present_sensors():
    client, model = made()
    rows = fill_rows(client, sensor_model(model))
    sent = state_message(rows.data, model, 0, 60)
    C, R = model.observation_matrix, model.measurement_cov
    partial = np.flatnonzero(rows.pattern >= 0)
    assert len(partial) == rows.num_filled > 20
    for t in partial:
        y = model.scaled(client.values[t])
        state, E = textbook(y, client.observed[t], C, R)
        np.testing.assert_allclose(sent.states[t], state, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(rows.error_covs[rows.pattern[t]], E, rtol=1e-9, atol=1e-12)
    assert sent.is_observed[partial].all()
    assert not sent.is_observed[7]


def test_complete_rows_keep_every_bit():
    client, model = made()
    rows = fill_rows(client, sensor_model(model))
    complete = client.row_observed
    np.testing.assert_array_equal(rows.data.values[complete], client.values[complete])
    before = np.asarray(state_message(client, model, 0, 60).states)  # partial rows are zero
    after = np.asarray(state_message(rows.data, model, 0, 60).states)
    np.testing.assert_array_equal(after[complete], before[complete])
    observed = np.where(complete[:, None], client.observed, False)
    whole = ClientData("a", client.sensors, client.values, observed)
    untouched = fill_rows(whole, sensor_model(model))
    assert untouched.data is whole
    assert untouched.note == ""
    E = state_readout(model.observation_matrix, model.measurement_cov).error_cov
    np.testing.assert_array_equal(untouched.error_cov, E)


def test_error_is_the_mean_over_the_rows_that_are_there():
    client, model = made(1)
    rows = fill_rows(client, sensor_model(model))
    C, R = model.observation_matrix, model.measurement_cov
    covs = [
        textbook(np.zeros(7), there, C, R)[1]
        for there, used in zip(client.observed, rows.data.row_observed, strict=True)
        if used
    ]
    np.testing.assert_allclose(rows.error_cov, np.mean(covs, axis=0), rtol=1e-9)


def test_of_limited_noise_the_same_share_of_every_error_is_white():
    client, whole = made(2)
    limited = made(2, share=0.3)[1]
    expected, found = (fill_rows(client, sensor_model(model)) for model in (whole, limited))
    np.testing.assert_allclose(found.data.values, expected.data.values, rtol=1e-7)
    np.testing.assert_allclose(found.error_covs, 0.3 * expected.error_covs, rtol=1e-7)
    np.testing.assert_allclose(found.error_cov, 0.3 * expected.error_cov, rtol=1e-7)


def test_without_noise_plain_least_squares():
    client, model = made(3, noise=False)
    rows = fill_rows(client, sensor_model(model))
    assert not rows.error_cov.any()
    t = int(np.argmax(rows.pattern >= 0))
    there, y = client.observed[t], model.scaled(client.values[t])
    state = np.linalg.lstsq(model.observation_matrix[there], y[there])[0]
    sent = state_message(rows.data, model, t, t + 1)
    np.testing.assert_allclose(sent.states[0], state, rtol=1e-9)


@pytest.mark.parametrize(("present", "is_filled"), [((0, 1), True), ((0, 2), False), ((0,), False)])
def test_a_row_whose_sensors_do_not_tell_the_state_stays_missing(present, is_filled):
    """Sensors 0 and 2 see the same state; 1 sees the other; four more see it much better or not."""
    C = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    observed = np.zeros((1, 3), dtype=bool)
    observed[0, list(present)] = True
    found = fill_partial(np.ones((1, 3)), observed, C, np.eye(3))
    assert found.is_filled[0] == is_filled


@pytest.mark.parametrize(("left", "is_filled"), [(2, True), (1, False)])
def test_a_row_is_missing_below_a_tenth_of_the_information(left, is_filled):
    """Of 15 equal sensors of one state two hold 2/15, one 1/15."""
    observed = np.arange(15)[None] < left
    found = fill_partial(np.ones((1, 15)), observed, np.ones((15, 1)), np.eye(15))
    assert found.is_filled[0] == is_filled
    rows = ClientData("a", tuple(map(str, range(15))), np.ones((1, 15)), observed)
    one, unit = np.eye(1), np.ones(15)
    model = LocalModel(0.5 * one, np.ones((15, 1)), one, np.eye(15), 0 * unit, unit)
    note = fill_rows(rows, sensor_model(model)).note
    assert note == (
        "in 1 of 1 rows some sensors are missing and the others give the state"
        if is_filled
        else "in 0 of 1 rows some sensors are missing and the others give the state; "
        "1 more have too few and stay missing"
    )


def test_filter_vs_an_update_with_the_present_sensors():
    client, model = made(4)
    starts = np.zeros(60, dtype=bool)
    starts[[0, 33]] = True
    data = filter_data(client, model, starts)
    C, R, P = model.observation_matrix, model.measurement_cov, steady_gain(model).predicted_cov
    h = np.zeros(2)
    for t in range(60):
        h = np.zeros(2) if starts[t] else model.self_transition @ h
        there = client.observed[t]
        if data.is_observed[t]:
            seen, own = C[there], R[np.ix_(there, there)]
            K = P @ seen.T @ np.linalg.inv(seen @ P @ seen.T + own)
            h = h + K @ (model.scaled(client.values[t])[there] - seen @ h)
        np.testing.assert_allclose(data.filtered_states[t], h, rtol=1e-8, atol=1e-10)


def test_moments_of_the_states_are_those_of_the_truth_after_the_correction():
    """E[ssᵀ] less the mean error; E of complete rows would leave 8 standard errors too much."""
    rng = np.random.default_rng(0)
    steps, sensors = 40_000, 5
    C, R = rng.standard_normal((sensors, 2)), np.diag(rng.uniform(1.0, 3.0, sensors))
    one = np.ones(sensors)
    model = LocalModel(0.5 * np.eye(2), C, np.eye(2), R, 0 * one, one)
    h = rng.standard_normal((steps, 2))
    values = h @ C.T + rng.standard_normal((steps, sensors)) @ np.sqrt(R)
    observed = rng.random(values.shape) > 0.15
    client = ClientData("a", tuple("abcde"), np.where(observed, values, 0.0), observed)
    rows = fill_rows(client, sensor_model(model))
    sent = state_message(rows.data, model, 0, steps)
    s = np.asarray(sent.states)[np.asarray(sent.is_observed)]
    error = np.std(s**2, axis=0) / np.sqrt(len(s))
    left = np.mean(s**2, axis=0) - 1.0
    assert (np.abs(left - np.diag(rows.error_cov)) < 4 * error).all()
    E = state_readout(C, R).error_cov
    assert ((left - np.diag(E)) > 8 * error).all()
