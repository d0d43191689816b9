"""Tests of edges and entries, multiplicity and power."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from fedgranger.errors import ConfigError
from fedgranger.inference import strength
from fedgranger.inference.covariance import BlockCovariance, block_covariance
from fedgranger.inference.decision import adjust, decide, false_edge_bound, normal_score
from fedgranger.inference.edge_tables import EDGE_COLUMNS, ENTRY_COLUMNS
from fedgranger.inference.estimate import estimate
from fedgranger.inference.infer import infer
from fedgranger.inference.strength import detectable_strength
from fedgranger.inference.wald import EntryTests, all_entry_tests, wald_tests
from tests.configs import formula_config
from tests.state_sources import (
    add_errors,
    random_covs,
    random_transition,
    simulate_states,
    source_of,
)

TINY = np.finfo(np.float64).tiny
DIMS = (1, 2)


@pytest.fixture(scope="module")
def fitted():
    """Source, fit and sandwich of two clients with one and two states, two lags."""
    rng = np.random.default_rng(1)
    covs = random_covs(rng, DIMS, 0.1)
    states = add_errors(rng, simulate_states(rng, random_transition(rng, 3, 2, 0.6), 400), covs)
    source = source_of(states, DIMS, covs)
    fit = estimate(source, 2)
    return source, fit, block_covariance(source, fit)


def with_cov(covariance, cov, df=50.0):
    """The same sizes with another covariance."""
    shape, no_block = covariance.df.shape, np.zeros(covariance.df.shape, dtype=bool)
    return BlockCovariance(cov, np.full(shape, df), covariance.dims, covariance.lags, 1, no_block)


def block_entries(fit, dims, effect, cause):
    """The block by hand; clients 0 and 1 have one and two states, lags lie side by side."""
    assert dims == DIMS
    rows = {0: [0], 1: [1, 2]}
    return fit.transition[np.ix_(rows[effect], [k * 3 + j for k in (0, 1) for j in rows[cause]])]


def entry_tests(fit, covariance, dims, effect, cause, confidence):
    everything = all_entry_tests(fit.transition, covariance, confidence)
    rows, columns = dims[effect], fit.lags * dims[cause]
    return EntryTests(*(part[effect, cause, :rows, :columns] for part in everything))


def test_wald_vs_quadratic_form(fitted):
    _, fit, covariance = fitted
    tests = wald_tests(fit.transition, covariance)
    for m, n in ((0, 1), (1, 0)):
        a = block_entries(fit, DIMS, m, n).reshape(-1)
        V = covariance.block(m, n)
        W = a @ np.linalg.inv(V) @ a
        np.testing.assert_allclose(tests.statistic[m, n], W, rtol=1e-9)
        assert tests.df[m, n] == len(a) == 4
        nu = covariance.df[m, n]
        hotelling = 1 - stats.f.cdf(W * (nu - 3) / (4 * nu), 4, nu - 3)
        np.testing.assert_allclose(tests.p_value[m, n], hotelling, rtol=1e-6)
        np.testing.assert_allclose(covariance.test_df[m, n], nu - 3)
    assert np.isnan(np.diag(tests.p_value)).all()
    assert np.isnan(np.diag(tests.statistic)).all()
    assert tests.reason == {}


def test_large_df_meets_chi_square(fitted):
    _, fit, covariance = fitted
    tests = wald_tests(fit.transition, with_cov(covariance, covariance.cov, 1e9))
    np.testing.assert_allclose(
        tests.p_value[0, 1], stats.chi2.sf(tests.statistic[0, 1], 4), rtol=1e-6
    )


def test_p_value_is_never_zero(fitted):
    """Where the float underflows the smallest normal number stands in; it can still be sorted."""
    _, fit, covariance = fitted
    certain = with_cov(covariance, covariance.cov * 1e-12, 1e6)
    tests = wald_tests(fit.transition, certain)
    assert tests.p_value[0, 1] == tests.p_value[1, 0] == TINY
    assert (entry_tests(fit, certain, DIMS, 0, 1, 0.95).p_value == TINY).all()


def test_no_valid_covariance_is_nan_with_a_reason(fitted):
    """Neither 0 nor 1: a test that could not be made has no p-value."""
    _, fit, covariance = fitted
    cov = covariance.cov.copy()
    cov[0, 1] = np.diag([1.0, 1.0, 1.0, -1e-6, *np.zeros(cov.shape[-1] - 4)])
    tests = wald_tests(fit.transition, with_cov(covariance, cov))
    assert np.isnan(tests.p_value[0, 1])
    assert np.isnan(tests.statistic[0, 1])
    assert tests.reason == {
        (0, 1): "the covariance of this block is not positive definite; give more data or "
        "fewer states"
    }
    assert 0 < tests.p_value[1, 0] < 1
    single = entry_tests(fit, with_cov(covariance, cov), DIMS, 0, 1, 0.95)
    np.testing.assert_array_equal(np.isnan(single.p_value), [[False, False, False, True]])
    np.testing.assert_array_equal(np.isnan(single.low), [[False, False, False, True]])


def test_entries_vs_student_t(fitted):
    _, fit, covariance = fitted
    found = entry_tests(fit, covariance, DIMS, 1, 0, 0.9)
    block, V = block_entries(fit, DIMS, 1, 0), covariance.block(1, 0)
    student = stats.t(covariance.df[1, 0])
    for (i, j), value in np.ndenumerate(block):
        se = np.sqrt(V[2 * i + j, 2 * i + j])
        np.testing.assert_allclose(found.std_error[i, j], se)
        np.testing.assert_allclose(
            [found.low[i, j], found.high[i, j]], value + se * student.ppf([0.05, 0.95])
        )
        np.testing.assert_allclose(found.p_value[i, j], 2 * student.cdf(-abs(value) / se))


def test_interval_and_p_value_of_an_entry_agree(fitted):
    """0 lies outside the 95 % interval exactly where p < 0.05."""
    source, _, _ = fitted
    table = infer(source, formula_config(lags=2)).entries
    outside = (table["ci_low"] > 0) | (table["ci_high"] < 0)
    assert (outside == (table["p_value"] < 0.05)).all()
    assert 0 < outside.sum() < len(table)


def test_scalar_edge_is_its_entry():
    """Clients with one state: F(1, ν) of the square is Student-t of the value."""
    rng = np.random.default_rng(2)
    found = infer(
        source_of(simulate_states(rng, np.eye(3) * 0.5, 300), (1, 1, 1)), formula_config()
    )
    np.testing.assert_allclose(found.edges["p_value"], found.entries["p_value"], rtol=1e-9)
    np.testing.assert_allclose(found.edges["strength"], found.entries["estimate"].abs())


def test_tables_have_one_row_per_pair_and_entry(fitted):
    source, fit, _ = fitted
    found = infer(source, formula_config(lags=2, alpha=0.01, correction="holm", confidence=0.9))
    assert tuple(found.edges.columns) == EDGE_COLUMNS
    assert tuple(found.entries.columns) == ENTRY_COLUMNS
    pairs = list(zip(found.edges["cause"], found.edges["effect"], strict=True))
    assert pairs == [("c1", "c0"), ("c0", "c1")]
    assert len(found.entries) == 8
    for row in found.entries.itertuples():
        m, n = int(row.effect[1]), int(row.cause[1])
        assert row.estimate == block_entries(fit, DIMS, m, n)[row.row, row.col]
    assert found.facts["alpha"] == 0.01
    assert found.facts["correction"] == "holm"
    assert found.facts["lags"] == 2
    assert found.facts["num_pairs"] == 398


def test_one_client_has_no_edges():
    rng = np.random.default_rng(3)
    found = infer(source_of(simulate_states(rng, 0.5 * np.eye(2), 200), (2,)), formula_config())
    assert len(found.edges) == len(found.entries) == 0
    assert tuple(found.edges.columns) == EDGE_COLUMNS
    assert found.p_value.shape == (2, 2)
    assert np.isfinite(found.facts["df_denominator"])


def test_lags_auto_and_weights_reach_the_fit():
    rng = np.random.default_rng(4)
    transition = np.array([[0.3, 0.0, 0.5, 0.0], [0.0, 0.4, 0.3, 0.3]])
    source = source_of(simulate_states(rng, transition, 2000), (1, 1))
    found = infer(source, formula_config(lags="auto", max_lags=4))
    assert found.facts["lags"] == 2
    assert infer(source, formula_config(lags="auto", max_lags=1)).facts["lags"] == 1
    window = infer(source, formula_config(weighting="window", weighting_span=500)).facts
    assert window["num_pairs"] == window["effective_pairs"] == 499


# Multiplicity -----------------------------------------------------------------------------------

P_VALUES = np.array([0.01, 0.04, 0.03, 0.005, 0.5])
HARMONIC = 1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5


@pytest.mark.parametrize(
    ("correction", "expected"),
    [
        # sorted: .005 .01 .03 .04 .5, times 5/rank: .025 .025 .05 .05 .5
        ("bh", [0.025, 0.05, 0.05, 0.025, 0.5]),
        ("by", np.minimum(np.array([0.025, 0.05, 0.05, 0.025, 0.5]) * HARMONIC, 1)),
        # times 5 4 3 2 1, then never below a smaller one: .025 .04 .09 .09 .5
        ("holm", [0.04, 0.09, 0.09, 0.025, 0.5]),
        ("none", [0.01, 0.04, 0.03, 0.005, 0.5]),
    ],
)
def test_adjusted_by_hand(correction, expected):
    np.testing.assert_allclose(adjust(P_VALUES, correction), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("correction", "method"), [("bh", "fdr_bh"), ("by", "fdr_by"), ("holm",) * 2]
)
def test_adjusted_vs_statsmodels(correction, method):
    p = np.round(np.random.default_rng(0).uniform(size=200) ** 3, 2)  # with ties, zeros and ones
    np.testing.assert_allclose(
        adjust(p, correction), multipletests(p, method=method)[1], rtol=1e-12
    )


@pytest.mark.parametrize("correction", ["bh", "by", "holm", "none"])
def test_test_that_was_not_made_counts_as_made(correction):
    """NaN stays NaN and weighs on the others like p = 1."""
    p = np.array([0.01, np.nan, 0.03])
    found = adjust(p, correction)
    assert np.isnan(found[1])
    np.testing.assert_allclose(found[[0, 2]], adjust(np.array([0.01, 1, 0.03]), correction)[[0, 2]])
    if correction == "holm":
        np.testing.assert_allclose(found[[0, 2]], [0.03, 0.06])


@pytest.mark.parametrize("correction", ["bh", "by", "holm", "none"])
def test_nothing_to_adjust(correction):
    assert np.isnan(adjust(np.full(3, np.nan), correction)).all()
    assert len(adjust(np.zeros(0), correction)) == 0


def test_order_of_strictness():
    p = np.random.default_rng(5).uniform(size=30) ** 3
    none, bh, by, holm = (adjust(p, name) for name in ("none", "bh", "by", "holm"))
    assert (none <= bh).all()
    assert (bh <= by).all()
    assert (bh <= holm).all()


def test_unknown_correction():
    with pytest.raises(ConfigError, match="correction is 'bonferroni'; choose one of bh, by, holm"):
        adjust(P_VALUES, "bonferroni")


def test_decide_leaves_untested_edges_open():
    table = pd.DataFrame({"p_value": [0.001, np.nan, 0.04]})
    found = decide(table, 0.05, "bh")
    np.testing.assert_allclose(found["q_value"].to_numpy(), [0.003, np.nan, 0.06])
    assert found["is_edge"].tolist() == [True, pd.NA, False]
    assert decide(table, 0.05, "none")["is_edge"].tolist() == [True, pd.NA, True]
    assert list(table.columns) == ["p_value"]  # the argument is left alone


def test_edge_at_alpha_exactly_is_reported():
    assert decide(pd.DataFrame({"p_value": [0.05]}), 0.05, "none")["is_edge"].tolist() == [True]


def test_false_edge_bound_by_hand():
    """Five tests; Holm's p-values of the reported 0.005, 0.01, 0.03 are 5, 4 and 3 times theirs."""
    reported = np.array([True, False, True, True, False])
    np.testing.assert_allclose(false_edge_bound(P_VALUES, reported), 0.09)
    assert false_edge_bound(P_VALUES, np.zeros(5, dtype=bool)) == 0.0
    assert false_edge_bound(P_VALUES, np.ones(5, dtype=bool)) == 0.5


