"""Certificates against explicit matrices: prices are above R'R, in every way they are found."""

import math

import numpy as np
import pytest

from fedgranger.privacy import filter_steps, long_records, worst_window
from fedgranger.privacy.filter_bounds import LIMITS, common_price, window_bounds
from fedgranger.privacy.filter_steps import energy_after, later_energy, make_steps
from fedgranger.privacy.long_records import record_prices
from fedgranger.privacy.sensitivity import Filter, Neighbours, filtered
from tests.filter_changes import random_filter, response, worst_change

FEW_STEADY_STEPS = 300
"""Enough for filters with a short memory: most of a price's time goes into these steps."""


def case(seed, num_steps, missing=0.2, cuts=0.03, radius=None, dims=None):
    rng = np.random.default_rng(seed)
    given_filter = random_filter(rng, *(dims or (1 + seed % 4, 1 + seed % 3)), radius)
    observed, starts = rng.random(num_steps) >= missing, rng.random(num_steps) < cuts
    return rng, given_filter, observed, starts, make_steps(*given_filter, observed, starts)


def gram(given_filter, observed, starts):
    R = response(given_filter, observed, starts).reshape(
        -1, observed.size * filter_dim(given_filter)
    )
    return R.T @ R


def filter_dim(given_filter):
    return given_filter.gain.shape[1]


@pytest.mark.parametrize("block", [3, 7, 1024])
@pytest.mark.parametrize("seed", range(3))
def test_later_energy_vs_loop(seed, block, monkeypatch):
    monkeypatch.setattr(filter_steps, "BLOCK_STEPS", block)
    _, _, _, _, steps = case(seed, 50)
    X = np.eye(steps.state_dim)
    found = later_energy(steps)
    for t in reversed(range(50)):
        np.testing.assert_allclose(found[t], X, rtol=1e-12, atol=1e-14)
        Phi = steps.matrices[steps.kinds[t]]
        X = np.eye(steps.state_dim) + Phi.T @ X @ Phi


