"""Periods that are there are found, and in data without any almost never."""

import numpy as np
import pytest
import scipy.signal
import scipy.stats

import fedgranger as fg
from fedgranger.client import lines
from fedgranger.client.clock import clock_of
from fedgranger.client.lines import find_periods, line_log_p, num_harmonics

COUNT = int(2 * lines.BANDWIDTH) - 1
HOUR = np.timedelta64(1, "h")


def ar(seed, length, d, coefficients):
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((length + 500, d))
    return scipy.signal.lfilter([1.0], np.r_[1.0, -np.asarray(coefficients)], y, axis=0)[500:]


def stamps(length, step=HOUR):
    return np.datetime64("2022-01-03T00:00", "ns") + np.arange(length) * step


def find(values, time=None, observed=None):
    time = np.arange(len(values)) if time is None else time
    observed = np.ones(values.shape, dtype=np.bool_) if observed is None else observed
    return find_periods(values, observed, clock_of(time))


def test_line_p_vs_f_distribution():
    """The closed form of F(2, 2K - 2) against SciPy, the statistic written out at an exact bin."""
    x = np.random.default_rng(0).standard_normal(512)
    tapers = scipy.signal.windows.dpss(512, lines.BANDWIDTH, COUNT)
    frequency = 37 / 512
    y = (tapers * x) @ np.exp(-2j * np.pi * frequency * np.arange(512))
    U = tapers.sum(axis=1)
    mu = (U @ y) / (U @ U)
    F = (COUNT - 1) * abs(mu) ** 2 * (U @ U) / (np.abs(y - mu * U) ** 2).sum()
    expected = scipy.stats.f.logsf(F, 2, 2 * COUNT - 2)
    assert line_log_p(x, np.array([frequency]))[0] == pytest.approx(expected, rel=1e-8)


def test_few_and_many_frequencies_have_the_same_p():
    x = np.random.default_rng(2).standard_normal(1000)
    many = np.linspace(0.01, 0.4, lines.FEW_FREQUENCIES + 5)
    few = line_log_p(x, many[:4])
    np.testing.assert_allclose(few, line_log_p(x, many)[:4], rtol=1e-8)


