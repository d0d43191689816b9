"""Responses of edges: against statsmodels, known limits, and simulated shocks."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.linalg import solve_discrete_lyapunov
from statsmodels.regression.linear_model import OLS
from statsmodels.tools import add_constant
from statsmodels.tsa.vector_ar.var_model import VAR, VARProcess

import fedgranger as fg
from fedgranger.client.params import known_models
from fedgranger.errors import RunError
from fedgranger.federation.direct import state_source
from fedgranger.inference.edge_movements import edge_movements
from fedgranger.inference.edge_response import Curve, EdgeResponse, band, course_curve
from fedgranger.inference.edge_responses import edge_responses, impulse_responses, variance_shares
from fedgranger.inference.estimate import estimate
from fedgranger.inference.latent import fit_latent, latent_without_blocks
from fedgranger.inference.prediction_gain import past_cov, prediction_gains
from fedgranger.inference.response_words import edge_sentences, response_sentences
from fedgranger.manifest_types import DataFacts
from fedgranger.tested_facts import InferenceFacts
from fedgranger.text import elapsed, unit_of
from tests.state_sources import source_of

A = np.array([[0.5, 0.2, 0.0], [0.1, 0.6, 0.0], [0.4, 0.0, 0.3]])


@pytest.fixture(scope="module")
def fitted_var():
    rng = np.random.default_rng(0)
    x = np.zeros((800, 3))
    for t in range(2, 800):
        x[t] = A @ x[t - 1] + 0.2 * x[t - 2] @ A + rng.standard_normal(3)
    return VAR(x).fit(2)


def test_responses_are_those_of_statsmodels(fitted_var):
    transition = np.concatenate(list(fitted_var.coefs), axis=1)
    found = impulse_responses(transition, 12)
    np.testing.assert_allclose(found, fitted_var.irf(12).irfs, atol=1e-12)


def test_variance_shares_are_those_of_statsmodels_for_independent_shocks(fitted_var):
    size = np.diag([0.5, 1.0, 2.0])
    process = VARProcess(fitted_var.coefs, np.zeros((1, 3)), size**2)
    squares = (process.orth_ma_rep(7) ** 2).sum(axis=0)
    expected = squares / squares.sum(axis=1, keepdims=True)  # (state, shock)
    transition = np.concatenate(list(fitted_var.coefs), axis=1)
    covs = [size[m : m + 1, m : m + 1] ** 2 for m in range(3)]
    found = variance_shares(impulse_responses(transition, 7), covs, [np.eye(1)] * 3)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_shares_do_not_depend_on_the_units_of_states():
    Psi, rng = impulse_responses(A.T, 6), np.random.default_rng(1)  # one state drives two
    S = rng.standard_normal((3, 3))
    S[:2, 2] = S[2, :2] = 0.0  # within two clients with two states and one
    moved = S @ Psi @ np.linalg.inv(S)
    covs = [np.eye(2), np.array([[2.0]])]
    states = [np.diag([2.0, 3.0]), np.array([[1.5]])]
    blocks = [S[:2, :2], S[2:, 2:]]
    scaled = [
        [B @ cov @ B.T for B, cov in zip(blocks, part, strict=True)] for part in (covs, states)
    ]
    np.testing.assert_allclose(
        variance_shares(moved, *scaled), variance_shares(Psi, covs, states), rtol=1e-9
    )


def test_r2_gained_is_that_of_two_regressions():
    """Of states without noise, by statsmodels: with and without the cause's past."""
    rng = np.random.default_rng(3)
    x = np.zeros((3000, 3))
    for t in range(2, 3000):
        x[t] = A @ x[t - 1] + 0.2 * A.T @ x[t - 2] + rng.standard_normal(3)
    dims, own = (2, 1), [[0, 1], [2]]
    source = source_of(x, dims)
    fit, covs = estimate(source, 2), [np.cov(x[:, k].T).reshape(len(k), -1) for k in own]
    shocks = [fit.process_cov[np.ix_(k, k)] for k in own]
    G = past_cov(source, 2, with_errors=True)
    found = prediction_gains(fit.transition, G, shocks, covs)
    past = np.hstack([x[1:-1], x[:-2]])
    for m, n in ((0, 1), (1, 0)):
        kept = [k for k in range(6) if k % 3 not in own[n]]
        W, errors = np.linalg.inv(covs[m]), []
        for columns in (list(range(6)), kept):
            design = add_constant(past[:, columns])
            left = np.stack([OLS(x[2:, k], design).fit().resid for k in own[m]])
            errors.append(np.trace(W @ left @ left.T))
        assert found[m, n] == pytest.approx(1 - errors[0] / errors[1], rel=0.01, abs=1e-4)
    assert 0.02 < found[1, 0] < 0.9


