"""Weights of time steps and tracked moments: against loops, closed forms and the paper's bound."""

import numpy as np
import pytest

from fedgranger.linalg.time_weights import (
    WEIGHTINGS,
    Weighting,
    forgetting_factor,
    tracked_means,
)

KINDS = [
    Weighting("none"),
    Weighting("ewma", 7.0),
    Weighting("window", 9),
    Weighting("window", 10**6),
    Weighting("periodic", 5),
    Weighting("periodic", 96),
    Weighting("regime", 0, 60),
    Weighting("regime", 12, 60),
]


def tracked_moments(values, weighting, initial=None):
    """Mean and second moment (not centred) at every step, as means of the values and products."""
    T, n = values.shape
    products = (values[:, :, None] * values[:, None, :]).reshape(T, n * n)
    start = None if initial is None else np.concatenate([initial[0], initial[1].reshape(-1)])
    both = tracked_means(np.concatenate([values, products], axis=1), weighting, start)
    return both[:, :n], both[:, n:].reshape(T, n, n)


def weighted_moments(values, weights):
    """Mean and second moment with the weights of one target time."""
    share = weights / weights.sum()
    return share @ values, (share[:, None] * values).T @ values


def effective_number(weights):
    """(Σw)²/Σw²: how many equally weighted steps have as much information."""
    square = float((weights**2).sum())
    return float(weights.sum()) ** 2 / square if square else 0.0


@pytest.mark.parametrize("weighting", KINDS, ids=str)
def test_tracked_moments_vs_weights_of_every_target(weighting):
    x = np.random.default_rng(0).normal(size=(150, 2))
    found_mean, found_second = tracked_moments(x, weighting)
    for t in range(len(x)):
        past = np.arange(t + 1)
        mean, second = weighted_moments(x[past], weighting.weights(past, t))
        np.testing.assert_allclose(found_mean[t], mean, atol=1e-11)
        np.testing.assert_allclose(found_second[t], second, atol=1e-11)


@pytest.mark.parametrize("weighting", KINDS[1:], ids=str)
def test_the_future_has_no_weight_and_the_target_weight_one(weighting):
    weights = weighting.weights(np.arange(100), 70)
    assert (weights[71:] == 0).all()
    assert weights[70] == 1.0


def test_ewma_is_the_papers_recursion():
    x = np.random.default_rng(1).normal(size=(60, 2))
    rate = forgetting_factor(5.0)
    mean, second = np.array([0.3, -0.1]), np.array([[2.0, 0.4], [0.4, 1.0]])
    found_mean, found_second = tracked_moments(x, Weighting("ewma", 5.0), (mean, second))
    for t, row in enumerate(x):
        mean = (1 - rate) * mean + rate * row
        second = (1 - rate) * second + rate * np.outer(row, row)
        np.testing.assert_allclose(found_mean[t], mean, atol=1e-13)
        np.testing.assert_allclose(found_second[t], second, atol=1e-13)


@pytest.mark.parametrize("kind", ["ewma", "window"])
def test_infinite_span_equals_the_stationary_moments(kind):
    x = np.random.default_rng(2).normal(size=(400, 3)) + 1.0
    mean, second = x.mean(axis=0), x.T @ x / len(x)
    span = Weighting(kind, 10**14)
    found_mean, found_second = tracked_moments(x, span, (mean, second))
    np.testing.assert_allclose(found_mean, np.tile(mean, (400, 1)), atol=1e-10)
    np.testing.assert_allclose(found_second, np.tile(second, (400, 1, 1)), atol=1e-10)
    at_end = weighted_moments(x, span.weights(np.arange(400), 399))
    np.testing.assert_allclose(at_end[0], mean, atol=1e-10)
    np.testing.assert_allclose(at_end[1], second, atol=1e-10)


def lag_behind(moment, half_life, delta, rng):
    """Mean distance of the tracked moment from the drifting one, over the second half."""
    T, copies = 4000, 300
    path = 1.0 + delta * np.arange(T)
    x = rng.normal(size=(T, copies))
    values = path[:, None] + 0.3 * x if moment == "mean" else path[:, None] * x**2
    tracked = tracked_means(values, Weighting("ewma", half_life)).mean(axis=1)
    return np.abs(tracked - path)[T // 2 :].mean()


@pytest.mark.parametrize("moment", ["mean", "second"])
def test_error_of_tracked_moments_follows_the_bound(moment):
    """O(δ/λ): slope −1 in λ, slope 1 in δ, and never above δ (1 − λ)/λ but for sampling error."""
    rng = np.random.default_rng(3)
    half_lives = np.array([50.0, 100.0, 200.0])
    rates = np.array([forgetting_factor(span) for span in half_lives])
    errors = np.array([lag_behind(moment, span, 0.02, rng) for span in half_lives])
    slope = np.polyfit(np.log(rates), np.log(errors), 1)[0]
    assert abs(slope + 1) < 0.1
    np.testing.assert_allclose(errors, 0.02 * (1 - rates) / rates, rtol=0.1)
    deltas = np.array([0.01, 0.02, 0.04])
    errors = np.array([lag_behind(moment, 100.0, delta, rng) for delta in deltas])
    assert abs(np.polyfit(np.log(deltas), np.log(errors), 1)[0] - 1) < 0.1


def test_effective_number():
    steps = np.arange(5000)
    rate = forgetting_factor(40.0)
    ewma = effective_number(Weighting("ewma", 40.0).weights(steps, 4999))
    assert ewma == pytest.approx((2 - rate) / rate, rel=1e-6)
    assert effective_number(Weighting("window", 120).weights(steps, 4999)) == pytest.approx(120)
    assert effective_number(Weighting("periodic", 24).weights(steps, 4999)) == 209
    assert effective_number(np.zeros(3)) == 0.0


def test_periodic_weights_are_the_same_hour_of_the_day():
    minutes = np.arange(3 * 1440)
    weights = Weighting("periodic", 1440).weights(minutes, 3 * 1440 - 1)
    hour = np.flatnonzero(weights[:1440])
    # the last minute of a day: half an hour before it and half an hour after
    assert set(hour) == {*range(30), *range(1440 - 31, 1440)}


def test_every_kind_is_known_to_the_options():
    from fedgranger.config import RunConfig

    for kind in WEIGHTINGS:
        assert RunConfig(weighting=kind, weighting_span=2).weighting == kind
