"""Facts on a client's local model, on streams whose answer is known."""

import numpy as np
import pytest

from fedgranger.client.kalman import filter_data
from fedgranger.client.params import LocalModel
from fedgranger.client.quality import local_fit
from fedgranger.data.client_data import ClientData

A, C = np.array([[0.8]]), np.array([[1.0], [0.5], [2.0]])


def simulated(num_steps, model_process=1.0, seed=0, missing=()):
    rng = np.random.default_rng(seed)
    h, values = 0.0, np.empty((num_steps, 3))
    for t in range(num_steps):
        h = 0.8 * h + rng.standard_normal()
        values[t] = C[:, 0] * h + 0.5 * rng.standard_normal(3)
    observed = np.ones(values.shape, bool)
    observed[list(missing)] = False
    client = ClientData("a", ("x", "y", "z"), np.where(observed, values, 0.0), observed)
    model = LocalModel(A, C, np.array([[model_process]]), 0.25 * np.eye(3), np.zeros(3), np.ones(3))
    starts = np.zeros(num_steps, bool)
    starts[0] = True
    return filter_data(client, model, starts), client


def test_right_model_has_white_innovations_of_variance_one():
    fit = local_fit(*simulated(8000))
    assert fit["innovation_variance"] == pytest.approx(1, abs=4 * np.sqrt(2 / 24000))
    assert abs(fit["autocorrelation"]) < 4 / np.sqrt(8000)
    normal = np.array([-1.2816, 0.0, 1.2816])
    at = (np.arange(41) + 0.5) / 41
    assert np.interp([0.1, 0.5, 0.9], at, fit["quantiles"]) == pytest.approx(normal, abs=0.05)
    truth = 1 - 0.25 / (C[:, 0] ** 2 / (1 - 0.64) + 0.25)
    assert [row["explained"] for row in fit["sensors"]] == pytest.approx(truth, abs=0.06)


def test_wrong_model_is_seen():
    assert local_fit(*simulated(4000, model_process=0.05))["innovation_variance"] > 1.5
    assert local_fit(*simulated(4000, model_process=0.001))["autocorrelation"] > 0.2


def test_missing_steps_are_left_out():
    gone = range(100, 400)
    fit = local_fit(*simulated(1000, missing=gone))
    assert fit["steps"] == 1000 - 1 - 301
    assert [row["missing_share"] for row in fit["sensors"]] == [0.3, 0.3, 0.3]
    assert fit["num_sensors"] == 3


def test_nothing_observed_gives_no_numbers():
    fit = local_fit(*simulated(50, missing=range(50)))
    assert fit["steps"] == 0
    assert fit["innovation_variance"] is None
    assert fit["sensors"][0]["explained"] is None
