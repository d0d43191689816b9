"""E and A from the states' own lags: known limits, consistency, size and what J rejects."""

import numpy as np
import pytest
from scipy import optimize, stats

from fedgranger.errors import InferenceError
from fedgranger.inference import lag_moments as module
from fedgranger.inference.lag_moments import lag_moment_check
from fedgranger.inference.noise_correction import choose_noise
from tests.state_sources import add_errors, random_transition, simulate_states, source_of

CHAIN = np.array([[0.7, 0.0, 0.0], [0.4, 0.6, 0.0], [0.0, 0.3, 0.5]])
COVS = [np.eye(1) * e for e in (0.5, 1.0, 0.3)]


def made(seed, num_steps, covs=COVS, transition=CHAIN):
    rng = np.random.default_rng(seed)
    return add_errors(rng, simulate_states(rng, transition, num_steps), covs)


def closed_loop(seed, num_steps, share):
    """A controller feeds a share of the dynamics back from the noisy reading."""
    rng = np.random.default_rng(seed)
    h, s = np.zeros(3), np.zeros((num_steps, 3))
    for t in range(num_steps):
        s[t] = h + rng.normal(size=3)
        h = CHAIN @ ((1 - share) * h + share * s[t]) + rng.normal(size=3)
    return s[200:]


def test_finds_both_in_a_long_recording():
    found = lag_moment_check(source_of(made(0, 200_000), (1, 1, 1)))
    np.testing.assert_allclose(found.transition, CHAIN, atol=0.05)
    np.testing.assert_allclose(np.ravel(found.error_covs), [0.5, 1.0, 0.3], atol=0.1)
    assert found.df == 18 - 9 - 3
    assert found.p_value == pytest.approx(stats.chi2.sf(found.statistic, 6))
    assert found.p_value > 0.001


def test_error_declared_by_the_clients_plays_no_part():
    states = made(1, 3000)
    found = lag_moment_check(source_of(states, (1, 1, 1)))
    other = lag_moment_check(source_of(states, (1, 1, 1), [9 * E for E in COVS]))
    np.testing.assert_array_equal(found.transition, other.transition)


@pytest.mark.slow  # Monte Carlo over many data sets; parts of it are tested by formula
def test_j_holds_its_level():
    p = [lag_moment_check(source_of(made(seed, 2000), (1, 1, 1))).p_value for seed in range(60)]
    assert np.mean(np.array(p) < 0.05) <= 0.17
    assert min(p) > 0.0005


def test_closed_loop_has_no_error_to_take_out_and_the_mixed_case_is_rejected():
    """All feedback from the reading: the reading is the state. Half of it: neither holds."""
    loop = lag_moment_check(source_of(closed_loop(2, 20_000, 1.0), (1, 1, 1)))
    assert loop.p_value > 0.001
    assert np.abs(np.ravel(loop.error_covs)).max() < 0.25  # the true noise has variance one
    rng = np.random.default_rng(3)
    mixing = np.linalg.cholesky(
        0.4 * np.eye(3) + 0.6
    )  # error shared by clients: not block diagonal
    shared = simulate_states(rng, CHAIN, 20_000) + rng.normal(size=(20_000, 3)) @ mixing.T
    assert lag_moment_check(source_of(shared, (1, 1, 1))).p_value < 0.001


def test_coordinates_and_units_do_not_matter():
    rng = np.random.default_rng(4)
    A, dims = random_transition(rng, 3), (1, 2)
    states = made(5, 4000, [np.eye(1), np.eye(2)], A)
    unit = np.array([1e5, 1.0, 1e-3])
    found = lag_moment_check(source_of(states, dims))
    other = lag_moment_check(source_of(states * unit + 3.0, dims))
    assert other.statistic == pytest.approx(found.statistic, rel=1e-6)
    np.testing.assert_allclose(
        other.transition, found.transition * np.outer(unit, 1 / unit), rtol=1e-5
    )
    np.testing.assert_allclose(other.error_covs[0], found.error_covs[0] * 1e10, rtol=1e-5)


def test_missing_samples():
    observed = np.random.default_rng(6).random((20_000, 3)) > 0.05
    found = lag_moment_check(source_of(made(7, 20_000), (1, 1, 1), observed=observed))
    np.testing.assert_allclose(found.transition, CHAIN, atol=0.2)


def test_refusals():
    with pytest.raises(InferenceError, match="30 steps for the 18 lag moments of 3 states"):
        lag_moment_check(source_of(made(8, 32), (1, 1, 1)))
    with pytest.raises(InferenceError, match="at least one state in two clients"):
        lag_moment_check(source_of(made(9, 500)[:, :1], (1,)))
    states = made(10, 500)
    states[:, 2] = states[:, 0]
    with pytest.raises(InferenceError, match="collinear"):
        lag_moment_check(source_of(states, (1, 1, 1)))


def test_a_singular_weight_is_refused_in_words(monkeypatch):
    """Seen on three states of bursty server recordings; the caller goes on without the check."""
    rng = np.random.default_rng(0)
    source = source_of(simulate_states(rng, 0.5 * np.eye(2), 400), (1, 1))
    monkeypatch.setattr(module, "_long_run", lambda *_: np.zeros((8, 8)))
    with pytest.raises(InferenceError, match="too uncertain to check their measurement noise"):
        lag_moment_check(source)
    assert choose_noise(source).source is source


def test_minimum_vs_a_search_over_transition_and_noise_together():
    """Variable projection finds what a general search over A and E finds, weighted or not."""
    rng = np.random.default_rng(8)
    P, dims = 3, (1, 2)
    A, E = 0.5 * rng.standard_normal((P, P)), np.diag(rng.random(P))
    zero = np.eye(P) + E
    one = A @ (zero - E)
    noise = 0.05 * rng.standard_normal((2, P, P))
    gamma = (zero, one + noise[0], A @ one + noise[1], one)
    basis = module._error_basis(dims)
    for weight in (np.eye(2 * P * P), np.tril(rng.standard_normal((2 * P * P, 2 * P * P)))):

        def moments(x, weight=weight):
            A, E = x[: P * P].reshape(P, P), np.tensordot(x[P * P :], basis, 1)
            first, second = gamma[1] - A @ (gamma[0] - E), gamma[2] - A @ gamma[3]
            return weight @ np.concatenate([first.reshape(-1), second.reshape(-1)])

        found = module._minimise(gamma, basis, np.zeros(len(basis)), weight)
        start = np.concatenate([found[0].reshape(-1), found[1]])
        np.testing.assert_allclose(moments(start) @ moments(start), found[2], rtol=1e-9)
        better = optimize.least_squares(moments, start, xtol=1e-14, ftol=1e-14, gtol=1e-14)
        assert found[2] <= 2 * better.cost * (1 + 1e-6) + 1e-14
        elsewhere = optimize.least_squares(moments, np.zeros(len(start)))
        assert found[2] <= 2 * elsewhere.cost * (1 + 1e-6) + 1e-14


def test_nearly_white_states_do_not_send_the_search_away():
    """Clients of which hardly anything but noise is seen: E stays below the states' variance."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        A = np.diag([0.9, 0.8, 0.7])
        A[1, 0] = 0.3
        states = simulate_states(rng, A, 2000)
        covs = [np.array([[0.1]]), np.array([[0.1]]), np.array([[40.0]])]
        found = lag_moment_check(source_of(add_errors(rng, states, covs), (1, 1, 1)))
        assert found.p_value > 1e-3
        for E, cov in zip(found.error_covs, found.state_covs, strict=True):
            assert abs(E[0, 0]) <= cov[0, 0] * (1 + 1e-9)
