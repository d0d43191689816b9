"""The noise floor: closed forms, another computation, invariants, and what sampling error does."""

import numpy as np
import pytest
import scipy.linalg

from fedgranger.linalg.noise_floor import (
    SMALLEST_SHARE,
    LagMoments,
    noise_floor,
    order_for,
    plain_share,
)
from fedgranger.linalg.spectral import spectral_radius
from tests.state_sources import random_covs, random_transition, simulate_states

HIGHEST = np.cos(np.pi * 127.5 / 128)
"""Cosine of the highest of the 128 frequencies."""


def exact_moments(transition, process_cov, error_cov, lags, num_windows=1000):
    """Moments of an autoregression of order one with white error, from its Lyapunov equation."""
    gamma = [scipy.linalg.solve_discrete_lyapunov(transition, process_cov)]
    for _ in range(lags):
        gamma.append(transition @ gamma[-1])
    gamma[0] = gamma[0] + error_cov
    rows = [[gamma[i - j].T if i >= j else gamma[j - i] for j in range(lags)] for i in range(lags)]
    return LagMoments(np.block(rows), np.concatenate(gamma[1:], axis=1), gamma[0], num_windows)


def sample_moments(series, lags):
    n = len(series)
    x = np.concatenate([series[lags - k : n - k] for k in range(lags + 1)], axis=1)
    total, p = x.T @ x / len(x), series.shape[1]
    return LagMoments(total[p:, p:], total[:p, p:], total[:p, :p], len(x))


def test_white_series_holds_its_own_variance():
    moments = LagMoments(np.eye(1), np.zeros((1, 1)), np.eye(1), 500)
    assert plain_share(moments, np.array([[4.0]])) == pytest.approx(0.25, rel=1e-9)
    assert noise_floor(moments, np.array([[4.0]])).share == pytest.approx(0.25, rel=1e-9)


@pytest.mark.parametrize("a", [0.3, 0.9, 0.999])
def test_autoregression_vs_closed_form(a):
    """S(ω) = q/|1 − a e^{-iω}|² is smallest at the highest frequency."""
    moments = exact_moments(np.array([[a]]), np.eye(1), np.zeros((1, 1)), 3)
    smallest = 1 / (1 - 2 * a * HIGHEST + a**2)
    assert plain_share(moments, np.array([[2.0]])) == pytest.approx(smallest / 2, rel=1e-6)


def test_share_vs_generalised_eigenvalues_of_the_spectrum():
    rng = np.random.default_rng(0)
    A, (Q,), (E,) = random_transition(rng, 3), random_covs(rng, (3,)), random_covs(rng, (3,))
    smallest = np.inf
    for k in range(128):
        H = np.linalg.inv(np.eye(3) - A * np.exp(-1j * np.pi * (k + 0.5) / 128))
        smallest = min(smallest, scipy.linalg.eigh(H @ Q @ H.conj().T, E, eigvals_only=True)[0])
    moments = exact_moments(A, Q, np.zeros((3, 3)), 2)
    assert plain_share(moments, E) == pytest.approx(smallest, rel=1e-6)


def test_all_of_the_true_error_fits():
    """A long autoregression of states with error has room for all of it, and for little more."""
    E = np.array([[2.0]])
    moments = exact_moments(np.array([[0.9]]), 0.05 * np.eye(1), E, 30)
    assert 1.0 <= plain_share(moments, E) == pytest.approx(1 + 0.05 / 1.9**2 / 2, abs=2e-3)


def test_share_does_not_depend_on_coordinates():
    rng = np.random.default_rng(1)
    A, (Q,), (E,) = random_transition(rng, 3), random_covs(rng, (3,)), random_covs(rng, (3,), 9.0)
    moments, M = exact_moments(A, Q, np.zeros((3, 3)), 2), rng.normal(size=(3, 3))
    wide = np.kron(np.eye(2), M)
    turned = LagMoments(
        wide @ moments.before @ wide.T,
        M @ moments.lag @ wide.T,
        M @ moments.after @ M.T,
        moments.num_windows,
    )
    share = noise_floor(moments, E).share
    assert 0 < share < 1
    assert noise_floor(turned, M @ E @ M.T).share == pytest.approx(share, rel=1e-8)