def test_false_edge_bound_holds():
    """Uniform p-values of six tests, reported below 0.02: at least one in 1 − 0.98⁶ of the runs.

    The bound of a run that reports is at most 6 · 0.02, a little above.
    """
    p = np.random.default_rng(6).uniform(size=(200, 6))
    reported = p <= 0.02
    bounds = [false_edge_bound(*run) for run in zip(p, reported, strict=True)]
    share = reported.any(axis=1).mean()
    assert share <= 6 * 0.02
    assert 0.1 < max(bounds) <= 6 * 0.02


# Power ------------------------------------------------------------------------------------------


def power(norm, cov, df, alpha):
    """Chance to find a block of that norm, in its least favourable direction."""
    return strength.power(norm**2 / np.linalg.eigvalsh(cov)[-1], len(cov), df, alpha)


@pytest.mark.parametrize("strength", [0.0, 0.1, 0.25])
def test_power_of_a_scalar_vs_simulation(strength):
    """t-statistic with an estimated variance; 40 000 draws, so 4 s.e. are at most 0.01."""
    rng = np.random.default_rng(7)
    nu, se = 30.0, 0.1
    value = strength + se * rng.normal(size=40_000)
    statistic = np.abs(value) / (se * np.sqrt(rng.chisquare(nu, size=40_000) / nu))
    share = (statistic > stats.t.isf(0.025, nu)).mean()
    np.testing.assert_allclose(power(strength, np.array([[se**2]]), nu, 0.05), share, atol=0.01)


