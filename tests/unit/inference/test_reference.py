"""What the server expects of states: predictions, and how others explain an anomaly."""

import numpy as np
import pytest

from fedgranger.errors import InferenceError
from fedgranger.inference.reference import examine_states, learn_reference
from fedgranger.inference.states import StateChunk, StateSource

NAMES, DIMS = ("a", "b", "c"), (2, 1, 1)
A = np.array(
    [[0.5, 0.1, 0.0, 0.0], [0.0, 0.4, 0.0, 0.0], [0.6, 0.0, 0.3, 0.0], [0.0, 0.0, 0.0, 0.6]]
)  # a drives b, c is alone


def simulate(num_steps, seed=0, shock=None):
    rng = np.random.default_rng(seed)
    x = np.zeros((num_steps, 4))
    for t in range(1, num_steps):
        x[t] = A @ x[t - 1] + rng.standard_normal(4)
        if shock is not None and t >= num_steps // 2:
            x[t] += shock
    return x + 5.0


def source_of(states, observed=None, chunk=1000):
    observed = np.ones((len(states), 3), bool) if observed is None else observed
    starts = np.zeros(len(states), bool)
    starts[0] = True

    def chunks():
        for k in range(0, len(states), chunk):
            rows = slice(k, k + chunk)
            yield StateChunk(states[rows], observed[rows], starts[rows])

    return StateSource(
        NAMES, DIMS, tuple(np.zeros((d, d)) for d in DIMS), chunks, len(states), (1,) * len(DIMS)
    )


def examined(reference, states):
    starts = np.zeros(len(states), bool)
    starts[0] = True
    return examine_states(reference, states, np.ones((len(states), 3), bool), starts)


def test_predictions_vs_least_squares():
    states = simulate(4000)
    reference = learn_reference(source_of(states))
    x = states - states.mean(axis=0)
    exact = np.linalg.lstsq(x[:-1], x[1:], rcond=None)[0].T
    np.testing.assert_allclose(reference.cross, exact, atol=0.02)  # ridge of 1 %
    np.testing.assert_allclose(reference.cross, A, atol=0.06)
    own = np.linalg.lstsq(x[:-1, :2], x[1:, :2], rcond=None)[0].T
    np.testing.assert_allclose(reference.own[:2, :2], own, atol=0.02)
    assert not reference.own[:2, 2:].any()


def test_energies_are_one_in_normal_operation():
    states = simulate(4000)
    found = examined(learn_reference(source_of(states)), states)
    assert np.isnan(found.own[0]).all()
    np.testing.assert_allclose(np.nanmean(found.own, axis=0), 1.0, atol=0.02)
    np.testing.assert_allclose(np.nanmean(found.cross, axis=0), 1.0, atol=0.02)
    assert (found.deviation > 1).mean(axis=0) == pytest.approx([0.01] * 3, abs=0.002)


def test_others_explain_what_comes_from_them_and_nothing_else():
    reference = learn_reference(source_of(simulate(4000)))
    at_a = examined(reference, simulate(400, seed=1, shock=np.array([6.0, 0, 0, 0])))
    late = slice(210, None)
    share = at_a.cross[late].mean(axis=0) / at_a.own[late].mean(axis=0)
    assert share[1] < 0.3  # b follows a
    assert share[0] > 0.8
    without = at_a.without[late].mean(axis=0)
    assert np.nanargmax(np.where(np.eye(3), np.nan, without)[1]) == 0
    at_b = examined(reference, simulate(400, seed=1, shock=np.array([0, 0, 6.0, 0])))
    assert at_b.cross[late].mean(axis=0)[1] / at_b.own[late].mean(axis=0)[1] > 0.8


def test_only_allowed_causes_explain():
    allowed = np.zeros((3, 3), bool)
    reference = learn_reference(source_of(simulate(4000)), allowed)
    np.testing.assert_allclose(reference.cross, reference.own)
    allowed[1, 0] = True
    reference = learn_reference(source_of(simulate(4000)), allowed)
    assert reference.cross[2, 0] == pytest.approx(0.6, abs=0.05)
    assert not reference.cross[3, :3].any()
    assert not reference.cross[0, 2:].any()


def test_chunks_and_gaps_do_not_matter():
    states = simulate(900)
    observed = np.random.default_rng(2).random((900, 3)) > 0.05
    one = learn_reference(source_of(states, observed, chunk=900))
    many = learn_reference(source_of(states, observed, chunk=7))
    for a, b in zip(one[2:], many[2:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    starts = np.zeros(900, bool)
    found = examine_states(one, states, observed, starts)
    paired = observed[1:] & observed[:-1]
    np.testing.assert_array_equal(~np.isnan(found.own[1:]), paired)


def test_too_few_steps_are_refused():
    with pytest.raises(InferenceError, match="too few for 4 states"):
        learn_reference(source_of(simulate(6)))
