"""The nonlinear test: its parts against independent computations, and whole fits."""

import itertools

import numpy as np
import pytest
from scipy import stats

import fedgranger as fg
from fedgranger.errors import ConfigError, InferenceError
from fedgranger.federation.direct import state_source
from fedgranger.inference import cross_fitting, nonlinear_answer, nonlinear_test
from fedgranger.inference.audit_words import verdict
from fedgranger.inference.cross_fitting import (
    REGRESSIONS,
    Design,
    features_regression,
    folds,
)
from fedgranger.inference.effect_curves import GRID, effect_curve
from fedgranger.inference.infer import infer
from fedgranger.inference.nonlinear_tables import kinds_found, strength_interval
from fedgranger.inference.nonlinear_test import cause_problem, effect_problem, pair_data
from fedgranger.inference.residual_products import (
    KINDS,
    WEIGHTS,
    CausePart,
    EffectPart,
    PairProducts,
    PairResiduals,
    Problem,
    cause_part,
    combine,
    explained_share,
    kind_statistics,
    pair_residuals,
    product_statistic,
)
from fedgranger.inference.response_words import shape_sentence
from fedgranger.inference.shifts import draw_lone_shifts, tabulate
from fedgranger.report.html import write_run_report
from fedgranger.runtime.setup import set_up
from fedgranger.tested_facts import InferenceFacts
from tests.state_sources import source_of


def result_source(panel, config):
    """The states that a fit of the panel tests."""
    setup = set_up(panel, config)
    return state_source(panel, {data.name: data.model for data in setup.client_data})


def design_of(rng, rows=600, columns=4, states=(2, 1)):
    inputs = [rng.standard_normal((rows, p)) for p in states]
    linear = np.concatenate([*inputs, rng.standard_normal((rows, columns))], axis=1)
    return Design(np.arange(rows), linear, inputs, 3)


def test_every_step_is_predicted_once_from_steps_that_are_apart():
    time = np.concatenate([np.arange(100), np.arange(130, 200)])
    times_tested = np.zeros(len(time))
    for tested, used in folds(time, 5):
        times_tested += tested
        distance = np.abs(time[tested][:, None] - time[used]).min()
        assert distance > 5
        assert used.sum() > 0.6 * len(time)
    assert (times_tested == 1).all()


def test_without_features_residuals_are_those_of_least_squares_out_of_fold():
    rng = np.random.default_rng(0)
    design = design_of(rng)
    targets = design.linear @ rng.standard_normal((7, 2)) + rng.standard_normal((600, 2))
    found = features_regression(design, 0)(targets)
    X = np.column_stack([np.ones(600), design.linear])
    expected = np.empty(targets.shape)
    for tested, used in folds(design.time, design.gap):
        b = np.linalg.lstsq(X[used], targets[used], rcond=None)[0]
        expected[tested] = targets[tested] - X[tested] @ b
    # features may only help; on linear data a heavy penalty or none of them is chosen
    assert ((found**2).sum(axis=0) <= (expected**2).sum(axis=0) * (1 + 1e-12)).all()
    assert np.corrcoef(found.T, expected.T)[0, 2] > 0.995


def test_columns_that_repeat_do_not_matter():
    rng = np.random.default_rng(1)
    design = design_of(rng)
    doubled = design._replace(linear=np.concatenate([design.linear, design.linear], axis=1))
    targets = rng.standard_normal((600, 1)) + design.linear[:, :1]
    one, two = (features_regression(d, 0)(targets) for d in (design, doubled))
    np.testing.assert_allclose(one, two, atol=1e-8)


@pytest.mark.parametrize(
    "name",
    # trees and networks take 20 s to import and to learn
    [pytest.param(n, marks=[pytest.mark.slow] * (n != "features")) for n in REGRESSIONS],
)
def test_regressions_find_what_is_not_linear(name):
    rng = np.random.default_rng(2)
    design = design_of(rng, rows=1500, columns=1)
    x, y = design.inputs[0][:, 0], design.inputs[1][:, 0]
    noise = 0.3 * rng.standard_normal(1500)
    left = REGRESSIONS[name](design, 0)((np.sin(2 * x) + x * y + noise)[:, None])
    assert left.var() < 3 * noise.var()  # of 1.5 + 0.09
    assert np.corrcoef(left[:, 0], noise)[0, 1] > 0.6