def test_power_without_influence_is_the_level():
    np.testing.assert_allclose(power(0.0, np.diag([1.0, 4.0]), 40.0, 0.03), 0.03, rtol=1e-8)


def test_power_is_for_the_least_favourable_direction():
    """Noncentrality a' V⁻¹ a is smallest along the eigenvector of the largest variance."""
    rng = np.random.default_rng(8)
    root = rng.normal(size=(4, 4))
    V = root @ root.T
    least = power(2.0, V, 60.0, 0.05)
    direction = np.linalg.eigh(V)[1][:, -1] * 2.0
    critical = stats.f.isf(0.05, 4, 60)

    def chance(a):
        return stats.ncf.sf(critical, 4, 60, a @ np.linalg.solve(V, a))

    np.testing.assert_allclose(least, chance(direction), rtol=1e-8)
    for _ in range(50):
        a = rng.normal(size=4)
        assert chance(2.0 * a / np.linalg.norm(a)) >= least - 1e-9


def test_power_is_monotone():
    V = np.diag([0.01, 0.02, 0.03])
    by_strength = [power(s, V, 50.0, 0.05) for s in np.linspace(0, 1.5, 20)]
    assert (np.diff(by_strength) > 0).all()
    assert by_strength[-1] > 0.999
    assert power(0.3, 4 * V, 50.0, 0.05) < power(0.3, V, 50.0, 0.05)
    assert power(0.3, V, 50.0, 0.01) < power(0.3, V, 50.0, 0.05)
    assert power(0.3, V, 5.0, 0.05) < power(0.3, V, 50.0, 0.05)


