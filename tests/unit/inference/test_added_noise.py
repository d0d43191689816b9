"""Noise that clients added to their states: known exactly, always taken out, never limited."""

import numpy as np
import pytest
import scipy.linalg

import fedgranger as fg
from fedgranger.errors import InferenceError
from fedgranger.inference.covariance import block_covariance
from fedgranger.inference.estimate import estimate, select_lags
from fedgranger.inference.infer import infer
from fedgranger.inference.influence import influence, jackknife_factor, weighted_pieces
from fedgranger.inference.latent import fit_latent
from fedgranger.inference.noise_correction import choose_noise, joint_noise_floor, limit_errors
from fedgranger.inference.shifts import tabulate
from fedgranger.inference.states import complete_rows, select_clients
from tests.configs import formula_config
from tests.state_sources import (
    add_errors,
    random_covs,
    random_transition,
    simulate_states,
    source_of,
)

DIMS = (1, 2, 1)
CONFIG = formula_config(solver="none")


def made(seed=0, num_steps=2000, sensor=0.5, added=1.0):
    """States with sensor error E and added noise N, both known."""
    rng = np.random.default_rng(seed)
    E, N = (random_covs(rng, DIMS, size) for size in (sensor, added))
    states = simulate_states(rng, random_transition(rng, 4, radius=0.9), num_steps)
    states = add_errors(rng, add_errors(rng, states, E), N)
    return source_of(states, DIMS, E)._replace(added_covs=N)


def as_sensor_error(source):
    """The same noise, all of it stated as the sensors'."""
    both = zip(source.error_covs, source.added_covs, strict=True)
    return source._replace(error_covs=tuple(E + N for E, N in both), added_covs=())


def assert_same_answer(one, other):
    np.testing.assert_array_equal(one.transition, other.transition)
    np.testing.assert_array_equal(one.std_error, other.std_error)
    assert one.edges.equals(other.edges)
    assert one.entries.equals(other.entries)


def test_covariances_of_all_clients():
    source = made()
    np.testing.assert_array_equal(source.added_cov, scipy.linalg.block_diag(*source.added_covs))
    np.testing.assert_array_equal(source.error_cov, source.sensor_cov + source.added_cov)
    without = source._replace(added_covs=())
    assert not without.added_cov.any()
    np.testing.assert_array_equal(without.error_cov, scipy.linalg.block_diag(*source.error_covs))


def test_added_noise_vs_the_same_error_of_sensors():
    """Where nothing limits E the estimate is the same; its errors know of the noise's own."""
    source = made()
    one, other = infer(source, CONFIG), infer(as_sensor_error(source), CONFIG)
    np.testing.assert_array_equal(one.transition, other.transition)
    np.testing.assert_allclose(one.std_error, other.std_error, rtol=0.2)


def test_scores_at_smaller_blocks_vs_a_restricted_estimate():
    """Where noise is all there is, φ is the score at the estimate with a block of zero."""
    source = made(7)
    fit = estimate(source)
    pairs, weight = next(weighted_pieces(source, fit))
    own = np.flatnonzero(source.owner == 1)
    G, N = fit.state_cov, source.added_cov
    z = pairs.before @ fit.inverse_cov
    squares = np.einsum("ti,tj->tij", z[:, own], z[:, own]).mean(axis=0)
    share = (fit.inverse_cov @ N @ fit.inverse_cov)[np.ix_(own, own)] @ np.linalg.inv(squares)
    others = np.flatnonzero(source.owner != 1)
    restricted = np.zeros_like(fit.transition)
    restricted[:, others] = np.linalg.solve(
        G[np.ix_(others, others)], fit.moments.lag_cov[:, others].T
    ).T
    inner = np.linalg.inv(fit.inverse_cov[np.ix_(own, own)])
    part = fit.transition[:, own] @ inner
    found = fit.transition - part @ fit.inverse_cov[own]
    np.testing.assert_allclose(found, restricted, atol=1e-12)
    gained = influence(source, fit, pairs, weight) - influence(
        as_sensor_error(source), fit, pairs, weight
    )
    factor = jackknife_factor(fit, pairs, weight)[:, None, None]
    expected = part @ share @ (np.einsum("ti,tj->tij", z[:, own], z[:, own]) - squares) * factor
    np.testing.assert_allclose(gained[:, :, own], expected, rtol=1e-6, atol=1e-12)


