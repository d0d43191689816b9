"""Intervals of an edge's strength: the range of the norm over the test's ellipsoid."""

import numpy as np
import pytest
from scipy import optimize, stats

import fedgranger as fg
from fedgranger.inference.strength import strength_intervals


def random_problem(seed, k=4, shift=1.0):
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((k, k)) * rng.uniform(0.1, 1.0, k)[:, None]
    return shift * rng.standard_normal(k), L @ L.T + 1e-3 * np.eye(k)


@pytest.mark.parametrize("seed", range(6))
def test_ends_vs_constrained_optimiser(seed):
    a, V = random_problem(seed, shift=3.0)
    c = 5.0
    low, high = strength_intervals(a, V, np.array(c))
    inverse = np.linalg.inv(V)
    inside = {"type": "ineq", "fun": lambda b: c - (a - b) @ inverse @ (a - b)}
    farthest = -np.inf
    for sign in (1, -1):
        for column in np.linalg.eigh(V)[1].T:
            start = a + sign * 0.5 * column * np.sqrt(c * np.linalg.eigvalsh(V)[0])
            found = optimize.minimize(
                lambda b: -(b @ b), start, constraints=[inside], options={"ftol": 1e-12}
            )
            if inside["fun"](found.x) > -1e-6:
                farthest = max(farthest, np.linalg.norm(found.x))
    nearest = optimize.minimize(lambda b: b @ b, a, constraints=[inside], options={"ftol": 1e-14}).x
    assert high == pytest.approx(farthest, rel=1e-4)
    assert low == pytest.approx(np.linalg.norm(nearest), rel=1e-3, abs=1e-3)


def test_scalar_is_the_plain_interval():
    low, high = strength_intervals(np.array([-3.0]), np.array([[0.25]]), np.array(4.0))
    assert (low, high) == pytest.approx((2.0, 4.0))
    low, high = strength_intervals(np.array([0.5]), np.array([[0.25]]), np.array(4.0))
    assert (low, high) == pytest.approx((0.0, 1.5))


def test_an_estimate_of_zero_reaches_along_the_widest_axis():
    low, high = strength_intervals(np.zeros(2), np.diag([1.0, 9.0]), np.array(4.0))
    assert (low, high) == pytest.approx((0.0, 6.0))


def test_padding_changes_nothing_and_a_bad_covariance_gives_nothing():
    a, V = random_problem(1)
    padded = np.zeros((6, 6))
    padded[:4, :4] = V
    both = strength_intervals(np.r_[a, 0, 0], padded, np.array(3.0))
    np.testing.assert_allclose(both, strength_intervals(a, V, np.array(3.0)), rtol=1e-9)
    singular = np.ones((2, 2))
    assert np.isnan(strength_intervals(np.ones(2), singular, np.array(3.0))).all()
    assert np.isnan(strength_intervals(a, V, np.array(np.nan))).all()


def test_interval_scales_with_the_block():
    a, V = random_problem(2, shift=2.0)
    one = np.array(strength_intervals(a, V, np.array(6.0)))
    ten = np.array(strength_intervals(10 * a, 100 * V, np.array(6.0)))
    assert ten == pytest.approx(10 * one)


def test_coverage_is_at_least_the_level():
    """Gaussian blocks with a known covariance; binomial error 0.5 % at 2000 draws.

    No interval is wider than the longest axis of its region.
    """
    rng = np.random.default_rng(3)
    _, V = random_problem(4)
    root, draws = np.linalg.cholesky(V), 2000
    critical = np.full(draws, stats.chi2.ppf(0.95, 4))
    for size in (0.0, 0.3, 3.0):
        truth = size * np.array([1.0, -1.0, 0.5, 0.0])
        a = truth + rng.standard_normal((draws, 4)) @ root.T
        low, high = strength_intervals(a, np.broadcast_to(V, (draws, 4, 4)), critical)
        norm = np.linalg.norm(truth)
        assert ((low <= norm + 1e-9) & (norm <= high)).mean() >= 0.95 - 3 * 0.005
        assert (high - low).max() <= 2 * np.sqrt(critical[0] * np.linalg.eigvalsh(V)[-1]) + 1e-9


@pytest.mark.slow  # fits by every test, 4 s
@pytest.mark.filterwarnings("ignore:test='asymptotic'")
def test_interval_begins_at_zero_exactly_when_the_test_finds_nothing():
    panel, _ = fg.simulate(4, 800, edges=[("client1", "client2"), ("client3", "client4")], seed=5)
    for test, solver in (("debiased", "none"), ("asymptotic", "sgd")):
        config = fg.RunConfig(state_dim=2, correction="none", test=test, solver=solver)
        table = fg.fit(panel, config).edges()
        assert (table["ci_low"] <= table["strength"]).all()
        assert (table["strength"] <= table["ci_high"]).all()
        assert ((table["ci_low"] > 0) == (table["p_value"] < 0.05)).all()
        assert 0 < (table["ci_low"] > 0).sum() < len(table)
