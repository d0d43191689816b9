"""Drift: what changes is found with its client and time; what does not is left alone."""

import numpy as np
import pytest

from fedgranger.config import RunConfig
from fedgranger.errors import ConfigError
from fedgranger.inference.drift import (
    drift_facts,
    drift_warnings,
    find_drift,
    in_regime,
    last_change,
    time_text,
    weight_warnings,
)
from fedgranger.inference.infer import infer
from fedgranger.inference.shifts import tabulate
from fedgranger.inference.states import keep_rows
from fedgranger.tested_facts import InferenceFacts
from tests.configs import formula_config
from tests.state_sources import add_errors, random_covs, simulate_states, source_of

T, DIMS = 1600, (2, 1, 2)
HOURS = np.datetime64("2026-01-01T00:00:00") + np.arange(T) * np.timedelta64(1, "h")


@pytest.fixture(scope="module")
def steady():
    rng = np.random.default_rng(0)
    A = np.diag([0.5, 0.7, 0.9, 0.4, 0.6])
    return add_errors(rng, simulate_states(rng, A, T), random_covs(rng, DIMS, 0.2))


def source(states, **options):
    made = source_of(states, DIMS, own_lags=(3, 4, 3), **options)
    return made._replace(times=HOURS.astype("datetime64[ns]"))


def changes(states, **options):
    return find_drift(tabulate(source(states, **options))).changes


def test_steady_states_do_not_change(steady):
    found = find_drift(tabulate(source(steady)))
    assert found.changes == ()
    assert found.num_tests == 3 * 3 + 6
    assert drift_warnings(source(steady), found, RunConfig()) == []


@pytest.mark.parametrize("what", ["level", "variability", "dynamics", "influence"])
def test_a_change_is_named_with_client_and_time(steady, what):
    states = steady.copy()
    if what == "level":
        states[1000:, 2] += 6.0
    elif what == "variability":
        states[1000:, 2] *= 2.0
    elif what == "dynamics":
        for t in range(1000, T):  # from a time constant of ten steps to half a step
            states[t, 2] = steady[t, 2] - 0.8 * steady[t - 1, 2]
    else:
        states[1001:, 2] += 0.8 * steady[1000:-1, 0]
    first = changes(states)[0]
    assert first.client == "c1"
    assert abs(first.step - 1000) < 100
    if what == "influence":
        assert "c0" in first.what


def test_sentence_and_facts(steady):
    states = steady.copy()
    states[800:, 2] += 6.0
    states[400:, 0] *= 2.0
    made = source(states)
    found = find_drift(tabulate(made))
    (sentence,) = drift_warnings(made, found, RunConfig())
    assert "of 'c1' around 2026-02-0" in sentence
    assert "of 'c0' around 2026-01-1" in sentence
    assert drift_warnings(made, found, RunConfig(time_windows=4)) == []
    facts = drift_facts(made, found)
    assert {one["client"] for one in facts["changes"]} >= {"c0", "c1"}
    assert facts["num_tests"] == 15


def test_last_regime_is_found_and_used(steady):
    states = steady.copy()
    states[500:, 2] += 6.0
    states[1100:, 0] *= 2.5
    made = source(states)
    assert abs(last_change(tabulate(made)) - 1100) < 40
    found = infer(made, formula_config(weighting="regime"))
    assert 450 < found.facts["num_pairs"] < 550
    assert any("regime weights" in sentence for sentence in found.facts["warnings"])
    given = in_regime(made, RunConfig(weighting="regime", regime_start="2026-02-15T20:00"))
    assert given.regime_start == 1100
    assert time_text(given, 1100) == "2026-02-15T20:00:00"


def test_regime_equals_a_window_of_its_length(steady):
    regime = infer(source(steady), formula_config(weighting="regime", regime_start="2026-02-15"))
    start = int(np.searchsorted(HOURS, np.datetime64("2026-02-15")))
    window = infer(source(steady), formula_config(weighting="window", weighting_span=T - start))
    np.testing.assert_array_equal(regime.transition, window.transition)
    np.testing.assert_array_equal(regime.p_value, window.p_value)


def test_no_regime_is_no_weighting(steady):
    plain, regime = (infer(source(steady), formula_config(weighting=w)) for w in ("none", "regime"))
    np.testing.assert_array_equal(plain.p_value, regime.p_value)
    assert "no change was found" in regime.facts["warnings"][-1]


def test_wrong_starts_are_one_sentence(steady):
    made = source(steady)
    with pytest.raises(ConfigError, match=r"must be a time stamp like the data's own \(2026-01-01"):
        in_regime(made, RunConfig(weighting="regime", regime_start="yesterday"))
    with pytest.raises(ConfigError, match="must not be later than the last time"):
        in_regime(made, RunConfig(weighting="regime", regime_start="2030-01-01"))
    numbers = made._replace(times=np.arange(T))
    with pytest.raises(ConfigError, match=r"must be a number like the data's own \(0\)"):
        in_regime(numbers, RunConfig(weighting="regime", regime_start="2026-01-01"))


def test_periodic_weights_follow_the_clock_over_gaps(steady):
    made = source(steady)._replace(weighting="periodic", weighting_span=24)
    kept = keep_rows(made, lambda chunk, _: np.arange(len(chunk.starts)) // 100 != 3)
    hours = kept.times.astype("datetime64[h]").astype(int) % 24
    used = kept.weights(np.arange(kept.num_steps)) > 0
    assert set(hours[used]) == {hours[-1]}
    assert used.sum() == (hours == hours[-1]).sum()


def test_few_or_missing_samples_are_no_change(steady):
    few = source_of(steady[:60], DIMS, own_lags=(3, 4, 3))
    assert find_drift(tabulate(few)).changes == ()
    gaps = np.random.default_rng(1).random((T, 3)) > 0.2
    assert changes(steady, observed=gaps) == ()


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            {"test": "readings"},
            "the readings' test, whose edges these are, counts all time steps alike (test = "
            "'debiased' has weights)",
        ),
        (
            {"test": "nonlinear", "beside": {}},
            "the nonlinear test, whose edges these are, and the tests beside it count all time "
            "steps alike (test = 'debiased' has weights, and sees linear influences only)",
        ),
        ({"test": "debiased", "beside": {}}, "beside it counts all time steps alike"),
    ],
)
def test_tests_that_ignore_weights_are_named(steady, facts, words):
    config = RunConfig(weighting="ewma", weighting_span=100)
    (sentence,) = weight_warnings(source(steady), InferenceFacts.of(facts), config)
    assert words in sentence


def test_a_cycle_longer_than_the_record_is_said(steady):
    words = "finds no whole cycle of 5000 steps in a record of 1600, so only its last steps count"
    facts = InferenceFacts(test="debiased")
    for times in (HOURS.astype("datetime64[ns]"), None):
        made = source(steady)._replace(times=times)
        (sentence,) = weight_warnings(
            made, facts, RunConfig(weighting="periodic", weighting_span=5000)
        )
        assert words in sentence
        whole = RunConfig(weighting="periodic", weighting_span=1600)
        assert weight_warnings(made, facts, whole) == []