@pytest.mark.parametrize("size", [1, 4, 9])
@pytest.mark.parametrize("df", [3.0, 120.0, 40_000.0])
@pytest.mark.parametrize("target", [0.5, 0.8, 0.99])
def test_detectable_strength_inverts_power(size, df, target):
    V = np.diag(np.linspace(0.5, 2.0, size))
    strength = detectable_strength(V, df, 0.05, target)
    np.testing.assert_allclose(power(strength, V, df, 0.05), target, rtol=1e-6)


def test_detectable_strength_shrinks_with_the_standard_error():
    V = np.diag([1.0, 2.0])
    np.testing.assert_allclose(
        detectable_strength(V / 9, 50.0, 0.05), detectable_strength(V, 50.0, 0.05) / 3
    )
    assert detectable_strength(V, 50.0, 0.85) == 0.0  # found that often by chance alone


def test_detectable_strength_of_an_edge_in_the_facts(fitted):
    source, _, covariance = fitted
    facts = infer(source, formula_config(lags=2, alpha=0.01)).facts
    V = covariance.block(1, 0)
    np.testing.assert_allclose(
        facts["detectable_strength"]["c0 -> c1"],
        detectable_strength(V, covariance.df[1, 0] - 3, 0.01),
        rtol=1e-12,
    )


