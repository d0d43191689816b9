"""The positive control: its formula, its invariance, and whether what it promises is found."""

import numpy as np
import pytest
from scipy import optimize, stats

from fedgranger.config import RunConfig
from fedgranger.inference.infer import infer
from fedgranger.inference.positive_control import smallest_influence
from tests.influences import DIMS, data_set, least_favourable, share_found
from tests.state_sources import random_covs, source_of


def needed_noncentrality(k, nu, alpha=0.05, target=0.8):
    critical = stats.f.isf(alpha, k, nu)
    return optimize.brentq(lambda d: stats.ncf.sf(critical, k, nu, d) - target, 0.1, 200)


def made_case(rng, p=2, q=2, lags=2):
    F = rng.normal(size=(p * q * lags, p * q * lags))
    cov = F @ F.T / 100 + 0.01 * np.eye(len(F))
    effect, cause = (random_covs(rng, (size,))[0] for size in (p, q))
    columns = np.repeat(np.arange(1, lags + 1), q), np.tile(np.arange(q), lags)
    return cov, columns, effect, cause


def test_no_direction_of_that_size_has_less_power_and_one_has_exactly_80_percent():
    rng = np.random.default_rng(0)
    cov, (lag, state), effect, cause = made_case(rng)
    found = smallest_influence(cov, (lag, state), effect, cause, 300.0, 0.05)
    needed = needed_noncentrality(8, 300.0)

    def noncentrality(block):
        full = np.zeros((2, len(lag)))
        full[:, lag == 1] = block[:, state[lag == 1]]
        a = full.reshape(-1)
        return a @ np.linalg.solve(cov, a)

    def block_of(direction):
        unit = direction / np.linalg.norm(direction)
        return (
            found.size
            * np.linalg.cholesky(effect)
            @ unit
            @ np.linalg.inv(np.linalg.cholesky(cause))
        )

    assert noncentrality(found.block) == pytest.approx(needed, rel=1e-6)
    others = [noncentrality(block_of(rng.normal(size=(2, 2)))) for _ in range(500)]
    assert min(others) >= needed * (1 - 1e-9)
    descent = optimize.minimize(
        lambda x: noncentrality(block_of(x.reshape(2, 2))), rng.normal(size=4), tol=1e-12
    )
    assert descent.fun == pytest.approx(needed, rel=1e-4)
    in_units = np.linalg.inv(np.linalg.cholesky(effect)) @ found.block @ np.linalg.cholesky(cause)
    assert np.linalg.norm(in_units) == pytest.approx(found.size)


def test_scalar_clients_have_a_closed_form():
    """g = sqrt(δ V) s_cause / s_effect."""
    found = smallest_influence(
        np.array([[0.004]]),
        (np.array([1]), np.array([0])),
        np.array([[4.0]]),
        np.array([[9.0]]),
        200.0,
        0.01,
    )
    expected = np.sqrt(needed_noncentrality(1, 200.0, 0.01) * 0.004) * 3 / 2
    assert found.size == pytest.approx(expected, rel=1e-6)


def test_what_is_not_seen_or_has_no_innovation_is_never_found():
    rng = np.random.default_rng(1)
    cov, (lag, state), effect, cause = made_case(rng)
    second = (lag + 1, state)  # the first lag is not tested
    assert np.isinf(smallest_influence(cov, second, effect, cause, 300.0, 0.05).size)
    broken = effect - 2 * np.eye(2) * np.linalg.eigvalsh(effect)[0]
    assert np.isinf(smallest_influence(cov, (lag, state), broken, cause, 300.0, 0.05).size)


@pytest.mark.parametrize("test", ["readings", "debiased"])
def test_units_of_the_states_do_not_matter(test):
    config = RunConfig(test=test, copies=20, lags=1)
    source = data_set(3, 500)
    states = next(source.chunks()).states
    turn = np.array([[2.0, 1.0, 0.0], [0.0, 1e-4, 0.0], [0.0, 0.0, 50.0]])
    one, other = (
        infer(each, config).facts["positive_control"]
        for each in (source, source_of(states @ turn.T, DIMS))
    )
    assert set(one) == {"c0 -> c1", "c1 -> c0"}
    assert other == pytest.approx(one, rel=1e-5)


def test_the_latent_run_reports_what_the_formula_gives():
    source = data_set(5, 700, error=0.2)
    facts = infer(source, RunConfig(test="debiased", lags=1)).facts
    expected = least_favourable(source, "debiased").size
    assert facts["positive_control"]["c1 -> c0"] == pytest.approx(expected, rel=1e-6)


def test_the_copies_widen_what_the_readings_report():
    """The critical value of the copies' law stands in for the F law's."""
    source = data_set(6, 500)
    config = RunConfig(test="readings", copies=30, lags=1)
    found = infer(source, config)
    plain = least_favourable(source, "readings").size
    from fedgranger.inference.calibrate import calibrate

    law = calibrate(found.audit.found.statistic, found.audit.found.df, found.audit.statistics).law
    ratio = law.critical(0.05)[0, 1] / stats.f.isf(0.05, 2, 490.0)
    reported = found.facts["positive_control"]["c1 -> c0"]
    assert reported / plain == pytest.approx(np.sqrt(ratio), rel=1e-3)


@pytest.mark.slow  # Monte Carlo over many data sets; parts of it are tested by formula
def test_what_the_latent_test_promises_is_found():
    """60 data sets: 80 % within 2.6 Monte Carlo errors (5 % each)."""
    config = RunConfig(test="debiased", lags=1)
    share, error = share_found(config, range(60), 400, error=0.2)
    assert abs(share - 0.8) < 2.6 * error, (share, error)


@pytest.mark.slow  # a Monte Carlo study
def test_what_the_readings_promise_is_found():
    """Three times 10 data sets: 80 % within 2.6 Monte Carlo errors (7 % each)."""
    config = RunConfig(test="readings", copies=40, lags=1)
    share, error = share_found(config, range(3), 300, per_base=10)
    assert abs(share - 0.8) < 2.6 * error, (share, error)


@pytest.mark.slow  # 300 data sets each
@pytest.mark.parametrize(("test", "error"), [("debiased", 0.3), ("readings", 0.0), ("auto", 0.3)])
def test_the_promise_holds_on_many_data_sets(test, error):
    """300 data sets each: 80 % within 3 Monte Carlo errors (2.3 % each); `pytest -s` prints it."""
    config = RunConfig(test=test, copies=60, lags=1)
    share, spread = share_found(config, range(100), 600, error=error, per_base=3)
    print(f"{test}: {share:.3f} ({spread:.3f})")
    assert abs(share - 0.8) < 3 * spread, (share, spread)