def test_line_p_is_uniform_for_white_noise():
    rng = np.random.default_rng(1)
    p = [np.exp(line_log_p(rng.standard_normal(400), np.array([0.05, 0.2])))[0] for _ in range(400)]
    assert scipy.stats.kstest(p, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("period", [4, 7, 24, 60])
def test_a_sine_is_found_and_neither_twice_nor_half_its_period(period):
    t = np.arange(2000)
    y = ar(2, 2000, 3, [0.8])
    y[:, 1] += 1.5 * np.sin(2 * np.pi * t / period)
    assert find(y) == (period,)


def test_two_periods_are_found():
    t = np.arange(4000)
    y = ar(3, 4000, 2, [0.8])
    y[:, 0] += np.sin(2 * np.pi * t / 24) + 0.7 * np.sin(4 * np.pi * t / 24)
    y[:, 1] += 2.5 * np.sin(2 * np.pi * t / 168)
    assert set(find(y)) == {24, 168}


def test_units_do_not_matter():
    t = np.arange(2000)
    y = ar(4, 2000, 2, [0.8]) + np.sin(2 * np.pi * t / 24)[:, None]
    assert find(y * [1e-9, 1e9] + [1.0, 1e12]) == find(y) == (24,)


def test_day_and_week_by_time_stamps():
    t = np.arange(24 * 7 * 8)
    y = ar(5, len(t), 2, [0.8])
    assert find(y, stamps(len(t))) == ()
    y[:, 0] += np.sin(2 * np.pi * t / 24)
    assert find(y, stamps(len(t))) == (24,)
    y[:, 1] += 1.5 * np.sin(2 * np.pi * t / 168)
    assert find(y, stamps(len(t))) == (24, 168)
    y[:, 0] += np.sin(2 * np.pi * t / 24)
    assert find(y[:400], stamps(400)) == (24,)  # two weeks are no five
    day_and_half = y + np.sin(2 * np.pi * t / 36)[:, None]
    assert find(day_and_half, stamps(len(t))) == (24, 168)  # 36 h is no calendar


def test_fine_data_are_averaged_to_see_a_day():
    t = np.arange(6 * 1440)  # six days of minutes
    y = ar(6, len(t), 2, [0.95])
    assert find(y, stamps(len(t), np.timedelta64(1, "m"))) == ()
    y += 2 * np.sin(2 * np.pi * t / 1440)[:, None]
    assert find(y, stamps(len(t), np.timedelta64(1, "m"))) == (1440,)


def test_gaps_are_placed_by_the_time_axis():
    t = np.arange(3000)
    y = ar(7, 3000, 2, [0.8]) + np.sin(2 * np.pi * t / 24)[:, None]
    rng = np.random.default_rng(8)
    kept = (rng.random(3000) > 0.15) & ~((t > 700) & (t < 777)) & ~((t > 1500) & (t < 1511))
    observed = rng.random((3000, 2)) > 0.1
    assert find(y[kept], t[kept], observed[kept]) == (24,)
    assert find(y[kept], stamps(3000)[kept], observed[kept]) == (24,)
    counted = find(y[kept])  # rows as the clock: the phase is lost at every gap
    assert counted == ()


def test_short_empty_and_constant_data_have_none():
    assert find(np.random.default_rng(9).standard_normal((90, 2))) == ()
    assert find(np.ones((500, 2))) == ()
    y = ar(10, 500, 2, [0.5])
    assert find(y, observed=np.zeros(y.shape, dtype=np.bool_)) == ()
    one = np.zeros(y.shape, dtype=np.bool_)
    one[::4] = True
    assert find(y, observed=one) == ()


def test_harmonics_lie_below_half_the_rate():
    assert [num_harmonics(s) for s in (2.0, 3.0, 4.0, 5.0, 7.0, 8.0, 9.0, 24.0)] == [
        1,
        1,
        1,
        2,
        3,
        3,
        4,
        4,
    ]


NULLS = {
    "white": [],
    "AR .9": [0.9],
    "AR .99": [0.99],
    "random walk": [1.0],
    "resonance": [2 * 0.97 * np.cos(2 * np.pi / 24), -(0.97**2)],
}


@pytest.mark.parametrize("name", NULLS)
@pytest.mark.parametrize("stamped", [False, True], ids=["search", "calendar"])
def test_false_rate_is_small(name, stamped):
    """At a level of .001, 30 clients of 4 sensors: 2 or more have probability 4e-4 (Poisson)."""
    axis = stamps(1500) if stamped else None
    found = [find(ar(1000 + seed, 1500, 4, NULLS[name]), axis) for seed in range(30)]
    assert sum(bool(periods) for periods in found) <= 1, found


def test_simulated_panels_have_no_season():
    found = []
    for seed in range(4):
        panel, _ = fg.simulate(4, 1000, seed=seed)
        found += [find(client.values) for client in panel]
    assert sum(bool(periods) for periods in found) <= 1, found


@pytest.mark.parametrize(("length", "order"), [(200, 1), (100, 5), (3000, 34)])
def test_lag_products_vs_windows_written_out(length, order):
    x = np.random.default_rng(length).standard_normal(length).cumsum()
    past = np.array([[x[t - k] for k in range(1, order + 1)] for t in range(order, length)])
    gram, cross = lines._lag_products(x, order)
    np.testing.assert_allclose(gram, past.T @ past, rtol=1e-10)
    np.testing.assert_allclose(cross, past.T @ x[order:], rtol=1e-10)


def test_without_a_period_nothing_of_it_is_left():
    t = np.arange(500)
    wave = np.column_stack([np.cos(2 * np.pi * t / 24 + 1), np.sin(2 * np.pi * 3 * t / 24)])
    noise = np.random.default_rng(0).standard_normal(wave.shape)
    left = lines._without(wave + noise, np.array([24.0]))
    np.testing.assert_allclose(lines._without(wave, np.array([24.0])), 0, atol=1e-12)
    np.testing.assert_allclose(left, lines._without(noise, np.array([24.0])), atol=1e-12)
    np.testing.assert_allclose(lines._without(left, np.array([24.0])), left, atol=1e-12)