def test_homoskedastic_is_refused_with_gaps_and_doubted_with_noise():
    rng = np.random.default_rng(30)
    states = rng.standard_normal((400, 3))
    config = formula_config(covariance="homoskedastic")
    noisy = source_of(states, (1, 2), [0.1 * np.eye(1), 0.1 * np.eye(2)])
    assert any(
        "ignores measurement noise" in note for note in infer(noisy, config).facts["warnings"]
    )
    clean = infer(source_of(states, (1, 2)), config)
    assert not any("measurement noise" in note for note in clean.facts["warnings"])
    observed = rng.random((400, 2)) > 0.01
    found = infer(source_of(states, (1, 2), observed=observed), config)  # complete rows only
    assert any("no client is missing" in note for note in found.facts["warnings"])


def test_more_entries_than_degrees_of_freedom_are_not_tested(fitted):
    _, fit, covariance = fitted
    tests = wald_tests(fit.transition, with_cov(covariance, covariance.cov, 3.5))
    assert np.isnan(tests.p_value[0, 1])
    assert tests.reason[0, 1].startswith("4 entries cannot be tested with 4 degrees of freedom")


def test_level_with_many_entries():
    """48 entries, 3 lags: plain F(k, ν) rejected half of the nulls, Hotelling's form few.

    12 independent data sets of 6 tests: at a true level of 5 % more than 12 of 72 rejections have
    probability 1e-4.
    """
    rejected = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        source = source_of(simulate_states(rng, 0.6 * np.eye(12), 600), (4, 4, 4))
        p = infer(source, formula_config(lags=3)).edges["p_value"]
        rejected += int((p <= 0.05).sum())
    assert rejected <= 12


def test_couplings_leave_pairs_untested_and_out_of_the_correction():
    rng = np.random.default_rng(31)
    source = source_of(simulate_states(rng, 0.5 * np.eye(3), 400), (1, 1, 1))
    wanted = (("c0", "c1"), ("c2", "c1"))
    everything = infer(source, formula_config(correction="holm")).edges.set_index(
        ["cause", "effect"]
    )
    found = infer(source, formula_config(correction="holm", couplings=wanted))
    table = found.edges.set_index(["cause", "effect"])
    assert set(table.index[table["p_value"].notna()]) == set(wanted)
    small = min(everything.loc[list(wanted), "p_value"])
    np.testing.assert_allclose(table["q_value"].min(), min(1.0, 2 * small))
    assert found.facts["reasons"]["c1 -> c0"] == "left out by 'couplings'"


def test_any_estimate_with_any_covariance_can_be_tested():
    """FedGC's matrix with a covariance of its own: independent entries give a sum of squares."""
    A = np.array([[0.5, 0.3], [-0.2, 0.4]])
    se = np.array([[0.1, 0.1], [0.05, 0.1]])
    no_block = np.zeros((2, 2), dtype=bool)
    covariance = BlockCovariance(
        (se**2)[..., None, None], np.full((2, 2), 30.0), (1, 1), 1, 0, no_block
    )
    tests = wald_tests(A, covariance)
    np.testing.assert_allclose(tests.statistic[1, 0], 16.0)
    np.testing.assert_allclose(tests.p_value[1, 0], 2 * stats.t.sf(4.0, 30), rtol=1e-9)


def test_statistics_of_any_k_are_ordered_as_their_chi_square_tails():
    """Where tails can still be computed; beyond, every larger statistic has a larger score."""
    k = np.repeat([1.0, 2.0, 4.0, 18.0, 60.0], 40)
    tails = np.tile(np.logspace(-0.5, -80, 40), 5)
    score = normal_score(stats.chi2.isf(tails, k), k)
    expected = stats.norm.isf(tails)
    assert np.abs(score - expected)[tails > 1e-6].max() < 0.4
    assert (np.diff(score.reshape(5, 40), axis=1) > 0).all()
    assert np.diff(normal_score(np.array([5e3, 5e4]), np.array([4.0, 4.0]))) > 0
    assert np.isnan(normal_score(np.ones(1), np.zeros(1))).all()