@pytest.mark.parametrize("num_steps", [0, 1, 2, 13, 64])
def test_energy_after_vs_sum(num_steps):
    Phi = np.array([[0.9, 0.4], [-0.2, 0.7]])
    powers = [np.linalg.matrix_power(Phi, k) for k in range(num_steps + 1)]
    expected = sum(power.T @ power for power in powers)
    np.testing.assert_allclose(energy_after(Phi, num_steps), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_recursion_is_above_every_change_of_a_window(seed):
    """Whatever beta: each of the bounds holds, also those that are never chosen."""
    rng, given_filter, observed, starts, steps = case(seed, 20)
    R = response(given_filter, observed, starts)
    X = later_energy(steps)
    for begin, length in ((0, 20), (4, 7), (9, 2)):
        found, _ = worst_change(R[:, begin : begin + length], length, rng)
        ends = np.tile(X[begin + length - 1], (len(LIMITS), 1, 1))
        bounds = window_bounds(steps, np.full(len(LIMITS), begin), length, ends, LIMITS)
        assert (np.sqrt(bounds) * (1 + 1e-9) >= found).all()


@pytest.mark.parametrize("block", [5, 16, 8192])
@pytest.mark.parametrize("seed", range(6))
def test_prices_of_a_record_are_above_its_gram_matrix(seed, block, monkeypatch):
    monkeypatch.setattr(long_records, "BLOCK_STEPS", block)
    if block < 80:  # a full search for a good rule is done with blocks of the usual size
        monkeypatch.setattr(long_records, "STEADY_STEPS", FEW_STEADY_STEPS)
    _, given_filter, observed, starts, steps = case(seed, 80)
    prices = record_prices(steps)
    T = gram(given_filter, observed, starts)
    surplus = np.diag(np.repeat(prices, filter_dim(given_filter))) - T
    assert np.linalg.eigvalsh(surplus)[0] >= -1e-9 * np.abs(T).max()
    assert (prices[~observed] == 0.0).all()


def test_many_steps_of_the_recursion():
    """Rounding does not pull it below the truth, as it did where matrices were not symmetric."""
    for seed in (43, 129):
        _, given_filter, observed, starts, steps = case(seed, 200, 0.0, 0.0, 0.999, (4, 2))
        ends = np.tile(later_energy(steps)[-1], (len(LIMITS), 1, 1))
        bounds = window_bounds(steps, np.zeros(len(LIMITS), dtype=int), 200, ends, LIMITS)
        leading = np.linalg.eigh(gram(given_filter, observed, starts))[1][:, -1].reshape(200, 2)
        u = leading / np.linalg.norm(leading, axis=1, keepdims=True)
        found = (response(given_filter, observed, starts) * u).sum(axis=(1, 2))
        assert (bounds >= found @ found).all()


@pytest.mark.parametrize("seed", range(6))
def test_common_price_is_the_squared_h_infinity_norm(seed):
    rng = np.random.default_rng(seed)
    p, radius = 1 + seed % 4, (0.3, 0.95, 0.999)[seed % 3]
    Phi = rng.standard_normal((p, p))
    Phi *= radius / np.abs(np.linalg.eigvals(Phi)).max()
    G = rng.standard_normal((p, 1 + seed % 2))
    angles = np.concatenate([[0.0], np.geomspace(1e-6, np.pi, 4000)])
    z = np.exp(1j * angles)[:, None, None]
    exact = np.linalg.norm(np.linalg.solve(np.eye(p) - Phi / z, G), 2, axis=(1, 2)).max() ** 2
    assert exact * (1 - 1e-12) <= common_price(Phi, G) <= exact * (1 + 1e-3)


def test_common_price_of_an_unstable_filter_is_infinite():
    with np.errstate(over="ignore", invalid="ignore"):
        assert common_price(np.array([[1.01]]), np.array([[1.0]])) == math.inf


@pytest.mark.parametrize("seed", range(6))
def test_ways_to_a_bound_agree(seed, monkeypatch):
    """Long records, coarse covers and single windows: close, and never below a change found."""
    monkeypatch.setattr(long_records, "STEADY_STEPS", FEW_STEADY_STEPS)
    rng, given_filter, observed, starts, _ = case(seed, 60, cuts=0.0)
    R = response(given_filter, observed, starts)
    for length in (12, 60):
        neighbours = Neighbours("window", length)
        found, _ = worst_change(R, length, rng, num_starts=2)
        bound = filtered(given_filter, 0.5, neighbours, observed, starts)
        with monkeypatch.context() as patch:
            patch.setattr(worst_window, "LONG", 2)
            by_prices = filtered(given_filter, 0.5, neighbours, observed, starts)
        with monkeypatch.context() as patch:
            patch.setattr(worst_window, "LEAST_WORK", 80)
            patch.setattr(worst_window, "WORK_PER_STEP", 0)
            covered = filtered(given_filter, 0.5, neighbours, observed, starts)
        with monkeypatch.context() as patch:
            patch.setattr(worst_window, "REFINED", 1)
            patch.setattr(worst_window, "NUM_REFINEMENTS", 1)
            coarse = filtered(given_filter, 0.5, neighbours, observed, starts)
        assert bound * (1 - 1e-12) <= coarse <= 1.1 * bound
        with monkeypatch.context() as patch:
            patch.setattr(worst_window, "LONG", 2)
            patch.setattr(worst_window, "record_prices", lambda steps: np.full(60, np.inf))
            triangle = filtered(given_filter, 0.5, neighbours, observed, starts)
        assert found <= min(bound, by_prices, covered, triangle)
        assert max(by_prices / bound, bound / by_prices) < 1.5
        assert covered <= 2.0 * bound
        assert bound <= triangle * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_complete_records_vs_the_general_way(seed):
    """The shortcut for complete records, and the same record with a missing first step."""
    given_filter = case(seed, 1)[1]
    observed, starts = np.ones(400, dtype=bool), np.zeros(400, dtype=bool)
    with_gap = observed.copy()
    with_gap[0] = False
    for length in (1, 3, 40, 300):
        neighbours = Neighbours("window", length)
        complete = filtered(given_filter, 1.0, neighbours, observed, starts)
        general = filtered(given_filter, 1.0, neighbours, with_gap, starts)
        assert complete == pytest.approx(general, rel=0.02 if length > 1 else 1e-7)
    steps = make_steps(*given_filter, observed, starts)
    assert worst_window.complete_window(steps, 300, 400) <= 300 * common_price(
        steps.matrices[filter_steps.OBSERVED], steps.gain
    )


@pytest.mark.parametrize("seed", range(5))
def test_few_gaps_cost_little_in_a_long_record(seed, monkeypatch):
    """The limit that is best without gaps may have no end with them: then it is another one."""
    monkeypatch.setattr(worst_window, "LONG", 2)
    monkeypatch.setattr(long_records, "BLOCK_STEPS", 128)
    monkeypatch.setattr(long_records, "STEADY_STEPS", FEW_STEADY_STEPS)
    rng = np.random.default_rng(seed)
    given_filter = random_filter(rng, 6, 6, 0.95)
    observed, starts = np.ones(3000, dtype=bool), np.zeros(3000, dtype=bool)
    for begin in rng.integers(0, 2990, 4):
        observed[begin : begin + 5] = False
    steps = make_steps(*given_filter, observed, starts)
    price = common_price(steps.matrices[filter_steps.OBSERVED], steps.gain)
    bound = filtered(given_filter, 0.5, Neighbours("record"), observed, starts)
    assert 0.97 <= bound / math.sqrt(3000 * price) <= 1.1


@pytest.mark.parametrize("num_refinements", [1, 4])
def test_no_window_is_left_out_when_the_worst_gets_better(num_refinements, monkeypatch):
    """The limit that is best for window 2 makes window 0 the worst; tried again, it is window 1."""

    def bounds(steps, begins, length, ends, limits):
        odd = np.where(limits == LIMITS[5], 10.0, 1.0)
        dull = np.where(limits == LIMITS[5], 0.5, 0.6)
        return np.choose(begins, [odd, np.full(len(limits), 9.0), dull])

    monkeypatch.setattr(worst_window, "window_bounds", bounds)
    monkeypatch.setattr(worst_window, "SAMPLE", 1)
    monkeypatch.setattr(worst_window, "REFINED", 1)
    monkeypatch.setattr(worst_window, "NUM_REFINEMENTS", num_refinements)
    steps = case(0, 3)[4]
    triangle = np.array([20.0, 20.0, 30.0])
    assert worst_window._largest(steps, np.ones((3, 1, 1)), np.arange(3), 1, triangle) == 9.0


@pytest.mark.parametrize("long", [2, 10_000])
def test_short_segments_are_separate_windows(long, monkeypatch):
    """Fifteen segments of four steps: the record moves by the sum of what each can do."""
    monkeypatch.setattr(worst_window, "LONG", long)
    given_filter = Filter(np.array([[0.95]]), np.array([[0.9]]), np.array([[0.1]]))
    observed, starts = np.ones(60, dtype=bool), np.arange(60) % 4 == 0
    R = response(given_filter, observed, starts)[:, :, 0]
    exact = np.linalg.norm(R.sum(axis=1))  # nothing is negative
    bound = filtered(given_filter, 0.5, Neighbours("record"), observed, starts)
    assert exact <= bound <= 1.01 * exact


def test_equal_windows_count_once():
    rng = np.random.default_rng(0)
    given_filter = random_filter(rng, 2, 2, 0.9)
    observed, starts = np.ones(20_000, dtype=bool), np.zeros(20_000, dtype=bool)
    observed[[500, 7000, 7001]] = False
    steps = make_steps(*given_filter, observed, starts)
    begins = np.arange(19_991)
    kept, margin = worst_window._distinct(steps, later_energy(steps), begins, 10)
    assert len(kept) < 1000
    assert margin < 1e-8


@pytest.mark.parametrize(
    ("num_steps", "missing", "length"),
    [(10**6, 0.0, 1), (10**6, 0.0, 10), (10**6, 0.0, 10**6), (10**5, 0.1, 10), (10**5, 0.1, 10**5)],
)
def test_long_records(num_steps, missing, length):
    """A slow, positive filter: a constant change comes close to the bound."""
    rng = np.random.default_rng(0)
    given_filter = Filter(np.array([[0.97]]), np.array([[0.8]]), np.array([[0.2]]))
    observed, starts = rng.random(num_steps) >= missing, np.zeros(num_steps, dtype=bool)
    bound = filtered(given_filter, 0.5, Neighbours("window", length), observed, starts)
    state, energy = 0.0, 0.0
    begin = 0 if length == num_steps else int(np.argmin(observed))
    for t in range(begin, min(num_steps, begin + length + 400)):
        state *= 0.97 * (0.8 if observed[t] else 1.0)
        state += 0.2 * (observed[t] and t < begin + length)
        energy += state**2
    assert (0.97 if length == num_steps else 0.5) * bound <= math.sqrt(energy) <= bound