def test_r2_gained_is_that_of_true_states_after_the_noise_correction():
    """The truth by formula: strong noise hides most of it from a regression on readings."""
    panel, truth = fg.simulate(
        2, 20_000, edges=[("client1", "client2")], seed=2, measurement_var=20.0
    )
    fit = fit_latent(state_source(panel, known_models(truth)), fg.RunConfig(lags=1))
    rows = [truth.rows(name) for name in truth.clients]
    Q, T = truth.process_cov, truth.transition
    S = solve_discrete_lyapunov(T, Q)
    parts = [[cov[k, k] for k in rows] for cov in (Q, S)]
    expected = prediction_gains(T, S, *parts)[1, 0]
    shocks = [fit.fit.process_cov[k, k] for k in rows]
    found, seen = (
        prediction_gains(
            fit.fit.transition, past_cov(fit.source, 1, with_errors=used), shocks, parts[1]
        )[1, 0]
        for used in (True, False)
    )
    assert found == pytest.approx(expected, rel=0.1)
    assert abs(seen - expected) > 0.2 * expected


def test_band_of_a_mean_is_its_t_interval():
    """Without one of n values each, the jackknife of a mean is the textbook's."""
    x = np.random.default_rng(2).standard_normal(15)
    means = [x.mean(), *((x.sum() - one) / 14 for one in x)]
    found = band(np.array(means)[:, None], 0.9)
    low, high = stats.t.interval(0.9, 14, x.mean(), stats.sem(x))
    np.testing.assert_allclose([found.low[0], found.high[0]], [low, high])


def test_when_a_course_peaks_and_is_gone():
    value = np.array([0.0, 0.2, -1.0, 0.3, 0.11, -0.05, 0.01])
    course = Curve(value, value, value)
    assert (course.peak, course.gone) == (2, 5)
    assert Curve(value[:5], value[:5], value[:5]).gone is None


def test_a_course_is_turned_to_the_side_of_its_largest_response():
    value = np.array([0.1, -0.5, 0.2])
    found = Curve(value, value - 1, value + 2).upright()
    np.testing.assert_array_equal(found.value, -value)
    np.testing.assert_array_equal(found.low, -value - 2)
    np.testing.assert_array_equal(found.high, -value + 1)
    assert found.upright() is found


def test_a_direction_of_no_variance_is_no_usual_shock():
    """Noise that was taken out can leave less than nothing."""
    rng = np.random.default_rng(3)
    source = source_of(rng.standard_normal((400, 3)), (2, 1))
    T = np.array([[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.3, 0.4, 0.2]])
    shocks = {"c0": np.diag([0.9, -0.01]), "c1": np.eye(1)}
    found = edge_responses(source, T, shocks, lambda count: [T] * count, [("c0", "c1")])
    response = found["c0", "c1"]
    np.testing.assert_allclose(response.shock_cov, np.diag([0.9, 0.0]), atol=1e-15)
    np.testing.assert_allclose(np.abs(response.directions()[1]), [np.sqrt(0.9), 0.0], atol=1e-9)


