"""Kinds of records: each is seen where it is, and not where there is plain noise."""

import numpy as np
import pytest
from scipy import stats

from fedgranger.inference.diagnostics import unit_roots
from fedgranger.inference.record_traits import (
    record_traits,
    shared_cycles,
    traits_in_words,
    unsearched_cycles,
)
from fedgranger.inference.shifts import tabulate
from fedgranger.inference.whitening import whiten
from tests.state_sources import source_of

T = 3000


def autoregressive(rng, noise, size=0.7):
    out = np.zeros(len(noise))
    for t in range(1, len(noise)):
        out[t] = size * out[t - 1] + noise[t]
    return out


def traits_of(*columns):
    states = np.stack(columns, axis=1)
    dims = (1,) * len(columns)
    source = source_of(states, dims)
    whitened = whiten(tabulate(source))
    return record_traits(tabulate(source), whitened, unit_roots(source))


def test_plain_noise_is_nothing_special():
    """40 records, three tests each at 0.001: more than two are wrong once in 10 000."""
    rng = np.random.default_rng(0)
    found = traits_of(*(autoregressive(rng, rng.normal(size=T)) for _ in range(40)))
    assert sum(bool(one["kinds"]) for one in found.values()) <= 2
    assert traits_in_words(next(one for one in found.values() if not one["kinds"])) == ""


def test_a_season_is_seen_however_much_of_it_the_own_past_explains():
    """Thirty own lags explain a sine; two clients that share it are named, with multiples too."""
    rng = np.random.default_rng(5)
    time = np.arange(T)
    day, half = (2 * np.sin(2 * np.pi * time / period) for period in (24, 12))
    columns = [autoregressive(rng, rng.normal(size=T)) + cycle for cycle in (day, half, 0 * day)]
    source = source_of(np.stack(columns, axis=1), (1, 1, 1), own_lags=(30, 30, 30))
    table = tabulate(source)
    found = record_traits(table, whiten(table), unit_roots(source))
    assert [one["kinds"] for one in found.values()] == [["seasonal"], ["seasonal"], []]
    assert shared_cycles(found) == ["c0", "c1"]
    found["c1"]["peak_period"] = 17.0
    assert shared_cycles(found) == []


def test_slow_series_are_not_called_seasonal():
    """40 random walks and 40 slow series with white noise on them: at most one."""
    rng = np.random.default_rng(6)
    walks = [np.cumsum(rng.normal(size=T)) for _ in range(40)]
    slow = [autoregressive(rng, rng.normal(size=T), 0.98) + rng.normal(size=T) for _ in range(40)]
    kinds = [one["kinds"] for one in traits_of(*walks, *slow).values()]
    assert sum("seasonal" in kind for kind in kinds) <= 1


def test_every_kind_is_seen_where_it_is():
    rng = np.random.default_rng(1)
    day = autoregressive(rng, rng.normal(size=T)) + 2 * np.sin(2 * np.pi * np.arange(T) / 24)
    walk = np.cumsum(rng.normal(size=T))
    louder = autoregressive(rng, rng.normal(size=T) * np.where(np.arange(T) < T / 2, 1, 1.5))
    shifted = autoregressive(rng, rng.normal(size=T) + 0.4 * (np.arange(T) > T / 2))
    spiky = autoregressive(rng, rng.standard_t(3, size=T))
    on_and_off = np.repeat(rng.choice([0.3, 2.0], size=T // 50), 50)
    bursts = autoregressive(rng, rng.normal(size=T) * on_and_off)
    found = traits_of(day, walk, louder, shifted, spiky, bursts)
    kinds = [one["kinds"] for one in found.values()]
    assert kinds == [["seasonal"], *[["drifting"]] * 3, ["bursty"], ["bursty"]]
    words = [traits_in_words(one) for one in found.values()]
    assert "repeat every 24 steps" in words[0]
    assert "a random walk cannot be excluded" in words[1]
    assert "its variance changes 2." in words[2]
    assert "its level differs between the halves" in words[3]
    assert "kurtosis" in words[4]


def test_numbers_equal_their_definition():
    rng = np.random.default_rng(2)
    states = rng.normal(size=(1000, 2)) @ np.array([[1.0, 0.3], [0.0, 2.0]])
    source = source_of(states, (2,))
    whitened = whiten(tabulate(source))
    found = record_traits(tabulate(source), whitened, {"c0": 0.01})["c0"]
    X = np.column_stack([np.ones(999), states[:-1]])
    residual = states[1:] - X @ np.linalg.lstsq(X, states[1:], rcond=None)[0]
    S = residual.T @ residual / 999
    energy = np.einsum("ti,ij,tj->t", residual, np.linalg.inv(S), residual)
    assert found["kurtosis"] == pytest.approx(3 * (energy**2).mean() / 8, rel=1e-3)
    lasting = [np.corrcoef(energy[k:], energy[:-k])[0, 1] for k in range(1, 6)]
    assert found["burst_autocorrelation"] == pytest.approx(np.mean(lasting), abs=2e-3)
    np.testing.assert_allclose(whitened.covs[0], S, rtol=1e-10)
    means = [block.mean() for block in np.array_split(energy, 20)]
    t = (np.mean(means[10:]) - np.mean(means[:10])) / np.sqrt(
        np.var(means[:10], ddof=1) / 10 + np.var(means[10:], ddof=1) / 10
    )
    assert found["spread_p"] == pytest.approx(2 * stats.t.sf(abs(t), 17.5), rel=0.05)
    centred = states - states.mean(axis=0)
    slope = [np.corrcoef(column[1:], column[:-1])[0, 1] for column in centred.T]
    power = np.abs(np.fft.fft(centred[1:] - slope * centred[:-1], axis=0))[1:500] ** 2
    k = round(999 / found["peak_period"]) - 1
    around = np.r_[k - 22 : k - 2, k + 3 : k + 23]
    around = around[(around >= 0) & (around < 499)]
    p = stats.f.sf(power[k] / power[around].mean(axis=0), 2, 2 * len(around))
    assert found["peak_p"] == pytest.approx(min(1.0, 2 * 499 * p.min()), rel=0.1)


def test_too_short_a_record_is_not_judged():
    found = traits_of(np.random.default_rng(0).normal(size=60))
    assert found == {"c0": {"kinds": []}}


def test_a_day_that_a_short_record_hides_is_named():
    source = source_of(np.zeros((72, 2)), (1, 1))
    hours = np.datetime64("2026-03-01T00") + np.arange(72)
    assert unsearched_cycles(source) == []  # no time stamps, no calendar
    assert unsearched_cycles(source._replace(times=np.arange(72.0))) == []
    assert unsearched_cycles(source._replace(times=hours)) == ["1d"]
    missing = hours[np.arange(72) % 7 != 3]  # rows left out do not shorten it
    assert unsearched_cycles(source._replace(times=missing)) == ["1d"]
    assert unsearched_cycles(source._replace(times=hours[:40])) == []
