"""Sensors behind an edge: against simulated shocks, and the definition written out."""

import numpy as np
import pytest

from fedgranger.client.edge_sensors import sensor_correlations, shown_sensors, unit_shock
from fedgranger.client.params import LocalModel
from fedgranger.data.client_data import ClientData
from fedgranger.data.treatment import Treatment
from fedgranger.messages import EdgeMessage

COV = np.array([[1.0, 0.4], [0.4, 2.0]])


def model_of(rng, d, p=2, noise=0.2):
    C, scale = rng.standard_normal((d, p)), rng.uniform(1, 9, d)
    return LocalModel(np.eye(p) / 2, C, np.eye(p), noise * np.eye(d), np.zeros(d), scale)


def data_of(d, differenced=()):
    sensors = tuple(f"s{k}" for k in range(d))
    values = np.zeros((2, d))
    treatment = Treatment(differenced=differenced)
    return ClientData("a", sensors, values, np.ones((2, d), dtype=bool), treatment)


def message_of(rng, direction, p=2, steps=5):
    courses = rng.standard_normal((1, steps, p))
    return EdgeMessage(COV, direction[None], courses, np.zeros((1, steps, p, p)))


def test_states_move_as_shocks_that_raise_a_sensor_usually_move_them():
    rng = np.random.default_rng(4)
    model = model_of(rng, 4)
    found = unit_shock(model, COV, 2)
    assert model.observation_matrix[2] @ found == pytest.approx(1.0)
    news = rng.multivariate_normal(np.zeros(2), COV, 200_000)
    seen = news @ model.observation_matrix[2]  # in standard deviations of the sensor
    np.testing.assert_allclose(news.T @ seen / (seen @ seen), found, atol=0.01)


def test_correlations_are_those_of_simulated_sensors():
    rng = np.random.default_rng(5)
    model, direction = model_of(rng, 4), np.array([0.8, 0.1])
    states = rng.multivariate_normal(np.zeros(2), COV, 400_000)
    b = np.linalg.solve(COV, direction)
    combination = states @ b / np.sqrt(direction @ b)
    noise = np.sqrt(0.2) * rng.standard_normal((len(states), 4))
    sensors = states @ model.observation_matrix.T + noise
    expected = np.corrcoef(np.column_stack([combination, sensors]).T)[0, 1:]
    found = sensor_correlations(model, COV, direction / np.sqrt(direction @ b))
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_of_a_cause_the_sensor_is_shown_that_follows_the_shock_most_closely():
    rng = np.random.default_rng(6)
    model, direction = model_of(rng, 4), np.array([0.8, 0.1])
    message = message_of(rng, direction)
    (found,) = shown_sensors(data_of(4, ("s0", "s1", "s2", "s3")), model, message, is_cause=True)
    correlations = sensor_correlations(model, COV, direction)
    best = int(np.abs(correlations).argmax())
    assert found.sensor == (f"s{best}", True, model.scale[best])
    np.testing.assert_array_equal(found.row, unit_shock(model, COV, best))
    assert [name for name, _ in found.behind] == [
        f"s{k}" for k in np.argsort(-np.abs(correlations))[:3]
    ]


def test_of_an_effect_the_sensor_is_shown_that_moves_most_against_its_deviation():
    rng = np.random.default_rng(7)
    model = model_of(rng, 300)  # more than can be listed
    message = message_of(rng, np.array([0.3, 0.9]))
    (found,) = shown_sensors(data_of(300), model, message, is_cause=False)
    moved = [max(abs(C @ state) for state in message.courses[0]) for C in model.observation_matrix]
    best = int(np.argmax(moved))
    assert found.sensor == (f"s{best}", False, model.scale[best])
    np.testing.assert_array_equal(found.row, model.observation_matrix[best])
    assert len(found.behind) == 3


def test_with_one_state_the_correlation_is_that_of_signal_and_signal_with_noise():
    model = model_of(np.random.default_rng(8), 5, p=1, noise=1.0)
    found = sensor_correlations(model, np.array([[4.0]]), np.array([2.0]))
    c = 2 * model.observation_matrix[:, 0]
    np.testing.assert_allclose(found, c / np.hypot(c, 1), rtol=1e-12)
