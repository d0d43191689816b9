"""What the learner is fed, against the formulas written out."""

import numpy as np
import pytest

from fedgranger.client import kalman
from fedgranger.client.kalman import filter_data, measured_moments, state_moments
from fedgranger.client.params import LocalModel
from fedgranger.data.client_data import ClientData

T = 30
STARTS = np.zeros(T, dtype=np.bool_)
STARTS[[0, 12]] = True


@pytest.fixture(scope="module")
def stream():
    rng = np.random.default_rng(0)
    model = LocalModel(
        np.array([[0.7, 0.2], [-0.1, 0.5]]),
        rng.standard_normal((3, 2)),
        np.eye(2),
        np.diag([1.0, 0.5, 2.0]),
        np.array([10.0, -5.0, 0.0]),
        np.array([2.0, 0.1, 1.0]),
    )
    values = rng.standard_normal((T, 3)) * model.scale + model.centre
    observed = np.ones((T, 3), dtype=np.bool_)
    observed[5, 1] = observed[20] = observed[21] = False
    return filter_data(
        ClientData("pump", ("a", "b", "c"), np.where(observed, values, 0.0), observed),
        model,
        STARTS,
    )


def test_flags_written_out(stream):
    expected_observed = np.array([t not in (5, 20, 21) for t in range(T)])
    expected_next = np.array(
        [t not in (4, 5, 19, 20, 21, 11, T - 1) for t in range(T)]  # 11: 12 starts a segment
    )
    np.testing.assert_array_equal(stream.is_observed, expected_observed)
    np.testing.assert_array_equal(stream.has_next, expected_next)


@pytest.mark.parametrize(("start", "stop"), [(0, T - 1), (3, 8), (18, T - 1), (T - 2, T - 1)])
def test_steps_vs_formulas(stream, start, stop):
    model = stream.model
    got = stream.steps(start, stop)
    CA = model.observation_matrix @ model.self_transition
    assert all(len(field) == stop - start for field in got)
    for k, t in enumerate(range(start, stop)):
        h_c = stream.filtered_states[t]
        y = (stream.values[t] - model.centre) / model.scale
        y_next = (stream.values[t + 1] - model.centre) / model.scale
        nu = y_next - CA @ h_c if stream.has_next[t] else np.zeros(3)
        expected_y = y if stream.is_observed[t] else np.zeros(3)
        np.testing.assert_allclose(got.measurements[k], expected_y, atol=1e-12)
        np.testing.assert_array_equal(got.filtered_states[k], h_c)
        np.testing.assert_allclose(got.local_targets[k], CA.T @ nu, atol=1e-12)
        assert got.local_energies[k] == pytest.approx(nu @ nu, abs=1e-12)
        assert got.is_observed[k] == stream.is_observed[t]
        assert got.has_next[k] == stream.has_next[t]


def test_scaled_is_zero_where_missing(stream):
    y = stream.scaled(4, 7)
    assert not y[1].any()
    assert y[0].all()
    assert y[2].all()


def test_filter_predicts_through_gaps_and_restarts(stream):
    A, h = stream.model.self_transition, stream.filtered_states
    np.testing.assert_allclose(h[5], A @ h[4], atol=1e-12)
    np.testing.assert_allclose(h[21], A @ A @ h[19], atol=1e-12)
    fresh = filter_data(
        ClientData("pump", ("a", "b", "c"), stream.values[12:18], np.ones((6, 3), dtype=np.bool_)),
        stream.model,
        STARTS[12:18],
    )
    np.testing.assert_allclose(h[12:18], fresh.filtered_states, atol=1e-12)


def test_measured_moments_leave_out_the_last_step_and_missing_rows(stream):
    rows = stream.scaled(0, T - 1)[stream.is_observed[:-1]]
    full = measured_moments(stream, T - 1)
    np.testing.assert_allclose(full.mean, rows.T @ rows / len(rows), atol=1e-12)
    assert full.gain == pytest.approx(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1])
    single = measured_moments(stream, 1)
    np.testing.assert_allclose(single.mean, full.mean, atol=1e-12)
    assert single.gain > full.gain


def test_state_moments_use_every_step_but_the_last(stream):
    h = stream.filtered_states[:-1]
    full = state_moments(stream, T - 1)
    np.testing.assert_allclose(full.mean, h.T @ h / (T - 1), atol=1e-12)
    assert full.gain == pytest.approx(np.linalg.eigvalsh(h.T @ h / (T - 1))[-1])


def test_values_are_not_copied_or_changed(stream):
    values = np.random.default_rng(1).standard_normal((T, 3))
    before = values.copy()
    client = ClientData("pump", ("a", "b", "c"), values, np.ones((T, 3), dtype=np.bool_))
    again = kalman.filter_data(client, stream.model, STARTS)
    again.steps(0, T - 1)
    assert again.values is values
    np.testing.assert_array_equal(values, before)