def test_share_is_inverse_to_the_error():
    rng = np.random.default_rng(2)
    A, (Q,), (E,) = random_transition(rng, 2), random_covs(rng, (2,)), random_covs(rng, (2,), 9.0)
    moments = exact_moments(A, Q, np.zeros((2, 2)), 2)
    shares = [noise_floor(moments, scale * E).share for scale in (1.0, 10.0)]
    assert shares[1] == pytest.approx(shares[0] / 10, rel=1e-8)


def test_error_in_some_directions_only():
    """E = 0 for one of two independent series: the other alone decides."""
    moments = exact_moments(np.diag([0.5, 0.9]), np.eye(2), np.zeros((2, 2)), 2)
    alone = exact_moments(np.array([[0.5]]), np.eye(1), np.zeros((1, 1)), 2)
    expected = noise_floor(alone, np.array([[5.0]])).share
    assert noise_floor(moments, np.diag([5.0, 0.0])).share == pytest.approx(expected, rel=1e-8)


def test_no_error_has_nothing_to_limit():
    moments = exact_moments(np.array([[0.5]]), np.eye(1), np.zeros((1, 1)), 2)
    assert noise_floor(moments, np.zeros((1, 1))) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_corrected_moments_are_those_of_a_stable_process(seed):
    """(Γ1)(Γ0 − cE)⁻¹ has no root outside the unit circle, however large E is said to be."""
    rng = np.random.default_rng(seed)
    A, (Q,), (E,) = random_transition(rng, 3, radius=0.98), *(random_covs(rng, (3,)),) * 2
    moments = exact_moments(A, Q, np.zeros((3, 3)), 4)
    share = noise_floor(moments, 30 * E).share
    assert share < 1
    corrected = moments.lag[:, :3] @ np.linalg.inv(moments.after - share * 30 * E)
    assert spectral_radius(corrected) < 1


def test_smooth_series_leaves_no_room():
    t = np.arange(2000.0)
    series = np.column_stack([np.sin(0.01 * t), np.cos(0.023 * t)])
    assert noise_floor(sample_moments(series, 4), 0.01 * np.eye(2)).share == SMALLEST_SHARE


def test_sampling_error_alone_does_not_bind():
    """True error, three times the signal at high frequencies: ĉ < 1 almost always, c = 1."""
    raw = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        A = random_transition(rng, 2, radius=0.9)
        noise = np.sqrt(3.0) * rng.normal(size=(500, 2))
        floor = noise_floor(sample_moments(simulate_states(rng, A, 500) + noise, 10), 3 * np.eye(2))
        raw.append(floor.largest)
        assert floor.share == 1.0
    assert np.mean(np.array(raw) < 1) > 0.5


def test_twice_the_true_error_binds():
    rng = np.random.default_rng(3)
    states = simulate_states(rng, np.diag([0.9, 0.8]), 4000) + rng.normal(size=(4000, 2))
    floor = noise_floor(sample_moments(states, 10), 3 * np.eye(2))
    assert floor.largest == floor.share == pytest.approx(1.25 / 3, rel=0.2)
    assert floor.share < floor.bound


@pytest.mark.parametrize(
    ("steps", "dim", "order"), [(100_000, 2, 10), (200, 2, 5), (30, 2, 1), (8, 2, 0)]
)
def test_order(steps, dim, order):
    assert order_for(steps, dim) == order


def test_added_noise_leaves_what_is_left_for_the_error():
    """Analytic: a white series of variance 1 with N = 0.6 has room for 0.4."""
    white = LagMoments(np.eye(1), np.zeros((1, 1)), np.eye(1), 500)
    N = np.array([[0.6]])
    assert noise_floor(white, np.array([[4.0]]), N).share == pytest.approx(0.1, rel=1e-9)
    assert noise_floor(white, np.array([[0.3]]), N).share == 1.0
    assert noise_floor(white, np.array([[1.0]]), 2 * N).largest == SMALLEST_SHARE
    nothing = noise_floor(white, np.array([[4.0]]), 0 * N)
    assert nothing == pytest.approx(noise_floor(white, np.array([[4.0]])), rel=1e-9)


def test_added_noise_vs_share_of_the_series_without_it():
    """White noise adds N to S at every frequency, so S - N has the share of the plain series."""
    A, Q, E, N = np.array([[0.9, 0.2], [0.0, 0.5]]), np.eye(2), 20 * np.eye(2), np.diag([1.0, 3.0])
    plain = noise_floor(exact_moments(A, Q, np.zeros((2, 2)), 10), E)
    noisy = noise_floor(exact_moments(A, Q, N, 10), E, N)
    assert noisy.largest == pytest.approx(plain.largest, rel=0.02)