def test_a_block_without_which_there_is_no_estimate_is_passed_over():
    rng = np.random.default_rng(3)
    source = source_of(rng.standard_normal((400, 2)), (1, 1))
    edge, T = source.names[::-1], np.array([[0.5, 0.3], [0.0, 0.4]])

    def without_blocks(count, possible=19):
        return [T * (1 + b / 100) if b < possible else None for b in range(count)]

    shocks = dict.fromkeys(source.names, np.eye(1))
    found = edge_responses(source, T, shocks, without_blocks, [edge])[edge]
    np.testing.assert_allclose(found.values[:, 1, 0, 0], 0.3 * np.r_[1, 1 + np.arange(19) / 100])
    assert edge_responses(source, T, shocks, without_blocks, []) == {}
    few = lambda count: without_blocks(count, possible=9)  # noqa: E731
    assert edge_responses(source, T, shocks, few, [edge]) == {}


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_each_side_finds_the_band_of_the_whole_response(confidence):
    """From its own course and errors alone, for any direction of its own states."""
    rng = np.random.default_rng(4)
    values = rng.standard_normal((13, 6, 2, 3))
    response = EdgeResponse(values, np.eye(3), np.diag([2.0, 5.0]), np.array(0.1))
    readout, shock = rng.standard_normal(2), rng.standard_normal(3)
    whole = band(response.along(readout, shock), confidence)
    for side, along in (
        (response.seen_by_cause(readout, np.ones(3)), shock),
        (response.seen_by_effect(shock, np.ones(2)), readout),
    ):
        found = course_curve(side.course, side.course_cov, along, response.blocks, confidence)
        for part, expected in zip(found, whole, strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-12)


def test_directions_are_covariances_with_the_strongest_shock_and_response():
    rng = np.random.default_rng(5)
    shock_cov, state_cov = np.array([[1.0, 0.4], [0.4, 2.0]]), np.array([[3.0, -0.5], [-0.5, 1.0]])
    values = np.repeat(rng.standard_normal((1, 4, 2, 2)), 3, axis=0)
    response = EdgeResponse(values, shock_cov, state_cov, np.array(0.1))
    readout, shock = response.directions()
    size = np.linalg.solve(shock_cov, shock)  # what is new, in units of the strongest shock
    news = rng.multivariate_normal(np.zeros(2), shock_cov, 200_000)
    states = rng.multivariate_normal(np.zeros(2), state_cov, 200_000)
    assert np.var(news @ size) == pytest.approx(1, abs=0.02)
    assert np.var(states @ readout) == pytest.approx(1, abs=0.02)
    for side, drawn, one in (
        (response.seen_by_cause(readout, shock), news, news @ size),
        (response.seen_by_effect(shock, readout), states, states @ readout),
    ):
        np.testing.assert_allclose(drawn.T @ one / len(one), side.direction, atol=0.03)
        np.testing.assert_allclose(np.cov(drawn.T), side.cov, atol=0.05)


def courses_of(facts, data=None):
    return response_sentences(InferenceFacts.of(facts), DataFacts.of(data or {}))


def words_of(facts):
    return edge_sentences(InferenceFacts.of(facts), DataFacts())


def sentence_with(facts, **more):
    facts["responses"]["boiler -> turbine"] |= more
    return courses_of(facts)["boiler -> turbine"]