def test_lag_order_is_not_lengthened_by_noise():
    """One lag made these data; with the usual count of coefficients some get up to nine."""
    rng = np.random.default_rng(8)
    A = np.kron(np.eye(3), np.array([[0.9, 0.1], [0.0, 0.8]]))
    for _ in range(5):
        states = simulate_states(rng, A, 1500)
        N = tuple(0.1 * np.diag(states[:, k : k + 2].var(axis=0)) for k in (0, 2, 4))
        source = source_of(add_errors(rng, states, N), (2, 2, 2))._replace(added_covs=N)
        assert select_lags(source, 10)[0] == 1


def test_no_noise_added_is_no_added_noise():
    source = made(added=0.5)._replace(added_covs=())
    nothing = source._replace(added_covs=tuple(np.zeros_like(E) for E in source.error_covs))
    assert_same_answer(infer(source, CONFIG), infer(nothing, CONFIG))


def test_estimate_vs_plain_errors_in_variables():
    source = made(1)
    s = next(source.chunks()).states
    s = s - s.mean(axis=0)
    x, y = s[:-1], s[1:]
    G0 = x.T @ x / len(x) - source.sensor_cov - scipy.linalg.block_diag(*source.added_covs)
    np.testing.assert_allclose(
        estimate(source).transition, y.T @ x / len(x) @ np.linalg.inv(G0), rtol=1e-10
    )


def test_edges_do_not_depend_on_coordinates():
    source, rng = made(2), np.random.default_rng(3)
    turns = [rng.normal(size=(d, d)) + 2 * np.eye(d) for d in DIMS]
    parts = np.split(next(source.chunks()).states, np.cumsum(DIMS)[:-1], axis=1)
    E, N = (
        tuple(M @ cov @ M.T for M, cov in zip(turns, covs, strict=True))
        for covs in (source.error_covs, source.added_covs)
    )
    states = np.concatenate([x @ M.T for x, M in zip(parts, turns, strict=True)], axis=1)
    turned = source_of(states, DIMS, E)._replace(added_covs=N)
    one, other = infer(source, CONFIG), infer(turned, CONFIG)
    np.testing.assert_allclose(one.edges["statistic"], other.edges["statistic"], rtol=1e-7)


def test_estimate_is_unbiased_with_the_noise_taken_out():
    """100 data sets; within four standard errors with N, far outside without."""
    rng, num = np.random.default_rng(4), 100
    A, N = random_transition(rng, 4, radius=0.9), random_covs(rng, DIMS)
    found = {"with": [], "without": []}
    for _ in range(num):
        states = add_errors(rng, simulate_states(rng, A, 2000), N)
        source = source_of(states, DIMS)._replace(added_covs=N)
        found["with"].append(estimate(source).transition)
        found["without"].append(estimate(source._replace(added_covs=())).transition)
    distance = {}
    for name, values in found.items():
        spread = np.std(values, axis=0, ddof=1) / np.sqrt(num)
        distance[name] = np.abs(np.mean(values, axis=0) - A) / spread
    assert distance["with"].max() < 4
    assert distance["without"].max() > 40


def test_variance_of_the_estimate_vs_spread_over_data_sets():
    """The sandwich knows of the noise: its mean is the spread, within 4 s.e. of both."""
    rng, num = np.random.default_rng(5), 150
    A, N = random_transition(rng, 4, radius=0.8), random_covs(rng, DIMS)
    values, variances = [], []
    for _ in range(num):
        states = add_errors(rng, simulate_states(rng, A, 1000), N)
        source = source_of(states, DIMS)._replace(added_covs=N)
        fit = estimate(source)
        values.append(fit.transition[0, 1:3])
        variances.append(np.diag(block_covariance(source, fit).block(0, 1)))
    ratio = np.mean(variances, axis=0) / np.var(values, axis=0, ddof=1)
    np.testing.assert_allclose(ratio, 1.0, atol=4 * np.sqrt(2 / num))


