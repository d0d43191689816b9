"""Checks on the fit: they stay silent when all is well and speak up when it is not."""

import numpy as np
import pytest

from fedgranger.inference.diagnostics import diagnose
from fedgranger.inference.estimate import estimate
from tests.state_sources import add_errors, simulate_states, source_of

QUIET = np.array([[0.5, 0.0], [0.3, 0.4]])
COVS = (0.5 * np.eye(1), 0.5 * np.eye(1))


def checks(states, covs=None, lags=1, **options):
    source = source_of(states, (1,) * states.shape[1], covs, **options)
    return diagnose(source, estimate(source, lags))


def noisy(seed, transition=QUIET, num_steps=400):
    rng = np.random.default_rng(seed)
    return add_errors(rng, simulate_states(rng, transition, num_steps), COVS)


def test_nothing_to_say_about_good_data():
    found = checks(noisy(0, num_steps=2000), COVS)
    assert found.warnings == ()
    assert found.effective_pairs == 1999
    assert set(found.portmanteau) == set(found.unit_root) == {"c0", "c1"}


def test_portmanteau_vs_loop():
    """Q over lags L + 1 … L + 10 with Bartlett's variance, from residuals one at a time."""
    from scipy import stats

    states = noisy(1)
    source = source_of(states, (1, 1), COVS, starts=(0, 150))
    fit = estimate(source, 2)
    s = states - fit.moments.mean
    residuals = {
        t: s[t] - fit.transition @ np.concatenate([s[t - 1], s[t - 2]])
        for t in range(2, 400)
        if t not in (150, 151)
    }
    for client, name in enumerate(source.names):
        rho, counts = [], []
        variance = np.mean([e[client] ** 2 for e in residuals.values()])
        for k in range(1, 13):
            products = [
                residuals[t][client] * residuals[t - k][client]
                for t in residuals
                if t - k in residuals and (t >= 150) == (t - k >= 150)
            ]
            rho.append(np.mean(products) / variance)
            counts.append(len(products))
        rho, counts = np.array(rho), np.array(counts)
        Q = (counts * rho**2)[2:].sum() / (1 + 2 * (rho[:2] ** 2).sum())
        np.testing.assert_allclose(
            diagnose(source, fit).portmanteau[name], stats.chi2.sf(Q, 10), rtol=1e-9
        )


def test_portmanteau_size_and_power():
    """Under the model p is about uniform despite measurement error; a second lag is found.

    120 p-values: a true size of 5 % gives at most 15 below 0.05 but once in a thousand.
    """
    right, wrong = [], []
    second = np.hstack([QUIET, np.diag([0.4, 0.0])])
    for seed in range(60):
        right += checks(noisy(seed), COVS).portmanteau.values()
        wrong.append(checks(noisy(seed, second, 3000), COVS).portmanteau["c0"])
    assert (np.array(right) < 0.05).sum() <= 15
    assert 0.3 < np.median(right) < 0.7
    assert np.mean(np.array(wrong) < 0.05) > 0.9


def test_portmanteau_warning_names_the_client_and_the_remedy():
    second = np.hstack([QUIET, np.diag([0.4, 0.0])])
    states = noisy(3, second, 3000)
    (sentence,) = checks(states, COVS).warnings
    assert sentence.startswith("the residuals of c0 are autocorrelated beyond what the model")
    assert "lags='auto'" in sentence
    assert checks(states, COVS, lags=2).warnings == ()


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_unit_root_of_a_random_walk(missing):
    """Also with gaps: zeros in place of missing values would pass for stationarity."""
    rng = np.random.default_rng(4)
    states = np.column_stack([1000 + rng.normal(size=800).cumsum(), rng.normal(size=800)])
    found = checks(states, observed=rng.random((800, 2)) >= missing)
    assert found.unit_root["c0"] > 0.05
    assert found.unit_root["c1"] < 1e-4
    assert "a unit root cannot be excluded for c0: consider differencing" in found.warnings


def test_unit_root_takes_the_least_stationary_state():
    rng = np.random.default_rng(5)
    states = np.column_stack([rng.normal(size=800), rng.normal(size=800).cumsum()])
    source = source_of(states, (2,))
    assert diagnose(source, estimate(source)).unit_root["c0"] > 0.05


@pytest.mark.parametrize(("num_steps", "speaks"), [(400, True), (40_000, False)])
def test_near_unit_root(num_steps, speaks):
    """A root of 0.97 has a time constant of 33 steps: 400 steps hold 12 of them."""
    rng = np.random.default_rng(6)
    states = simulate_states(rng, np.diag([0.97, 0.5]), num_steps)
    notes = [note for note in checks(states).warnings if note.startswith("the largest root")]
    assert bool(notes) is speaks
    if speaks:
        assert "399 steps hold only" in notes[0]


def test_short_data_without_memory_are_no_near_unit_root():
    states = np.random.default_rng(7).normal(size=(40, 2))
    assert not [note for note in checks(states).warnings if "root is" in note]


@pytest.mark.parametrize(("distance", "speaks"), [(1e-3, True), (1.0, False)])
def test_near_collinearity(distance, speaks):
    rng = np.random.default_rng(8)
    states = rng.normal(size=(500, 2))
    states[:, 1] = states[:, 0] + distance * states[:, 1]
    notes = [note for note in checks(states).warnings if "nearly collinear" in note]
    assert bool(notes) is speaks


@pytest.mark.parametrize("num_steps", [7, 9, 14])
def test_very_short_data(num_steps):
    """Fewer steps than the portmanteau has lags: the lags there are count."""
    found = checks(np.random.default_rng(9).normal(size=(num_steps, 2)))
    assert all(0 <= p <= 1 for p in found.portmanteau.values())


def test_effective_pairs_of_weights():
    source = source_of(noisy(10), (1, 1), COVS, weighting="ewma", span=20)
    found = diagnose(source, estimate(source))
    r = 0.5 ** (1 / 20)
    np.testing.assert_allclose(found.effective_pairs, (1 + r) / (1 - r), rtol=1e-4)
