"""Levels of sensors: how often calm ones are named, where shifts are found, and in what words."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import lfilter

import fedgranger as fg
from fedgranger.client import usual_levels
from fedgranger.client.usual_levels import (
    FALSE_ALARMS,
    LEVEL_STEPS,
    level_limits,
    moving_levels,
    unusual_stretches,
)
from fedgranger.data.treatment import Treatment
from fedgranger.normal_operation import Monitor
from fedgranger.rca import OnlineAnalysis
from fedgranger.rca.excursions import Excursion, find_excursions, joined
from tests.anomalies import made_panel, slow_panel

NUM_SENSORS = 3000


@pytest.fixture(scope="module")
def run(normal_run):
    return normal_run


def wandering(phi, num_steps, seed):
    """Many sensors of variance one, each an autoregression that is independent of the others."""
    noise = np.random.default_rng(seed).standard_normal((num_steps + 500, NUM_SENSORS))
    return lfilter([(1 - phi**2) ** 0.5], [1.0, -phi], noise, axis=0)[500:]


def judged(phi, shift=0.0):
    """Limits of training on 1500 steps, and 500 new ones with a shift in their second half."""
    series = wandering(phi, 3000, seed=int(1000 * phi))
    training, new = series[:1500], series[2500:].copy()
    new[250:] += shift
    centre, scale = training.mean(axis=0), training.std(axis=0)
    everywhere = np.ones(training.shape, dtype=np.bool_)
    usual = usual_levels.usual_levels((training - centre) / scale, everywhere)
    return usual, (new - centre) / scale, everywhere[:500]


@pytest.mark.parametrize("phi", [0.0, 0.6, 0.9, 0.98])
def test_calm_sensors_are_named_as_seldom_as_is_said(phi, monkeypatch):
    """One in a thousand, whatever their size; 3000 sensors show it to ± 0.0006 (one s.e.)."""
    monkeypatch.setattr(usual_levels, "LEAST_SIZE", 0.0)
    usual, new, observed = judged(phi)
    found = unusual_stretches(new, observed, level_limits(usual, NUM_SENSORS, 500))
    error = (FALSE_ALARMS / NUM_SENSORS) ** 0.5
    assert len(found) / NUM_SENSORS <= FALSE_ALARMS + 3 * error


@pytest.mark.parametrize(("phi", "least"), [(0.0, 1.0), (0.9, 0.95)])
def test_a_shift_of_five_deviations_is_found_where_it_is(phi, least):
    usual, new, observed = judged(phi, shift=5.0)
    found = unusual_stretches(new, observed, level_limits(usual, NUM_SENSORS, 500))
    assert len(found) / NUM_SENSORS >= least
    assert np.median([stretch.size for stretch in found]) == pytest.approx(5.0, abs=0.3)
    firsts = np.array([stretch.first for stretch in found])
    assert np.abs(np.median(firsts) - 250) <= 2
    assert np.median([stretch.last for stretch in found]) >= 495


def test_a_single_sample_makes_no_level_and_gaps_are_no_samples():
    z = np.zeros((200, 2))
    z[100, 0], z[:, 1] = 1e200, 5.0
    observed = np.ones(z.shape, dtype=np.bool_)
    observed[:, 1] = np.arange(200) % 3 == 0  # a third of the samples: too few for a level
    assert unusual_stretches(z, observed, np.full(2, 2.0)) == []
    levels = moving_levels(z, observed)
    assert np.isnan(levels[: LEVEL_STEPS - 1]).all()
    assert np.isnan(levels[:, 1]).all()
    observed[:, 1] = np.arange(200) % 3 != 0
    (found,) = unusual_stretches(z, observed, np.full(2, 2.0))
    assert (found.column, found.size, found.first) == (1, 5.0, 1)


def test_short_data_have_no_level():
    z = np.full((LEVEL_STEPS - 1, 1), 9.0)
    assert unusual_stretches(z, np.ones(z.shape, dtype=np.bool_), np.full(1, 2.0)) == []
    usual = usual_levels.usual_levels(z, np.ones(z.shape, dtype=np.bool_))
    assert np.isinf(level_limits(usual, 1, 500)).all()


def test_a_drift_that_raises_no_alarm_is_named(slow_run):
    panel = slow_panel(600, seed=2, shift=-4.0, at=300)
    assert OnlineAnalysis(slow_run).feed(panel) == []
    levels = find_excursions(slow_run, panel)
    assert {one.name for one in levels.found} == {"q.s1", "q.s2", "q.s3"}
    found = levels.found[0]
    assert found.size == pytest.approx(-4.0, abs=0.7)
    assert 300 <= found.first <= 360
    assert found.last > 560
    assert (levels.num_judged, levels.num_sensors) == (6, 6)
    sentence = levels.sentences(is_calm=True)[0]
    assert sentence.startswith("No alarm: no client surprised its model from one step to the next.")
    assert f"But {found.name} lay {-found.size:.3g} s.d. below its usual level from 3" in sentence
    assert json.loads(json.dumps(found.to_mapping()))["first"] == found.first


def shifted(panel, size, first):
    """All sensors of b shift by so many deviations and stay there."""
    values = panel["b"].values.copy()
    values[first:] += size * made_panel(1500)["b"].values.std(axis=0)
    return replace(panel, clients=(panel["a"], replace(panel["b"], values=values), panel["c"]))


def test_calm_data_of_the_model_name_nobody(run):
    """30 data sets of 12 sensors, of which 0.36 are expected at most: 3 or more in 1 of 170."""
    sets = [find_excursions(run, made_panel(400, seed=100 + k)) for k in range(30)]
    assert sum(len(levels.found) for levels in sets) <= 2
    calm = next(levels for levels in sets if not levels.found)
    words = (
        "no sensor strayed from its usual level (looked at: 12 of 12 sensors, means of 50 steps)"
    )
    assert words in calm.sentences(is_calm=True)[0]
    assert calm.sentences(is_calm=False)[0].startswith("No sensor strayed")
    short = find_excursions(run, made_panel(30, seed=3))
    assert "the level of no sensor could be judged" in short.sentences(is_calm=True)[0]


def test_runs_of_older_versions_open_and_name_large_shifts(run, tmp_path):
    old = {name: replace(monitor, levels=None) for name, monitor in run.monitors.items()}
    replace(run, monitors=old).save(tmp_path / "run")
    again = fg.Result.load(tmp_path / "run")
    assert again.monitors["a"].levels is None
    panel = shifted(made_panel(600, seed=2), 7.0, 300)
    assert {one.client for one in find_excursions(again, panel).found} == {"b"}
    assert find_excursions(again, made_panel(600, seed=2)).found == []


def test_levels_survive_saving(run):
    monitor = run.monitors["a"]
    again = Monitor.from_arrays(monitor.to_arrays())
    assert again.levels is not None
    np.testing.assert_array_equal(again.levels, monitor.levels)


def test_differenced_sensors_have_no_level(run):
    treatment = Treatment(("s2",), (0,))
    monitors = run.monitors | {"b": replace(run.monitors["b"], treatment=treatment)}
    panel = shifted(made_panel(600, seed=2), 5.0, 300)
    levels = find_excursions(replace(run, monitors=monitors), panel)
    assert {one.sensor for one in levels.found} == {"s1", "s3", "s4"}
    assert levels.num_judged == 11


def test_words_of_times_and_of_many(run):
    ends = np.array(["2026-03-05T07:02", "2026-03-05T09:00", "2026-03-06T01:00"], "datetime64[ns]")
    one = Excursion("aeration", "DO_1", -5.1, ends[0], ends[1], is_utc=True)
    assert one.sentence == (
        "aeration.DO_1 lay 5.1 s.d. below its usual level from 2026-03-05 07:02:00 to 09:00:00 UTC"
    )
    assert one.to_mapping()["first"] == "2026-03-05T07:02:00Z"
    later = one._replace(last=ends[2], is_utc=False)
    assert later.sentence.endswith("from 2026-03-05 07:02:00 to 2026-03-06 01:00:00")
    assert later.to_mapping()["last"] == "2026-03-06T01:00:00"
    calm = find_excursions(run, made_panel(400, seed=100))
    many = joined([calm._replace(found=[one] * 3), calm._replace(found=[later] * 4)])
    assert many.sentences(is_calm=False)[-1] == "2 more in rca.json."
