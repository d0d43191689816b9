"""The filter of client/kalman.py is the one whose bound is claimed."""

import numpy as np
import pytest

from fedgranger.client.kalman import filter_data, steady_gain
from fedgranger.client.params import LocalModel
from fedgranger.data.client_data import ClientData
from fedgranger.privacy.noise import clip_rows
from fedgranger.privacy.sensitivity import Filter, Neighbours, filtered
from tests.filter_changes import response, run, worst_change

NUM_STEPS = 40
BOUND = 1.7


def model_of(rng, state_dim, num_sensors):
    A = rng.standard_normal((state_dim, state_dim))
    return LocalModel(
        0.95 * A / np.abs(np.linalg.eigvals(A)).max(),
        rng.standard_normal((num_sensors, state_dim)),
        np.eye(state_dim),
        np.diag(10.0 ** rng.uniform(-1, 1, num_sensors)),
        rng.standard_normal(num_sensors),
        np.exp(rng.standard_normal(num_sensors)),
    )


def claimed(model):
    """In the model's units, in which measurements are clipped."""
    K = steady_gain(model).gain
    correction = np.eye(model.state_dim) - K @ model.observation_matrix
    return Filter(model.self_transition, correction, K)


def trajectory(model, scaled, observed, starts):
    """What the client's own code makes of measurements in the model's units."""
    values = np.where(observed[:, None], scaled * model.scale + model.centre, 0.0)
    mask = np.tile(observed[:, None], (1, model.num_sensors))
    names = tuple(f"s{i}" for i in range(model.num_sensors))
    return filter_data(ClientData("a", names, values, mask), model, starts).filtered_states


@pytest.fixture(params=range(4))
def setting(request):
    rng = np.random.default_rng(request.param)
    model = model_of(rng, 1 + request.param % 2, 2 + request.param % 2)
    observed = rng.random(NUM_STEPS) >= 0.15 * (request.param > 0)
    starts = rng.random(NUM_STEPS) < 0.05 * (request.param > 1)
    return rng, model, observed, starts


def test_claimed_filter_reproduces_the_trajectory(setting):
    rng, model, observed, starts = setting
    scaled = rng.standard_normal((NUM_STEPS, model.num_sensors))
    expected = run(claimed(model), scaled, observed, starts)
    found = trajectory(model, scaled, observed, starts)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("neighbours", [Neighbours("event"), Neighbours("window", 5)])
def test_any_change_stays_within_the_bound(setting, neighbours):
    rng, model, observed, starts = setting
    bound = filtered(claimed(model), BOUND, neighbours, observed, starts)
    length = neighbours.length(NUM_STEPS)
    for begin in range(0, NUM_STEPS - length + 1, 5):
        first = 3.0 * rng.standard_normal((NUM_STEPS, model.num_sensors))
        other = first.copy()
        other[begin : begin + length] = 1e6 * rng.standard_normal((length, model.num_sensors))
        change = np.subtract(
            *(
                trajectory(model, clip_rows(rows, BOUND)[0], observed, starts)
                for rows in (first, other)
            )
        )
        assert np.linalg.norm(change) <= bound


@pytest.mark.parametrize(
    "neighbours", [Neighbours("event"), Neighbours("window", 5), Neighbours("record")]
)
def test_the_worst_change_comes_close(setting, neighbours):
    rng, model, observed, starts = setting
    bound = filtered(claimed(model), BOUND, neighbours, observed, starts)
    length = neighbours.length(NUM_STEPS)
    _, (begin, u) = worst_change(response(claimed(model), observed, starts), length, rng)
    first = rng.standard_normal((NUM_STEPS, model.num_sensors))
    other = first.copy()
    first[begin : begin + length] = 100.0 * u
    other[begin : begin + length] = -100.0 * u
    change = np.subtract(
        *(trajectory(model, clip_rows(rows, BOUND)[0], observed, starts) for rows in (first, other))
    )
    assert 0.9 * bound <= np.linalg.norm(change) <= bound