def test_one_product_is_a_squared_t_statistic():
    rng = np.random.default_rng(3)
    u, v = rng.standard_normal((2, 80, 1))
    found, k, rest = product_statistic(u, v)
    t = stats.ttest_1samp((u * v)[:, 0], 0.0)
    assert (k, rest) == (1, 79)
    np.testing.assert_allclose(found, t.statistic**2, rtol=1e-12)
    np.testing.assert_allclose(stats.f.sf(found, k, rest), t.pvalue, rtol=1e-9)


def test_several_products_are_hotellings_test_whatever_their_units():
    rng = np.random.default_rng(4)
    u, v = rng.standard_normal((200, 2)), rng.standard_normal((200, 3))
    psi = np.einsum("ti,tj->tij", u, v).reshape(200, -1)
    S = np.cov(psi.T)
    T2 = 200 * psi.mean(axis=0) @ np.linalg.solve(S, psi.mean(axis=0))
    found = product_statistic(u, v)[0]
    np.testing.assert_allclose(found, T2 * (200 - 6) / (6 * 199), rtol=1e-10)
    scaled = product_statistic(u * [1e5, 1.0], v * [1.0, 1e-4, 7.0])[0]
    np.testing.assert_allclose(scaled, found, rtol=1e-8)
    assert np.isnan(product_statistic(u, np.column_stack([v, v[:, 0]]))[0])
    assert np.isnan(product_statistic(u[:6], v[:6])[0])
    assert np.isnan(product_statistic(u, 0 * v)[0])


def test_kinds_are_combined_with_their_weights():
    rng = np.random.default_rng(5)
    p = rng.random((4, 4000))
    together = combine(p)
    assert stats.kstest(together, "uniform").pvalue > 0.001
    small = np.array([[1e-6], [0.4], [0.7], [0.3]])
    np.testing.assert_allclose(combine(small), 1e-6 / WEIGHTS[0], rtol=0.01)
    alone = np.array([np.nan, 0.03, np.nan, np.nan])
    np.testing.assert_allclose(combine(alone[:, None]), 0.03, rtol=1e-9)
    assert np.isnan(combine(np.full((4, 1), np.nan))).all()


def test_features_are_ridge_beside_columns_without_a_penalty():
    rng = np.random.default_rng(12)
    design = design_of(rng, rows=300)._replace(earlier=(rng.standard_normal((300, 2)),))
    X = np.column_stack([np.ones(300), design.linear])
    psi, counts = cross_fitting._features(design, np.random.default_rng(0))
    assert counts == [6 + 3, 6 + 3 + 2 * 30 + 100 + 40]
    choices = []
    y = rng.standard_normal((300, 2)) + design.inputs[0] ** 2
    for count, penalty in [(0, 1.0), *itertools.product(counts, cross_fitting.PENALTIES)]:
        both, left = np.column_stack([X, psi[:, :count]]), np.empty(y.shape)
        ridge = penalty * np.diag([0.0] * X.shape[1] + [1.0] * count)
        for tested, used in folds(design.time, design.gap):
            moments = both[used].T @ both[used] + ridge
            slopes = np.linalg.solve(moments, both[used].T @ y[used])
            left[tested] = y[tested] - both[tested] @ slopes
        choices.append(left)
    best = np.argmin([(left**2).sum(axis=0) for left in choices], axis=0)
    expected = np.stack([choices[best[k]][:, k] for k in range(2)], axis=1)
    np.testing.assert_allclose(features_regression(design, 0)(y), expected, atol=1e-8)


def exact(design, seed):
    """Nothing but the mean is predicted."""
    return lambda targets: targets - targets.mean(axis=0)


def test_quadratic_parts_are_squares_less_what_is_predicted():
    rng = np.random.default_rng(6)
    s = rng.standard_normal((300, 2))
    cause = cause_part(Problem(design_of(rng, 300), s), exact, 0)
    mean = s.mean(axis=0)
    for place, (i, j) in enumerate(((0, 0), (0, 1), (1, 1))):
        product, v = s[:, i] * s[:, j], cause.left
        expected = product - mean[i] * mean[j] - (v[:, i] * v[:, j]).mean()
        np.testing.assert_allclose(cause.quadratic[:, place], expected, atol=1e-12)


def test_a_pair_has_the_steps_at_which_both_are_known():
    rng = np.random.default_rng(7)
    u, own, v = rng.standard_normal((3, 40, 1))
    time = np.arange(40)
    effect, cause = EffectPart(time[5:], u[5:], own[5:]), CausePart(time[:-3], v[:-3], v[:-3] ** 2)
    pair = pair_residuals(effect, cause)
    np.testing.assert_array_equal(pair.effect, u[5:-3])
    for found, phi in zip(pair.shapes, (v, v**2, v * own), strict=True):
        np.testing.assert_allclose(found, phi[5:-3])