def test_words_name_sensors_units_and_times():
    course = {"value": [0.0, 3.0, 0.1], "low": [0.0, 2.0, 0.0], "high": [0.0, 4.0, 0.2]}
    course |= {"peak": 1, "gone": 2}
    sensors = course | {"cause_sensor": "P03 [bar]", "effect_sensor": "N1 (rpm)"}
    sensors["is_change"] = [False, True]
    facts = {"responses": {"boiler -> turbine": course | {"variance_share": 0.123}}}
    period = {"period": {"step_seconds": 120.0}}
    assert courses_of(facts, period)["boiler -> turbine"] == (
        "a usual shock at boiler (1 s.d.) → 3.00 s.d. (2.00 to 4.00) at turbine after 2 min, gone "
        "after 4 min; 12 % of the variance of turbine's states is from boiler's own shocks"
    )
    facts["sensor_responses"] = {"boiler -> turbine": sensors}
    assert courses_of(facts)["boiler -> turbine"] == (
        "+1 bar at boiler.P03 → +3 rpm (+2 to +4) at the change of turbine.N1 after 1 step, gone "
        "after 2 steps; 12 % of the variance of turbine's states is from boiler's own shocks"
    )
    course = facts["responses"]["boiler -> turbine"]
    assert "N1 after 1 step, gone" in sentence_with(facts, delay=1), "one time, said once"
    sensors["peak"] = 2
    assert "N1: arrives after 1 step, largest after 2 steps, gone" in sentence_with(facts, delay=1)
    assert "N1: largest after 2 steps, most arrives after 3" in sentence_with(facts, delay=3)
    sensors["peak"] = 1
    del course["delay"]
    del sensors["effect_sensor"]
    assert courses_of(facts)["boiler -> turbine"].startswith(
        "+1 bar at boiler.P03 → 3 s.d. (2 to 4), up or down, at turbine after 1 step"
    )
    sensors |= {"effect_sensor": sensors.pop("cause_sensor"), "value": [0.0, -3.0, 0.0]}
    assert courses_of(facts)["boiler -> turbine"].startswith(
        "a usual shock at boiler (1 s.d.) → 3 bar (-4 to -2), up or down, at the change of "
        "turbine.P03"
    ), "the sign of a state says nothing"
    sensors["gone"] = None
    assert "still there after 4 min" in courses_of(facts, period)["boiler -> turbine"]
    assert unit_of("flow (of oil, not water)") == ""
    assert elapsed(1, 0.01) == "10 ms"


def test_an_edge_is_told_by_what_was_found_of_it():
    """A course where it is linear, a shape where it is not, both where it is both."""
    edge = "boiler -> turbine"
    course = {"value": [0.0, 3.0], "low": [0.0, 2.0], "high": [0.0, 4.0], "peak": 1, "gone": None}
    facts = {"responses": {edge: course | {"variance_share": 0.12}}}
    linear = courses_of(facts)[edge]
    assert words_of(facts) == {edge: linear}
    curve = {"cause_state": 0, "effect_state": 1, "value": [-0.5, 0.0, 0.25]}
    facts |= {"curves": {edge: curve}, "third_clients": {edge: "pump"}}
    changes = (
        "where boiler's state 1 is 2 s.d. below, at and 2 s.d. above its mean, turbine's state 2 "
        "changes by -0.50, +0.00 and +0.25 s.d."
    )
    shape = f"quadratic influence of boiler on turbine: {changes}"
    joint = (
        "interaction and joint influence of boiler on turbine, whose size and direction depend on "
        "turbine's own state and on the state of pump"
    )
    of_pump = "whose size and direction depend on the state of pump"
    for kinds, said in (
        (["linear"], linear),
        (["quadratic"], shape),
        (["linear", "quadratic"], f"{linear}; in all, linear and {shape}"),
        (["interaction", "joint"], joint),
        (
            ["quadratic", "joint"],
            f"quadratic and joint influence of boiler on turbine, {of_pump}: on average {changes}",
        ),
        (
            ["linear", "joint"],
            f"{linear}; besides, joint influence of boiler on turbine, {of_pump}",
        ),
        ([], f"an influence of no single kind, of boiler on turbine: {changes}"),
    ):
        assert words_of(facts | {"kinds_found": {edge: kinds}}) == {edge: said}
    without = {key: part for key, part in facts.items() if key != "curves"}
    found = words_of(without | {"kinds_found": {edge: ["quadratic"]}})
    assert found == {edge: f"quadratic influence, of which this is the linear part: {linear}"}
    del facts["responses"]
    found = words_of(facts | {"kinds_found": {edge: ["linear"]}})
    assert found == {edge: f"linear influence of boiler on turbine: {changes}"}


