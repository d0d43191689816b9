"""Pairs, moments and weights of the state streams, against plain loops."""

import numpy as np
import pytest

from fedgranger.inference import influence
from fedgranger.inference.covariance import block_covariance
from fedgranger.inference.estimate import estimate
from fedgranger.inference.infer import infer
from fedgranger.inference.state_moments import accumulate, expand, moments_without_blocks
from fedgranger.inference.states import lagged_pairs
from tests.configs import formula_config
from tests.state_sources import (
    add_errors,
    random_covs,
    random_transition,
    simulate_states,
    source_of,
)

DIMS = (1, 2, 3)
OWNER = np.repeat(np.arange(3), DIMS)


@pytest.fixture(scope="module")
def data():
    """States with error, their error covariances, a mask with a fifth missing."""
    rng = np.random.default_rng(3)
    covs = random_covs(rng, DIMS, 0.1)
    states = add_errors(rng, simulate_states(rng, random_transition(rng, 6), 300), covs)
    return states + rng.normal(size=6), covs, rng.random((300, 3)) > 0.2


def pairs_by_loop(states, observed, starts, lags):
    """(t, s⁺, x, mask of s⁺, mask of x) of every pair, one at a time."""
    found = []
    for t in range(lags - 1, len(states) - 1):
        steps = range(t + 1 - lags, t + 2)
        if any(s in steps for s in starts if s != steps[0]):
            continue
        back = [t - k for k in range(lags)]
        found.append(
            (
                t,
                states[t + 1],
                np.concatenate([states[s] for s in back]),
                observed[t + 1],
                np.concatenate([observed[s] for s in back]),
            )
        )
    return found


@pytest.mark.parametrize("lags", [1, 2, 3])
@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_pairs_vs_loop(data, lags, chunk):
    """Starts at 4 and 6: a stretch of two steps holds one pair at one lag and none at more."""
    states, _, observed = (part[:40] for part in data)
    starts = (0, 4, 6, 25)
    source = source_of(states, DIMS, observed=observed, starts=starts, chunk=chunk)
    chunks = list(lagged_pairs(source, lags, np.zeros(6)))
    after, before, after_ok, before_ok, index, segment = (
        np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in chunks[0]._fields
    )
    masked = np.where(observed[:, OWNER], states, 0.0)
    expected = pairs_by_loop(masked, observed, starts, lags)
    assert index.tolist() == [pair[0] for pair in expected]
    assert len(index) == 40 - sum(min(lags, length) for length in (4, 2, 19, 15))
    for got, k in ((after, 1), (before, 2), (after_ok, 3), (before_ok, 4)):
        np.testing.assert_array_equal(got, np.array([pair[k] for pair in expected]))
    np.testing.assert_array_equal(segment, np.searchsorted(starts, index, side="right") - 1)


def test_observed_values_are_centred_and_missing_ones_zero(data):
    states, _, observed = data
    (chunk,) = lagged_pairs(source_of(states, DIMS, observed=observed), 1, np.arange(6.0))
    expected = np.where(observed[:, OWNER], states - np.arange(6.0), 0.0)
    np.testing.assert_array_equal(chunk.after, expected[1:])
    np.testing.assert_array_equal(chunk.before, expected[:-1])