def test_a_pair_without_a_common_step_has_no_statistic():
    rng = np.random.default_rng(7)
    u, own, v = rng.standard_normal((3, 20, 1))
    cause = CausePart(np.arange(20, 40), v, v**2)
    pair = pair_residuals(EffectPart(np.arange(20), u, own), cause)
    assert np.isnan(kind_statistics(pair)[:, 0]).all()


def test_a_copy_shifts_one_clock_and_knows_where_its_record_begins():
    rng = np.random.default_rng(13)
    observed = np.ones((60, 2), dtype=np.bool_)
    observed[30, 1] = False
    data = pair_data(tabulate(source_of(rng.standard_normal((60, 3)), (2, 1), observed=observed)))
    copy = data.shifted(1, 20, 50)
    np.testing.assert_array_equal(copy.states[:, :2], data.states[:50, :2])
    np.testing.assert_array_equal(copy.bounded[25], [*data.bounded[25, :2], data.bounded[5, 2]])
    np.testing.assert_array_equal(copy.unbroken[:, 0], np.arange(1, 51))
    own = [*range(0, 20), *range(1, 31), *range(0, 0)]
    np.testing.assert_array_equal(copy.unbroken[20:, 1], own[20:])
    assert copy.unbroken[0, 1] == 0  # the step that is missing
    np.testing.assert_array_equal(copy.unbroken[1:20, 1], np.arange(1, 20))


@pytest.mark.parametrize("period", [1, 24])
def test_lone_shifts_are_spread_and_whole_periods(period):
    shifts = draw_lone_shifts(2400, 40, 3, period)
    assert (shifts % period == 0).all()
    assert (np.diff(shifts) >= 0).all()
    assert shifts.min() >= 240 - period
    assert shifts.max() <= 2160
    parts = np.histogram(shifts, bins=4, range=(240, 2161))[0]
    assert parts.min() >= 8


