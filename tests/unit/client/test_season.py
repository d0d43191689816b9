"""What repeats is taken out exactly, by the time axis, and nothing else is."""

import dataclasses

import numpy as np
import pytest

from fedgranger.client.clock import clock_of, whole_steps
from fedgranger.client.season import (
    apply_season,
    fit_season,
    pattern,
    period_steps,
    season_fact,
    take_out,
)
from fedgranger.config import RunConfig
from fedgranger.data.client_data import ClientData
from fedgranger.errors import DataError
from fedgranger.normal_operation import Season

HOUR = np.timedelta64(1, "h")
STAMPS = np.datetime64("2021-03-01T00:00:00", "ns") + np.arange(600) * HOUR


def remove(season, values, time):
    return values - pattern(season, time)


def make(values, observed=None):
    values = np.asarray(values, dtype=np.float64)
    if observed is None:
        observed = np.ones(values.shape, dtype=np.bool_)
    sensors = tuple(f"s{j + 1}" for j in range(values.shape[1]))
    return ClientData("boiler", sensors, np.where(observed, values, 0.0), observed)


def noise(seed, length=600, d=3):
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((length, d))
    for t in range(1, length):
        y[t] += 0.7 * y[t - 1]
    return y


def daily(t, d=3):
    """A pattern of 24 steps with three harmonics, another for every sensor."""
    return np.column_stack(
        [
            (2 + j) * np.sin(2 * np.pi * t / 24 + j) + np.cos(2 * np.pi * 3 * t / 24 - j)
            for j in range(d)
        ]
    )


def removed(client, time, **options):
    return take_out(client, time, RunConfig(**options))


@pytest.mark.parametrize("kind", ["harmonics", "profile"])
@pytest.mark.parametrize("time", [np.arange(600), STAMPS], ids=["rows", "stamps"])
def test_pure_sine_leaves_nothing(kind, time):
    client = make(1e3 + daily(np.arange(600)))
    season = fit_season(client, time, (24.0 if time.dtype.kind != "M" else 24 * 3600e9,), kind=kind)
    left = remove(season, client.values, time)
    np.testing.assert_allclose(
        left, np.broadcast_to(client.values.mean(axis=0), left.shape), atol=1e-10
    )
    np.testing.assert_allclose(season.shares, 1.0, atol=1e-12)
    assert period_steps(season).tolist() == [24]
    assert period_steps(season).dtype == np.int64


def test_harmonics_vs_lstsq():
    t, client = np.arange(600), make(noise(0) + daily(np.arange(600)))
    season = fit_season(client, t, (24.0, 168.0))
    angles = [2 * np.pi * k * t / P for P in (24, 168) for k in (1, 2, 3, 4)]
    X = np.column_stack([np.ones(600)] + [f(a) for a in angles for f in (np.cos, np.sin)])
    fitted = X @ np.linalg.lstsq(X, client.values, rcond=None)[0]
    expected = client.values - fitted + client.values.mean(axis=0)
    np.testing.assert_allclose(remove(season, client.values, t), expected, atol=1e-10)


def test_profile_vs_means_per_phase():
    t, client = np.arange(600), make(noise(1) + daily(np.arange(600)))
    left = remove(fit_season(client, t, (24.0,), kind="profile"), client.values, t)
    for phase in range(24):
        np.testing.assert_allclose(
            left[phase::24].mean(axis=0), client.values.mean(axis=0), atol=1e-12
        )


def test_profiles_of_two_periods_vs_lstsq():
    t, client = np.arange(600), make(noise(2))
    left = remove(fit_season(client, t, (6.0, 10.0), kind="profile"), client.values, t)
    X = np.hstack([np.eye(6)[t % 6], np.eye(10)[t % 10]])
    fitted = X @ np.linalg.lstsq(X, client.values, rcond=None)[0]
    expected = client.values - fitted + client.values.mean(axis=0)
    np.testing.assert_allclose(left, expected, atol=1e-10)


@pytest.mark.parametrize("kind", ["harmonics", "profile"])
def test_added_season_changes_nothing_after_removal(kind):
    t, y = np.arange(600), noise(3)
    plain, _, _ = removed(make(y), t, period=24, season=kind)
    seasonal, _, _ = removed(make(y + daily(t)), t, period=24, season=kind)
    shift = y.mean(axis=0) - (y + daily(t)).mean(axis=0)
    np.testing.assert_allclose(seasonal.values + shift, plain.values, atol=1e-10)


@pytest.mark.parametrize("kind", ["harmonics", "profile"])
def test_units_do_not_matter(kind):
    t, y = np.arange(600), noise(4) + daily(np.arange(600))
    scale, shift = np.array([1e-6, 1.0, 1e6]), np.array([5.0, -1e3, 1e7])
    plain, one, _ = removed(make(y), t, period=24, season=kind)
    other, two, _ = removed(make(scale * y + shift), t, period=24, season=kind)
    np.testing.assert_allclose((other.values - shift) / scale, plain.values, rtol=0, atol=1e-7)
    np.testing.assert_allclose(one.shares, two.shares, rtol=1e-8)


