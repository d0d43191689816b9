"""How far back a client's own past matters, by its own data."""

import numpy as np
import pytest

from fedgranger.client import state_noise
from fedgranger.client.state_noise import own_order


def autoregression(coefficients, T, seed=0):
    rng, x = np.random.default_rng(seed), np.zeros((T, 1))
    noise = rng.standard_normal(T)
    for t in range(T):
        past = [x[t - k - 1, 0] if t > k else 0.0 for k in range(len(coefficients))]
        x[t, 0] = np.dot(coefficients, past) + noise[t]
    return x


def order_of(states, observed=None, starts=(0,), **options):
    T = len(states)
    observed = np.ones(T, dtype=bool) if observed is None else observed
    return own_order(states, observed, np.isin(np.arange(T), starts), **options)


@pytest.mark.parametrize("coefficients", [[0.5], [0.3, 0.0, 0.4], [0.0, 0.0, 0.0, 0.0, 0.6]])
def test_the_order_of_a_long_autoregression_is_found(coefficients):
    assert order_of(autoregression(coefficients, 3000)) == len(coefficients)


def test_windows_do_not_matter(monkeypatch):
    x = autoregression([0.3, 0.0, 0.4], 3000)
    x[-100:] = autoregression([0.9], 100, seed=1)  # the last window alone would say another order
    whole = order_of(x)
    monkeypatch.setattr(state_noise, "STEPS_AT_ONCE", 100)
    assert order_of(x) == whole == 3


def test_it_is_the_smallest_criterion_of_plain_least_squares():
    x = autoregression([0.4, 0.3], 400)[:, :1]
    scores, largest = [], 6
    for order in range(1, largest + 1):
        rows = np.arange(largest, len(x))
        X = np.column_stack([np.ones(len(rows)), *(x[rows - k] for k in range(1, order + 1))])
        rest = x[rows] - X @ np.linalg.lstsq(X, x[rows], rcond=None)[0]
        n = len(rows)
        scores.append(np.log((rest**2).mean()) + np.log(n) / n * (1 + order))
    assert order_of(x, largest=largest) == 1 + int(np.argmin(scores))


def test_units_and_coordinates_do_not_matter():
    rng = np.random.default_rng(1)
    x = np.cumsum(rng.standard_normal((500, 2)), axis=0) * 0.1 + rng.standard_normal((500, 2))
    turned = x @ np.array([[1e5, 3.0], [0.0, 1e-3]]) + 7.0
    assert order_of(x) == order_of(turned)


def test_gaps_cost_rows_and_nothing_else():
    x = autoregression([0.0, 0.0, 0.6], 4000)
    observed = np.ones(4000, dtype=bool)
    observed[::50] = False
    assert order_of(x, observed, starts=(0, 1000), largest=10) == 3


def test_a_short_or_broken_record_has_order_one():
    assert order_of(np.random.default_rng(0).standard_normal((8, 2))) == 1
    assert order_of(np.ones((200, 1))) == 1
    assert order_of(np.ones((20, 1)), np.zeros(20, dtype=bool)) == 1