@pytest.mark.parametrize("lags", [1, 2])
@pytest.mark.parametrize("weighting", ["none", "ewma"])
def test_moments_of_incomplete_pairs_vs_loop(data, lags, weighting):
    """Every block is averaged over the pairs in which its two clients are both there."""
    states, _, observed = data
    starts, M, P = (0, 120), 3, 6
    weights = {"weighting": weighting, "span": 80}
    source = source_of(states, DIMS, observed=observed, starts=starts, **weights)
    moments = accumulate(source, lags)

    all_weights = source.weights(np.arange(len(states)))
    mean = np.array(
        [
            np.average(states[ok, j], weights=all_weights[ok])
            for j, ok in enumerate(observed[:, OWNER].T)
        ]
    )
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-12)

    sums = {name: 0.0 for name in ("before", "lag", "after")}
    weights = {name: 0.0 for name in ("before", "lag", "after")}
    centred = np.where(observed[:, OWNER], states - mean, 0.0)
    total = square = count = 0.0
    for t, y, x, q, o in pairs_by_loop(centred, observed, starts, lags):
        w = source.weights(np.array([t]))[0]
        columns = np.tile(OWNER, lags) + M * np.repeat(np.arange(lags), P)
        for name, left, right, left_ok, right_ok in (
            ("before", x, x, o[columns], o[columns]),
            ("lag", y, x, q[OWNER], o[columns]),
            ("after", y, y, q[OWNER], q[OWNER]),
        ):
            both = np.outer(left_ok, right_ok)
            sums[name] = sums[name] + np.where(both, w * np.outer(left, right), 0.0)
            weights[name] = weights[name] + w * both
        total, square, count = total + w, square + w**2, count + 1
    np.testing.assert_allclose(moments.before_cov, sums["before"] / weights["before"], rtol=1e-10)
    np.testing.assert_allclose(moments.lag_cov, sums["lag"] / weights["lag"], rtol=1e-10)
    np.testing.assert_allclose(moments.after_cov, sums["after"] / weights["after"], rtol=1e-10)
    np.testing.assert_allclose(
        expand(moments.before_weight, DIMS, lags, lags), weights["before"], rtol=1e-12
    )
    np.testing.assert_allclose(
        expand(moments.lag_weight, DIMS, 1, lags), weights["lag"], rtol=1e-12
    )
    assert moments.num_pairs == count
    np.testing.assert_allclose(moments.total_weight, total)
    np.testing.assert_allclose(moments.effective_pairs, total**2 / square)
    assert not moments.is_complete


def test_two_segments_pool_the_moments_of_two_sources(data):
    """Both parts have mean zero, so the pooled mean is zero too."""
    states, _, _ = data
    first, second = (part - part.mean(axis=0) for part in (states[:110], states[110:]))
    pooled = accumulate(source_of(np.vstack([first, second]), DIMS, starts=(0, 110)), 2)
    one, two = (accumulate(source_of(part, DIMS), 2) for part in (first, second))
    assert pooled.num_pairs == one.num_pairs + two.num_pairs == 300 - 4
    for name in ("before_cov", "lag_cov", "after_cov"):
        expected = (
            one.num_pairs * getattr(one, name) + two.num_pairs * getattr(two, name)
        ) / pooled.num_pairs
        np.testing.assert_allclose(getattr(pooled, name), expected, rtol=1e-9, atol=1e-12)


def test_jump_between_segments_does_not_enter(data):
    """A pair across the start would make the lag moments depend on how the parts are joined."""
    states, covs, _ = data
    states = states - states.mean(axis=0)
    a, b = states[:150] - states[:150].mean(axis=0), states[150:] - states[150:].mean(axis=0)
    forward = estimate(source_of(np.vstack([a, b]), DIMS, covs, starts=(0, 150)), 2)
    swapped = estimate(source_of(np.vstack([b, a]), DIMS, covs, starts=(0, 150)), 2)
    np.testing.assert_allclose(forward.transition, swapped.transition, rtol=1e-9, atol=1e-10)


def values_of(found):
    """All numbers of an `EdgeInference`, by name."""
    facts = found.facts
    out = {name: getattr(found, name) for name in ("transition", "std_error", "p_value")}
    out |= {f"edge {name}": found.edges[name].to_numpy() for name in ("statistic", "p_value")}
    for name in ("portmanteau", "unit_root", "detectable_strength"):
        out[name] = np.array(list(facts[name].values()))
    for name in ("df_denominator", "effective_pairs", "spectral_radius", "condition"):
        out[name] = np.array(facts[name])
    return out


@pytest.fixture(scope="module", params=["model", "newey-west"])
def whole(request, data):
    """Result in one chunk; gaps, two segments, two lags, weights."""
    states, covs, observed = data
    config = formula_config(lags=2, hac=request.param, weighting="ewma", weighting_span=150)

    def run(chunk):
        source = source_of(states, DIMS, covs, observed=observed, starts=(0, 130), chunk=chunk)
        return values_of(infer(source, config))

    return run, run(10**6)


@pytest.mark.parametrize("chunk", [1, 7, 130, 299])
def test_chunks_do_not_matter(whole, chunk):
    run, expected = whole
    for name, value in run(chunk).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-11, atol=1e-12, err_msg=name)


def test_working_memory_does_not_matter(whole, monkeypatch):
    run, expected = whole
    monkeypatch.setattr(influence, "CHUNK_VALUES", 1)  # pieces of 64 pairs
    for name, value in run(10**6).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-11, atol=1e-12, err_msg=name)