@pytest.mark.parametrize("kind", ["harmonics", "profile"])
def test_missing_rows_are_placed_by_the_time_axis(kind):
    """A pure season with gaps, single holes and whole rows gone, is still removed exactly."""
    t = np.arange(600)
    client, rng = make(daily(t)), np.random.default_rng(5)
    kept = (t < 100) | (t > 135)
    kept &= rng.random(600) > 0.1
    observed = rng.random((600, 3)) > 0.1
    gapped = make(client.values[kept], observed[kept])
    for time, length in ((t[kept], 24.0), (STAMPS[kept], 86_400e9)):
        season = fit_season(gapped, time, (length,), kind=kind)
        left = remove(season, gapped.values, time)
        for j in range(3):
            assert np.ptp(left[gapped.observed[:, j], j]) < 1e-10
        assert not apply_season(season, gapped, time).values[~gapped.observed].any()


def test_masked_samples_cannot_be_seen():
    t, y = np.arange(600), noise(7) + daily(np.arange(600))
    observed = np.random.default_rng(8).random(y.shape) > 0.2
    hidden = ClientData("boiler", ("s1", "s2", "s3"), np.where(observed, y, 0.0), observed)
    other = dataclasses.replace(hidden, values=np.where(observed, y, 1e6))
    one, two = (removed(c, t, period=24)[0] for c in (hidden, other))
    np.testing.assert_array_equal(one.values, two.values)


def test_new_data_get_the_fitted_season():
    t, y = np.arange(1200), noise(9, 1200) + daily(np.arange(1200))
    stamps = STAMPS[0] + t * HOUR
    for time in (t, stamps):
        _, season, _ = removed(make(y[:600]), time[:600], period=24)
        season = Season.from_mapping(season.to_mapping())
        later = make(y[600:])
        shuffled = ClientData(
            "boiler",
            ("s3", "x", "s1", "s2"),
            y[600:][:, [2, 0, 0, 1]],
            np.ones((600, 4), dtype=bool),
        )
        found = apply_season(season, later, time[600:])
        np.testing.assert_array_equal(
            apply_season(season, shuffled, time[600:]).values, found.values
        )
        one_by_one = [
            apply_season(season, make(y[k : k + 1]), time[k : k + 1]).values
            for k in range(600, 640)
        ]
        np.testing.assert_allclose(np.concatenate(one_by_one), found.values[:40], atol=1e-12)
        shares = 1 - found.values.var(axis=0) / later.values.var(axis=0)
        assert (shares > 0.3).all()
    with pytest.raises(DataError, match="fitted on time stamps and the new data have numbers"):
        apply_season(season, later, t[600:])


def test_durations_are_steps_with_time_stamps():
    client = make(noise(10) + daily(np.arange(600)))
    by_steps = removed(client, STAMPS, period=24)
    by_duration = removed(client, STAMPS, period="1 d")
    np.testing.assert_array_equal(by_steps[0].values, by_duration[0].values)
    with pytest.raises(DataError, match="'1 d' is a duration, but the rows have no time stamps"):
        removed(client, np.arange(600), period="1 d")
    with pytest.raises(DataError, match="at least 2 are needed"):
        removed(client, STAMPS, period="1 h")
    with pytest.raises(DataError, match="at least two periods"):
        removed(client, STAMPS, period=301)


def test_odd_interval_keeps_the_length_of_the_day():
    """A day is 205.7 steps of 7 minutes; seven of them are whole steps."""
    t = np.arange(3000)
    stamps = STAMPS[0] + t * np.timedelta64(7, "m")
    client = make(daily(t * 7 / 60))
    season = fit_season(client, stamps, (86_400e9,))
    left = remove(season, client.values, stamps)
    assert np.ptp(left, axis=0).max() < 1e-10
    assert period_steps(season).tolist() == [1440]


def test_none_and_no_season_return_the_same_data():
    client = make(noise(11))
    for options in ({"period": "none"}, {"period": "auto"}):
        found, season, notes = removed(client, np.arange(600), **options)
        assert found is client
        assert notes == ()
        assert season_fact(season, "boiler") == ""
        assert period_steps(season).tolist() == []
        assert apply_season(Season.from_mapping(season.to_mapping()), client, STAMPS) is client


def test_fact_and_note_say_what_was_removed():
    t = np.arange(2400)
    y = np.random.default_rng(12).standard_normal((2400, 2))
    y += np.sqrt(2 * 0.45) * np.sin(2 * np.pi * t / 24)[:, None]  # 0.45 of 1.45
    _, season, (note,) = removed(make(y), t)
    assert season_fact(season, "boiler").endswith("repeats every 24 steps and was removed")
    share = float(season_fact(season, "boiler").split(" sensors ")[1].split(" %")[0])
    assert share == pytest.approx(100 * 0.45 / 1.45, abs=3)
    assert "4 harmonics" in note
    assert "must go on counting" in note


def test_sensor_that_only_repeats_is_left_out():
    t, y = np.arange(600), noise(13) + daily(np.arange(600))
    y[:, 1] = t % 24
    found, season, notes = removed(make(y), t, period=24, season="profile")
    assert found.sensors == season.sensors == ("s1", "s3")
    assert any("'s2' does nothing but repeat" in note for note in notes)
    with pytest.raises(DataError, match="nothing is left"):
        removed(make(daily(t)), t, period=24)


def test_whole_steps():
    assert [whole_steps(s) for s in (24.0, 24.01, 20.5, 33.25, 1440 / 7)] == [24, 24, 41, 133, 1440]
    assert clock_of(np.arange(5)).num_steps == 5