def test_noise_correction_off_keeps_the_added_noise():
    source = made()
    config = formula_config(solver="none", noise_correction=False)
    found = fit_latent(source, config)
    np.testing.assert_array_equal(found.source.error_cov, source.added_cov)
    without = source._replace(error_covs=tuple(np.zeros_like(E) for E in source.error_covs))
    np.testing.assert_array_equal(found.fit.transition, estimate(without).transition)


def test_the_noise_floor_does_not_touch_added_noise():
    """Twenty times too much E gives way, N does not; without E there is nothing to limit."""
    source = made(sensor=0.5, added=2.0)
    wrong = source._replace(error_covs=tuple(20 * E for E in source.error_covs))
    floor = joint_noise_floor(wrong)
    assert floor.share < 0.2
    limited = limit_errors(wrong, floor.share)
    assert limited.added_covs is wrong.added_covs
    assert estimate(limited).spectral_radius < 1
    none = source._replace(error_covs=tuple(np.zeros_like(E) for E in source.error_covs))
    assert joint_noise_floor(none) == (1.0, 1.0, 1.0)
    too_much = none._replace(added_covs=tuple(20 * N for N in source.added_covs))
    with pytest.raises(InferenceError, match="less added noise"):
        infer(too_much, CONFIG)


@pytest.mark.parametrize("added", [0.5, 5.0])
def test_true_noises_keep_all_of_themselves(added):
    shares = [joint_noise_floor(made(seed, 600, added=added)).share for seed in range(10)]
    assert shares == [1.0] * 10


def test_what_the_lags_show_is_both_noises():
    """E stated at a third: the lags' E + N minus N replaces it, N stays."""
    ratios = []
    for seed in range(5):
        source = made(seed, 4000, sensor=2.0, added=1.0)
        agreed = choose_noise(source)
        assert agreed.source is source
        third = source._replace(error_covs=tuple(E / 3 for E in source.error_covs))
        found = choose_noise(third)
        assert found.shares
        assert found.source.added_covs is source.added_covs
        pairs = zip(found.source.error_covs, source.error_covs, strict=True)
        ratios += [np.trace(np.linalg.solve(E, shown)) / len(E) for shown, E in pairs]
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.25)


def test_the_field_goes_along():
    source = made()
    assert complete_rows(source).added_covs is source.added_covs
    assert tabulate(source).shifted(np.zeros(3, dtype=int)).added_covs is source.added_covs
    some = select_clients(source, [0, 2])
    assert some.added_covs == (source.added_covs[0], source.added_covs[2])
    assert select_clients(source._replace(added_covs=()), [0, 2]).added_covs == ()


def test_homoskedastic_covariance_says_what_it_ignores():
    config = formula_config(solver="none", covariance="homoskedastic")
    source = made()._replace(error_covs=tuple(np.zeros((d, d)) for d in DIMS))
    found = infer(source, config)
    assert any("ignores added noise" in text for text in found.facts["warnings"])


def test_auto_with_noise_added():
    """Both tests and their copies carry it; the latent test finds the one link."""
    rng = np.random.default_rng(6)
    A = np.diag([0.7, 0.6, 0.65, 0.7])
    A[3, 0] = 0.5
    N = tuple(np.eye(d) for d in DIMS)
    states = add_errors(rng, simulate_states(rng, A, 1500), N)
    source = source_of(states, DIMS)._replace(added_covs=N)
    found = infer(source, fg.RunConfig(solver="none", test="auto", copies=20))
    table = found.edges.set_index(["cause", "effect"])
    assert found.facts["test"] == "debiased"
    assert table.loc[("c0", "c2"), "p_value"] < 0.01