def test_window_is_the_last_steps(data):
    """With one lag, pair t needs t in the window, so t + 1 is in it too."""
    states, covs, observed = data
    inside = {"weighting": "window", "span": 120}
    for ok in (np.ones_like(observed), observed):
        source = source_of(states, DIMS, covs, observed=ok, **inside)
        last = source_of(states[-120:], DIMS, covs, observed=ok[-120:])
        fit, expected = estimate(source, 1), estimate(last)
        assert fit.moments.num_pairs == expected.moments.num_pairs == 119
        np.testing.assert_allclose(fit.transition, expected.transition, rtol=1e-10, atol=1e-12)
        ours, theirs = block_covariance(source, fit), block_covariance(last, expected)
        np.testing.assert_allclose(ours.cov, theirs.cov, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(ours.df, theirs.df, rtol=1e-9)


def test_window_with_more_lags_reaches_before_it_for_the_past_only(data):
    """As many pairs as with one lag; the oldest states may lie L − 1 steps before the window."""
    states, covs, _ = data
    fit = estimate(source_of(states, DIMS, covs, weighting="window", span=120), 3)
    assert fit.moments.num_pairs == 119
    np.testing.assert_allclose(fit.moments.mean, states[-120:].mean(axis=0), rtol=1e-10)


def test_window_longer_than_the_data_is_no_weighting(data):
    states, covs, _ = data
    source, longer = (
        source_of(states, DIMS, covs, weighting=kind, span=300) for kind in ("none", "window")
    )
    np.testing.assert_array_equal(estimate(longer).transition, estimate(source).transition)


def test_ewma_halves_every_span():
    weight_of = source_of(np.zeros((1000, 1)), (1,), weighting="ewma", span=25).weights
    np.testing.assert_allclose(weight_of(np.array([999, 974, 949])), [1.0, 0.5, 0.25])
    np.testing.assert_allclose(weight_of(np.array([24])), 2.0**-39, rtol=1e-12)
    assert weight_of(np.array([0]))[0] == 0.0  # below 1e-12: not computed with


def test_ewma_effective_pairs_vs_geometric_series(data):
    """(Σ rᵏ)²/Σ r²ᵏ = (1 + r)/(1 − r) in the limit."""
    states, covs, _ = data
    r = 0.5 ** (1 / 10)
    fit = estimate(source_of(states, DIMS, covs, weighting="ewma", span=10))
    np.testing.assert_allclose(fit.moments.effective_pairs, (1 + r) / (1 - r), rtol=1e-6)


def test_scale_of_weights_does_not_matter(data):
    """Only ratios count: a pass over time-shifted data with the same ratios changes nothing."""
    states, covs, observed = data
    source = source_of(states, DIMS, covs, observed=observed)
    even = source._replace(weighting="ewma", weighting_span=1e9)  # practically constant weights
    fit, plain = estimate(even), estimate(source)
    np.testing.assert_allclose(fit.transition, plain.transition, rtol=1e-5, atol=1e-6)
    ours = block_covariance(even, fit)
    np.testing.assert_allclose(ours.cov, block_covariance(source, plain).cov, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("weighting", ["none", "ewma"])
def test_moments_without_a_block_are_those_of_the_other_pairs(data, weighting):
    states, covs, observed = data
    source = source_of(
        states,
        DIMS,
        covs,
        observed=observed,
        starts=(0, 70),
        chunk=64,
        weighting=weighting,
        span=99,
    )
    mean = accumulate(source, 2).mean
    found = [*moments_without_blocks(source, 2, 7, mean)]
    pairs = pairs_by_loop(states - mean, observed, (0, 70), 2)
    w = source.weights(np.arange(300))
    for block, moments in enumerate(found):
        kept = [pair for pair in pairs if pair[0] * 7 // 300 != block]
        count = sum(w[t] * np.outer(q, o) for t, _, _, q, o in kept)
        full = np.repeat(np.repeat(count, DIMS, axis=0), DIMS * 2, axis=1)
        masked = [(t, y * q[OWNER], x * o[np.r_[OWNER, 3 + OWNER]]) for t, y, x, q, o in kept]
        total = sum(w[t] * np.outer(y, x) for t, y, x in masked)
        np.testing.assert_allclose(moments.lag_cov, total / full, atol=1e-12)
        np.testing.assert_allclose(moments.lag_weight, count, atol=1e-12)
        assert moments.num_pairs == len(kept)