@pytest.mark.parametrize("chunk", [10**9, 77])
def test_movements_are_of_the_stretch_in_which_the_cause_moves_most(chunk):
    rng = np.random.default_rng(6)
    states = rng.standard_normal((1000, 3))
    states[500:560, :2] *= 6
    states[120:240, :2] *= 20
    observed = np.ones((1000, 2), dtype=bool)
    observed[130, 0] = False  # so the whole stretch does not count
    source = source_of(states, (2, 1), observed=observed, chunk=chunk)
    values = np.zeros((2, 3, 1, 2))
    values[:, 1] = [[0.5, 0.2]]
    edge = ("c0", "c1")
    response = EdgeResponse(values, np.diag([1.0, 4.0]), np.array([[2.0]]), np.array(0.1))
    found = edge_movements(source, {edge: response}, [np.diag([3.0, 1.0]), np.array([[2.0]])])[edge]
    assert str(found.start) == "step 480"
    rows, (readout, shock) = slice(480, 600), response.directions()
    b = shock / np.array([3.0, 1.0])
    cause = states[rows, :2] @ b / np.sqrt(shock @ b)
    both = np.column_stack([cause, states[rows, 2] * readout[0]])
    np.testing.assert_allclose(found.values, both - both.mean(axis=0), atol=1e-12)
    short = source_of(states[:100], (2, 1))
    assert edge_movements(short, {edge: response}, [np.eye(2), np.eye(1)]) == {}


@pytest.fixture(scope="module")
def fitted():
    panel, _ = fg.simulate(2, 600, edges=[("client1", "client2")], seed=1)
    return fg.fit(panel, fg.RunConfig(test="debiased", lags=1, solver="none"))


def test_a_run_keeps_its_responses(fitted, tmp_path):
    fitted.save(tmp_path)
    again = fg.Result.load(tmp_path)
    table = again.responses(cause="client1")
    pd.testing.assert_frame_equal(table, fitted.responses(cause="client1"))
    assert set(table["effect"]) == {"client2"}
    assert table.loc[0, "change"] == 0.0
    assert table["cause_sensor"].notna().all()
    (edge, found), *_ = again.inference.responses.items()
    np.testing.assert_array_equal(found.values, fitted.inference.responses[edge].values)
    (edge, moved), *_ = again.inference.movements.items()
    assert edge in again.inference.responses
    np.testing.assert_array_equal(moved.values, fitted.inference.movements[edge].values)
    with pytest.raises(RunError, match="no client 'x'"):
        again.responses(effect="x")


@pytest.mark.slow  # 200 data sets
def test_bands_hold_the_true_response():
    """`python -m benchmarks.responses` counts more of them."""
    hits, config = [], fg.RunConfig(test="debiased", lags=1)
    for seed in range(200):
        panel, truth = fg.simulate(2, 800, edges=[("client1", "client2")], seed=seed)
        fit = fit_latent(state_source(panel, known_models(truth)), config)
        own = {name: slice(*truth.rows(name).indices(99)[:2]) for name in fit.source.names}
        shocks = {name: fit.fit.process_cov[rows, rows] for name, rows in own.items()}
        found = edge_responses(
            fit.source,
            fit.fit.transition,
            shocks,
            partial(latent_without_blocks, fit),
            [*truth.edges],
        )[truth.edges[0]]
        course, (readout, shock) = found.curve(0.95), found.directions()
        steps = impulse_responses(truth.transition, 4)[:, own["client2"], own["client1"]]
        true = np.einsum("i,hij,j->h", readout, steps, shock)
        hits.append(((course.low[:5] <= true) & (true <= course.high[:5]))[1:].mean())
    assert abs(np.mean(hits) - 0.95) < 4 * np.std(hits) / np.sqrt(len(hits))


def test_sentences_name_the_delay_of_the_table():
    """An effect with a memory goes on growing after most has arrived: both times are said."""
    panel, _ = fg.simulate(3, 1500, seed=1)
    result = fg.fit(panel)
    edges = result.edges()
    edges = edges.loc[edges["is_edge"].fillna(False).astype(bool)]
    facts = result.manifest["inference"]
    words = response_sentences(facts, result.manifest["data"])
    told = []
    for edge in edges.itertuples():
        name = f"{edge.cause} -> {edge.effect}"
        assert facts["responses"][name]["delay"] == edge.delay
        peak = facts["sensor_responses"][name]["peak"]
        told.append(f"arrives after {edge.delay} step, largest after {peak} steps" in words[name])
    assert any(told)