def test_curve_of_a_known_influence():
    rng = np.random.default_rng(8)
    v = rng.standard_normal((4000, 2))
    i, j = np.triu_indices(2)
    quadratic = v[:, i] * v[:, j] - (i == j)
    u = rng.standard_normal((4000, 3))
    u[:, 1] += 0.3 * v[:, 1] - 0.2 * quadratic[:, 2]
    curve = effect_curve(PairResiduals(u, (v, quadratic, v)), 2, 0.95)
    assert (curve.cause_state, curve.effect_state) == (1, 1)
    true = 0.3 * GRID - 0.2 * (GRID**2 - 1)
    assert ((curve.low <= true) & (true <= curve.high)).all()
    assert (curve.high - curve.low).max() < 0.4
    facts = curve.facts()
    found = shape_sentence("a -> b", ["quadratic"], InferenceFacts(curves={"a -> b": facts}))
    assert found.startswith("quadratic influence of a on b: where a's state 2 is 2 s.d. below, at")
    changes = ", ".join(f"{facts['value'][k]:+.2f}" for k in (0, len(GRID) // 2))
    assert f"b's state 2 changes by {changes} and {facts['value'][-1]:+.2f} s.d." in found


@pytest.mark.slow  # 400 curves
def test_bands_of_curves_hold_as_a_whole():
    rng, inside = np.random.default_rng(9), 0
    for _ in range(400):
        v = rng.standard_normal((300, 1))
        u = 0.2 * v + 0.1 * (v**2 - 1) + rng.standard_normal((300, 1))
        curve = effect_curve(PairResiduals(u, (v, v**2 - 1, v)), 1, 0.95)
        true = 0.2 * GRID + 0.1 * (GRID**2 - 1)
        inside += ((curve.low <= true) & (true <= curve.high)).all()
    assert abs(inside / 400 - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 400)


def delayed_squares(rng, steps):
    """The third client's square drives the first at lag 1 and the second at lag 2."""
    x = np.zeros((steps + 100, 3))
    for t in range(1, len(x) - 1):
        driven = [x[t, 2] ** 2, x[t - 1, 2] ** 2, 0.0]
        x[t + 1] = 0.5 * x[t] + 0.5 * np.array(driven) + rng.standard_normal(3)
    return x[100:]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_third_client_that_acts_at_two_delays_makes_no_link(seed):
    """What is earlier acted linearly only: c0 -> c1 was found in eight data sets of eight."""
    states = delayed_squares(np.random.default_rng(seed), 1000)
    config = fg.RunConfig(test="nonlinear", solver="none", copies=20, lags=2)
    table = infer(source_of(states, (1, 1, 1), own_lags=(2, 2, 2)), config).edges
    p = table.set_index(["cause", "effect"])["p_value"]
    assert p["c2", "c0"] < 0.05
    assert p["c2", "c1"] < 0.05
    assert p["c0", "c1"] > 0.05


def test_earlier_states_act_by_themselves_in_any_way():
    """The squares of an earlier state explain what least squares on it cannot."""
    rng = np.random.default_rng(12)
    design = design_of(rng)
    before = rng.standard_normal((600, 2))
    y = before[:, :1] * before[:, 1:] + 0.3 * rng.standard_normal((600, 1))
    without = features_regression(design, 0)(y)
    left = features_regression(design._replace(earlier=(before,)), 0)(y)
    assert left.var() < 0.25 * without.var()


def test_products_of_a_switch_with_itself_say_nothing():
    """A state of ±1 has a constant square; its rounding error must not become a feature."""
    rng = np.random.default_rng(11)
    switch = np.where(rng.random((45, 1)) < 0.5, -1.0, 1.0) * (1 + 1e-13)
    design = Design(np.arange(45), switch, [switch], 3)
    y = rng.standard_normal((45, 1))
    left = features_regression(design, 0)(y)
    assert 0.5 < left.var() / y.var() < 2


def test_strength_intervals_hold_the_true_share():
    rng, inside, rho = np.random.default_rng(10), 0, 0.25
    for _ in range(100):
        v = rng.standard_normal((400, 1))
        u = rho * v + np.sqrt(1 - rho**2) * rng.standard_normal((400, 1))
        share, counts = explained_share(PairResiduals(u, (v, v**2 - 1, v**3)))
        none = np.full(3, np.nan)
        made = PairProducts(none, np.ones(3), none, np.full((1, 3), np.nan), share, counts)
        low, high = strength_interval(made, 0.95)
        inside += low <= rho <= high
    assert abs(inside / 100 - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 100)


def test_strength_intervals_at_the_ends_of_what_can_be():
    rest = np.full(3, np.nan)
    made = PairProducts(rest, np.ones(3), rest, np.full((1, 3), np.nan), 1.0, (3, 500))
    assert strength_interval(made, 0.95) == (1.0, 1.0), "all of the effect is explained"
    made = made._replace(counts=(52, 36))
    assert strength_interval(made, 0.95) == (0.0, 1.0), "more products than rows explain anything"


def test_strength_intervals_are_wider_where_copies_are():
    values = (np.ones(3), np.ones(3), np.full(3, 500.0))
    made = PairProducts(*values, np.full((20, 3), 0.455), 0.04, (3, 500))
    low, high = strength_interval(made, 0.95)
    wide = strength_interval(made._replace(copies=np.full((20, 3), 4 * 0.455)), 0.95)
    assert wide[0] < low < 0.2 < high < wide[1], "and no less about the strength"


def test_kinds_found_count_how_many_were_looked_for():
    p = {"linear": 0.02, "quadratic": 1e-6, "interaction": 0.6}
    assert kinds_found(p, 0.05) == ["linear", "quadratic"]
    assert kinds_found(p | {"linear": 0.03}, 0.05) == ["quadratic"]


def test_rows_of_a_pair_have_all_that_is_needed():
    rng = np.random.default_rng(11)
    states = rng.standard_normal((200, 4))
    observed = np.ones((200, 3), dtype=np.bool_)
    observed[50, 0] = observed[90, 2] = False
    source = source_of(states, (2, 1, 1), observed=observed)._replace(own_lags=(3, 1, 2))
    data = pair_data(tabulate(source))
    effect = effect_problem(data, 2, 0, 2)  # two own lags; three steps of client 1, none of 0
    t = effect.design.time
    assert set(range(2, 199)) - set(t.tolist()) == {89, 90, 91}  # as present step t
    assert effect.design.linear.shape[1] == 2 + 3
    np.testing.assert_allclose(effect.targets, data.states[t + 1][:, 3:])
    cause = cause_problem(data, 0, 2)  # three steps of all clients
    t = cause.design.time
    assert set(range(2, 200)) - set(t.tolist()) == {50, 51, 52, 90, 91, 92}
    assert cause.targets.shape[1] == 2 * 2
    assert cause.design.linear.shape[1] == 3 + 3 + 2
    np.testing.assert_allclose(cause.targets[:, 2:], data.bounded[t - 1][:, :2])
    np.testing.assert_allclose(cause.design.linear[:, -2:], data.states[t - 2][:, :2])
    np.testing.assert_allclose(np.cov(data.states[observed[:, 0], :2].T), np.eye(2), atol=0.02)
    with pytest.raises(InferenceError, match="usable rows for 63 columns"):
        effect_problem(data, 2, 0, 60)


def test_a_record_that_is_too_long_is_refused_before_it_is_copied(monkeypatch):
    monkeypatch.setattr(nonlinear_test, "MOST_STEPS", 199)
    table = tabulate(source_of(np.zeros((200, 2)), (1, 1)))
    with pytest.raises(InferenceError, match="at most 199 time steps, these data have 200"):
        pair_data(table)


@pytest.fixture(scope="module")
def fitted():
    panel, truth = fg.simulate(3, 1000, dynamics="quadratic", edges=2, sensor_dims=4, seed=5)
    config = fg.RunConfig(test="nonlinear", solver="none", copies=20)
    return panel, truth, config, fg.fit(panel, config)


def test_quadratic_edges_are_found_that_no_linear_test_finds(fitted):
    _, truth, _, result = fitted
    table = result.edges()
    found = set(
        zip(*(table.loc[table["is_edge"], side] for side in ("cause", "effect")), strict=True)
    )
    assert set(truth.edges) <= found
    linear = result.inference.beside.edges.query("is_edge")
    assert not set(truth.edges) & set(zip(linear["cause"], linear["effect"], strict=True))
    facts = result.manifest["inference"]
    assert facts["test"] == "nonlinear"
    assert set(facts["extrapolated"]) >= {f"{cause} -> {effect}" for cause, effect in truth.edges}
    assert set(facts["curves"]) == {f"{cause} -> {effect}" for cause, effect in found}
    for edge in (f"{cause} -> {effect}" for cause, effect in truth.edges):
        assert "quadratic" in facts["kinds_found"][edge]
        assert set(facts["kinds"][edge]) == set(KINDS)
    assert table["strength"].between(0, 1).all()
    assert (table["ci_low"] <= table["strength"] + 1e-12).all()


def test_the_run_is_kept_and_shown(fitted, tmp_path):
    *_, result = fitted
    result.save(tmp_path / "run")
    again = fg.Result.load(tmp_path / "run")
    np.testing.assert_array_equal(again.edges()["p_value"], result.edges()["p_value"])
    assert again.inference.beside.facts["test"] == "readings"
    write_run_report(tmp_path / "report.html", again)
    page = (tmp_path / "report.html").read_text()
    assert "Shapes of the influences" in page
    assert page.count('data-chart="shape-') == result.edges()["is_edge"].sum()


def test_an_interrupted_run_goes_on_from_its_copies(fitted, tmp_path, monkeypatch):
    panel, _, config, result = fitted
    source, record = result_source(panel, config), tmp_path / "copies.jsonl"
    first = infer(source, config, record=record)
    made = []
    monkeypatch.setattr(nonlinear_answer, "cause_tests", lambda *args: made.append(args[-1]))
    again = infer(source, config, record=record)
    assert not made
    np.testing.assert_array_equal(first.edges["p_value"], again.edges["p_value"])
    np.testing.assert_array_equal(first.edges["p_value"], result.edges()["p_value"])


def test_added_noise_is_refused(fitted):
    panel, _, config, _ = fitted
    with pytest.raises(ConfigError, match="has no nonlinear test"):
        fg.RunConfig(test="nonlinear", privacy="to-server", epsilon=1.0)
    source = result_source(panel, config)
    noisy = source._replace(added_covs=tuple(np.eye(p) for p in source.dims))
    with pytest.raises(InferenceError, match="which the nonlinear test cannot take out"):
        infer(noisy, config)


def test_regressions_that_err_together_do_so_in_the_copies(fitted, monkeypatch):
    """Residuals shifted against each other would not show it, and every pair would be an edge."""
    panel, _, config, _ = fitted
    slow = np.cumsum(np.random.default_rng(0).standard_normal(5000))[-2000:]

    def misled(design, seed):
        common = np.sin(slow[design.time])[:, None]
        return lambda targets: targets + 3 * common

    monkeypatch.setitem(cross_fitting.REGRESSIONS, "features", misled)
    found = infer(result_source(panel, config), config)
    assert found.facts["audit"]["rate"][0] > 0.9  # by the formula
    assert "the p-values come from copies" in verdict(found.facts)
    assert (found.edges["p_value"] > 0.01).all()
