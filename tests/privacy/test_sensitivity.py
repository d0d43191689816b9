"""Bounds of a filter's change: no search finds more, and good searches find nearly as much."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgranger.errors import ConfigError
from fedgranger.privacy.sensitivity import Filter, Neighbours, filtered, memoryless
from tests.filter_changes import random_filter, response, worst_change

EVENT, RECORD = Neighbours("event"), Neighbours("record")


def window(steps):
    return Neighbours("window", steps)


def record(rng, num_steps, missing=0.0, cuts=0.0):
    return rng.random(num_steps) >= missing, rng.random(num_steps) < cuts


def test_figures_of_the_theory():
    """a = 0.9, K = 0.5: 0.560, 0.809 (w = 5), 0.909 for a change of at most 1 in l2 in total."""
    given_filter = Filter(np.array([[0.9]]), np.array([[0.5]]), np.array([[0.5]]))
    observed, starts = np.ones(2000, dtype=bool), np.zeros(2000, dtype=bool)
    lags = np.abs(np.arange(400)[:, None] - np.arange(400))
    T = 0.25 * 0.45**lags / (1 - 0.45**2)
    in_total = {w: math.sqrt(np.linalg.eigvalsh(T[:w, :w])[-1]) for w in (1, 5, 400)}
    assert in_total[1] == pytest.approx(0.560, abs=5e-4)
    assert in_total[5] == pytest.approx(0.809, abs=5e-4)
    assert in_total[400] == pytest.approx(0.909, abs=5e-4)
    # here every step changes by at most 2 B; with one step both say the same, but for the 2
    found = {
        w: filtered(given_filter, 1.0, window(w), observed, starts) / 2 for w in (1, 5, 400, 2000)
    }
    assert found[1] == pytest.approx(in_total[1], rel=1e-8)
    assert in_total[5] < found[5] <= math.sqrt(5) * in_total[5] * (1 + 1e-8)
    # nothing is negative, so the worst change is the same at all steps
    assert found[5] == pytest.approx(math.sqrt(T[:5, :5].sum()), rel=0.01)
    assert found[400] == pytest.approx(math.sqrt(T.sum()), rel=0.01)
    assert found[2000] / math.sqrt(2000) == pytest.approx(0.909, rel=0.01)


@pytest.mark.parametrize("seed", range(6))
def test_one_step_vs_explicit_response(seed):
    rng = np.random.default_rng(seed)
    given_filter = random_filter(rng, 1 + seed % 3, 1 + seed % 4)
    observed, starts = record(rng, 40, 0.3 * (seed % 2), 0.05 * (seed % 3))
    R = response(given_filter, observed, starts)
    exact = 2 * 0.7 * max(np.linalg.norm(R[:, t], 2) for t in range(40))
    assert filtered(given_filter, 0.7, EVENT, observed, starts) == pytest.approx(exact, rel=3e-9)
    assert filtered(given_filter, 0.7, window(1), observed, starts) >= exact


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([1, 2, 5, 11, 24]),
)
def test_no_search_exceeds_the_bound(seed, state_dim, input_dim, missing, cuts, length):
    rng = np.random.default_rng(seed)
    given_filter = random_filter(rng, state_dim, input_dim)
    observed, starts = record(rng, 24, missing, cuts)
    R = response(given_filter, observed, starts)
    found, _ = worst_change(R, length, rng)
    bound = filtered(given_filter, 0.5, window(length), observed, starts)
    assert found <= bound
    assert bound <= 1.35 * found + 1e-12  # the search may be the one that is not good


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("missing", "cuts"), [(0.0, 0.0), (0.15, 0.05)])
def test_search_reaches_nine_tenths(seed, missing, cuts):
    rng = np.random.default_rng(seed)
    given_filter = random_filter(rng, 1 + seed % 3, 1 + seed % 3)
    observed, starts = record(rng, 30, missing, cuts)
    R = response(given_filter, observed, starts)
    for neighbours in (EVENT, window(5), RECORD):
        found, _ = worst_change(R, neighbours.length(30), rng)
        bound = filtered(given_filter, 0.5, neighbours, observed, starts)
        assert 0.9 * bound <= found <= bound
        print(f"{neighbours.kind} {found / bound:.3f}")


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_bound_follows_scale_and_length(missing):
    rng = np.random.default_rng(3)
    given_filter = random_filter(rng, 2, 3)
    observed, starts = record(rng, 300, missing)
    found = [
        filtered(given_filter, 1.0, window(w), observed, starts) for w in (1, 2, 4, 8, 64, 300)
    ]
    assert found == sorted(found)
    assert filtered(given_filter, 1.0, RECORD, observed, starts) == found[-1]
    assert filtered(given_filter, 1.0, window(10**9), observed, starts) == found[-1]
    doubled = given_filter._replace(gain=3.0 * given_filter.gain)
    assert filtered(doubled, 0.5, window(4), observed, starts) == pytest.approx(1.5 * found[2])


def test_input_coordinates_do_not_matter():
    rng = np.random.default_rng(4)
    given_filter = random_filter(rng, 2, 2)
    rotation = np.linalg.qr(rng.standard_normal((5, 5)))[0][:2]
    many_sensors = given_filter._replace(gain=given_filter.gain @ rotation)
    observed, starts = record(rng, 50, 0.1)
    for neighbours in (EVENT, window(4), RECORD):
        one, other = (
            filtered(each, 1.0, neighbours, observed, starts)
            for each in (given_filter, many_sensors)
        )
        assert one == pytest.approx(other, rel=1e-6)


def test_filter_without_memory_is_memoryless():
    eye = np.eye(2)
    given_filter = Filter(np.zeros((2, 2)), eye, eye)
    observed, starts = record(np.random.default_rng(0), 60)
    for neighbours in (EVENT, window(7), RECORD):
        assert filtered(given_filter, 0.3, neighbours, observed, starts) == pytest.approx(
            memoryless(0.3, neighbours, 60), rel=0.005
        )


def test_segments_cut_the_future():
    given_filter = Filter(np.array([[1.0]]), np.array([[1.0]]), np.array([[1.0]]))
    observed, starts = np.ones(12, dtype=bool), np.zeros(12, dtype=bool)
    starts[[3, 5]] = True  # segments of 3, 2 and 7 steps of a filter that forgets nothing
    assert filtered(given_filter, 0.5, EVENT, observed, starts) == pytest.approx(math.sqrt(7))
    observed[5:] = False
    assert filtered(given_filter, 0.5, EVENT, observed, starts) == pytest.approx(math.sqrt(3))
    assert filtered(given_filter, 0.5, EVENT, ~observed & False, starts) == 0.0


def test_unstable_filter_with_a_long_gap_is_infinite():
    given_filter = Filter(np.array([[1.5]]), np.array([[0.5]]), np.array([[0.5]]))
    observed, starts = np.zeros(4000, dtype=bool), np.zeros(4000, dtype=bool)
    observed[0] = True
    for neighbours in (EVENT, window(5), RECORD):
        assert filtered(given_filter, 1.0, neighbours, observed, starts) == math.inf
    observed[:] = True  # stable as long as measurements come
    assert filtered(given_filter, 1.0, EVENT, observed, starts) < 2.0


def test_neighbours():
    assert [EVENT.length(10), window(4).length(10), window(40).length(10)] == [1, 4, 10]
    assert RECORD.length(10) == 10
    assert EVENT.words() == (
        "two records that differ in what one client measured at one time step "
        "(when it measured is known)"
    )
    assert "in 24 consecutive time steps" in window(24).words()
    assert "whole record" in RECORD.words()
    assert memoryless(2.0, EVENT, 100) == 4.0
    assert memoryless(2.0, RECORD, 100) == 40.0


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (lambda: Neighbours("person"), "event, window, record"),
        (lambda: window(0), "1 or more"),
        (lambda: memoryless(-1.0, EVENT, 5), "bound"),
        (lambda: memoryless(math.inf, EVENT, 5), "bound"),
        (lambda: made(gain=np.zeros((3, 1))), "fit together"),
        (lambda: made(transition=np.full((2, 2), np.nan)), "not finite"),
        (lambda: made(observed=np.ones(4, dtype=bool)), "same time steps"),
        (lambda: made(observed=np.ones(5)), "yes and no"),
    ],
)
def test_refused(wrong, word):
    with pytest.raises(ConfigError, match=word):
        wrong()


def made(**changed):
    eye = np.eye(2)
    parts = {"transition": eye, "correction": 0.5 * eye, "gain": eye[:, :1]}
    flags = {"observed": np.ones(5, dtype=bool), "starts": np.zeros(5, dtype=bool)}
    matrices = {name: changed.get(name, value) for name, value in parts.items()}
    arrays = {name: changed.get(name, value) for name, value in flags.items()}
    return filtered(Filter(**matrices), 1.0, EVENT, arrays["observed"], arrays["starts"])
