"""The regression that forecasts come from, against statsmodels and exact coefficients."""

import numpy as np
import pytest
from statsmodels.tsa.api import VAR

from fedgranger.inference import predictor
from fedgranger.inference.predictor import find_predictor
from tests.state_sources import (
    add_errors,
    random_covs,
    random_transition,
    simulate_states,
    source_of,
)

DIMS = (1, 2, 1)


def made(seed=0, num_steps=1500, noise=1.0, lags=1):
    rng = np.random.default_rng(seed)
    states = simulate_states(rng, random_transition(rng, 4, lags, radius=0.9), num_steps)
    return 3 + add_errors(rng, states, random_covs(rng, DIMS, noise))


def one_step(found, states):
    P, width = found.transition.shape
    lags = width // P
    past = [states[lags - k : len(states) - k] for k in range(1, lags + 1)]
    return found.constant + np.concatenate(past, axis=1) @ found.transition.T, states[lags:]


@pytest.mark.parametrize("seed", range(3))
def test_lags_and_coefficients_are_those_of_statsmodels(seed):
    states = made(seed, lags=2)
    found = find_predictor(source_of(states, DIMS), 8)
    theirs = VAR(states).fit(maxlags=8, ic="aic")
    assert found.transition.shape[1] == 4 * theirs.k_ar > 4
    ours, there = one_step(found, states)
    np.testing.assert_allclose(ours, there - theirs.resid, atol=0.02)


def test_a_client_s_long_memory_counts_beside_the_lags_that_are_tested():
    """A season of nine steps at one client: it said so when it chose its own lags."""
    rng = np.random.default_rng(5)
    A = np.zeros((4, 36))
    A[0, 32] = 0.8
    states = simulate_states(rng, A, 2000)
    short, long = (
        find_predictor(source_of(states, DIMS, own_lags=k), 3) for k in ((1,) * 3, (9, 1, 1))
    )
    left = [
        np.var(there[:, 0] - ours[:, 0])
        for ours, there in (one_step(f, states) for f in (short, long))
    ]
    assert left[1] < 0.5 * left[0]


def test_missing_steps_are_left_out():
    states = made(noise=0.1)
    observed = np.ones((len(states), 3), dtype=bool)
    observed[::40, 1] = False
    found = find_predictor(source_of(states, DIMS, observed=observed), 2)
    whole = find_predictor(source_of(states, DIMS), 2)
    assert found.transition.shape == whole.transition.shape
    np.testing.assert_allclose(found.transition, whole.transition, atol=0.05)
    scattered = np.ones_like(observed)
    scattered[::4, 1] = False  # three steps in a row at most: fewer lags are better than none
    assert find_predictor(source_of(states, DIMS, observed=scattered), 8).transition.shape[1] <= 8


def test_states_that_depend_on_each_other_share_their_coefficients():
    states = made()
    states[:, 3] = states[:, 0]
    found = find_predictor(source_of(states, DIMS), 2)
    alone = find_predictor(source_of(states[:, :3], DIMS[:2]), 2)
    ours, theirs = (one_step(f, states[:, : len(f.constant)])[0] for f in (found, alone))
    np.testing.assert_allclose(ours[-100:, :3], theirs[-100:], atol=1e-3)


def test_noise_that_clients_added_is_taken_out():
    """Then they are the coefficients of the states without it."""
    rng = np.random.default_rng(2)
    A = random_transition(rng, 4, radius=0.8)
    states, N = simulate_states(rng, A, 60_000), random_covs(rng, DIMS, 0.5)
    noisy = source_of(add_errors(rng, states, N), DIMS)
    found = find_predictor(noisy._replace(added_covs=N), 1)
    np.testing.assert_allclose(found.transition, A, atol=0.05)
    assert abs(find_predictor(noisy, 1).transition[:, :4] - A).max() > 0.1


def test_many_states_have_few_lags(monkeypatch):
    monkeypatch.setattr(predictor, "MOST_COLUMNS", 9)
    states = made(lags=2)
    assert find_predictor(source_of(states, DIMS, own_lags=(30, 1, 1)), 8).transition.shape[1] == 8
    monkeypatch.setattr(predictor, "MOST_COLUMNS", 3)
    assert find_predictor(source_of(states, DIMS), 8).transition.shape == (4, 4)


def test_too_few_steps_have_none():
    assert find_predictor(source_of(made(num_steps=8), DIMS), 3) is None
    assert find_predictor(source_of(made(num_steps=10), DIMS), 3).transition.shape == (4, 4)
