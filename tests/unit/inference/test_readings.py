"""Regressions on the own past and the others', against textbook least squares."""

import numpy as np
import pytest
import statsmodels.api as sm

from fedgranger.config import RunConfig
from fedgranger.errors import InferenceError
from fedgranger.inference import arrivals as arrivals_module
from fedgranger.inference import lag_bases, lag_columns, whitening
from fedgranger.inference.arrivals import arrival_p_values, arrivals, choose_cause_lags
from fedgranger.inference.infer import infer
from fedgranger.inference.readings import readings_without_blocks, regress
from fedgranger.inference.shifts import draw_shifts, tabulate
from fedgranger.inference.whitening import bounded, whiten
from tests.state_sources import source_of

DIMS = (1, 2, 1)
OWN = np.array([3, 2, 1])


def series(T=400, seed=0, dims=DIMS):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((T, sum(dims)))
    for t in range(1, T):
        x[t] += 0.5 * x[t - 1]
    return x


def lags(value, dims=DIMS):
    return np.full((len(dims), len(dims)), value)


def textbook(x, effect, own, causes, K, *, later=False):
    """HC3 by statsmodels: W/k of every cause of a client with one state, or of the lag after K."""
    T, depth = len(x), max(own, K + 1)
    t = np.arange(depth, T) if own >= K + 1 else np.arange(max(own, K + 1), T)
    columns = [np.ones(len(t)), *(x[t - k, effect] for k in range(1, own + 1))]
    tested = {}
    for name, places in causes.items():
        first = K * len(places) if later else 0
        tested[name] = len(columns) + first + np.arange((1 if later else K) * len(places))
        columns += [x[t - k, j] for k in range(1, K + 2) for j in places]
    fit = sm.OLS(x[t, effect], np.column_stack(columns)).fit(cov_type="HC3", use_t=True)
    out = {}
    for name, places in tested.items():
        R = np.eye(len(columns))[places]
        out[name] = float(np.asarray(fit.wald_test(R, use_f=True, scalar=True).statistic))
    return out


@pytest.mark.parametrize("K", [1, 2])
def test_statistics_are_those_of_statsmodels_hc3(K):
    x = series()
    found = regress(source_of(x, DIMS, own_lags=OWN), lags(K))
    for effect, place, causes in ((0, 0, {1: [1, 2], 2: [3]}), (2, 3, {0: [0], 1: [1, 2]})):
        wanted = textbook(x, place, OWN[effect], causes, K)
        for cause, value in wanted.items():
            statistic, df = found.statistic(effect, cause)
            assert df == K * len(causes[cause])
            assert statistic == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize("K", [1, 2])
def test_the_lag_after_the_tested_ones_vs_statsmodels(K):
    x = series()
    residuals = np.zeros(x.shape)
    found = regress(source_of(x, DIMS, own_lags=OWN), lags(K), residuals=residuals).later()
    for effect, place, causes in ((0, 0, {1: [1, 2], 2: [3]}), (2, 3, {0: [0], 1: [1, 2]})):
        wanted = textbook(x, place, OWN[effect], causes, K, later=True)
        assert [found[effect, n] for n in wanted] == pytest.approx([*wanted.values()], rel=1e-8)


def test_coefficients_stand_at_their_lag_and_state():
    x = series()
    found = regress(source_of(x, DIMS, own_lags=OWN), lags(1))
    assert found.lags == 3
    t = np.arange(3, len(x))
    columns = [np.ones(len(t)), *(x[t - k, 0] for k in (1, 2, 3))]
    columns += [x[t - k, j] for k in (1, 2) for j in (1, 2)] + [x[t - k, 3] for k in (1, 2)]
    b = np.linalg.lstsq(np.column_stack(columns), x[t, 0], rcond=None)[0]
    np.testing.assert_allclose(found.transition[0, [0, 4, 8]], b[1:4], atol=1e-10)  # own lags
    np.testing.assert_allclose(found.transition[0, [1, 2, 5, 6]], b[4:8], atol=1e-10)
    np.testing.assert_allclose(found.transition[0, [3, 7]], b[8:10], atol=1e-10)
    assert np.isnan(found.std_error[0, 9])


@pytest.mark.parametrize(("chunk", "steps"), [(37, 10**9), (10**9, 53), (150, 41)])
def test_chunks_and_windows_do_not_matter(monkeypatch, chunk, steps):
    x = series()
    whole = regress(source_of(x, DIMS, chunk=10**9, own_lags=OWN), lags(2))
    monkeypatch.setattr(lag_bases, "CHUNK_VALUES", 0)
    monkeypatch.setattr(lag_bases, "LEAST_STEPS", steps)
    monkeypatch.setattr(lag_columns, "KEPT_VALUES", 0 if steps == 53 else 10**9)
    cut = regress(source_of(x, DIMS, chunk=chunk, own_lags=OWN), lags(2))
    np.testing.assert_allclose(cut.transition, whole.transition, atol=1e-11)
    for pair, block in whole.blocks.items():
        np.testing.assert_allclose(cut.blocks[pair].cov, block.cov, rtol=1e-8)
    np.testing.assert_array_equal(cut.num_rows, whole.num_rows)


def test_statistics_do_not_depend_on_units_or_coordinates():
    x = series()
    turned = x.copy()
    turned[:, 1:3] = x[:, 1:3] @ np.array([[1e5, 2.0], [1.0, 1e-3]]) + 4.0
    plain, other = (regress(source_of(v, DIMS, own_lags=OWN), lags(1)) for v in (x, turned))
    for pair in plain.blocks:
        assert other.statistic(*pair)[0] == pytest.approx(plain.statistic(*pair)[0], rel=1e-6)


def test_rows_that_lack_something_are_left_out():
    x = series()
    observed = np.ones((400, 3), dtype=bool)
    observed[100:140, 1] = False
    found = regress(source_of(x, DIMS, observed=observed, starts=(0, 300), own_lags=OWN), lags(1))
    ready = np.ones(400, dtype=bool)
    for start in (0, 300):
        ready[start : start + 3] = False  # three own lags
    ready[101:142] = False  # target t needs the second client at t - 1 and t - 2
    assert found.num_rows[0] == ready.sum()


def test_a_column_that_says_nothing_new_is_not_tested():
    x = np.concatenate([series(), series()[:, :1]], axis=1)  # the last client repeats the first
    dims = (*DIMS, 1)
    found = regress(source_of(x, dims, own_lags=(3, 2, 1, 1)), lags(1, dims))
    statistic, df = found.statistic(0, 3)
    assert np.isnan(statistic)
    assert df == 0
    assert np.isfinite(found.statistic(0, 1)[0])


def test_statistics_beside_a_column_that_is_left_out():
    """Client 1's first state is client 0's own, which moves the columns of all after it."""
    x = np.column_stack([series(), np.random.default_rng(9).standard_normal(400)])
    x = x[:, [0, 0, 1, 2, 4]]
    found = regress(source_of(x, (1, 2, 2), own_lags=(2, 1, 1)), lags(1, (1, 2, 2)))
    assert (0, 1) in found.dependent
    for cause, value in textbook(x, 0, 2, {1: [2], 2: [3, 4]}, 1).items():
        assert found.statistic(0, cause)[0] == pytest.approx(value, rel=1e-6)


def test_too_few_rows_is_a_sentence():
    with pytest.raises(InferenceError, match="give more data"):
        regress(source_of(series(12), DIMS, own_lags=OWN), lags(1))


def later_arrivals(source, copies=None):
    """P-values of arrivals from lag 2 on, of sources with one state per client."""
    dims, residuals = source.dims, np.zeros((source.num_steps, source.total_dim))
    first = regress(source, lags(1, dims), residuals=residuals)
    late = arrivals(residuals, whiten(tabulate(source)), dims, 10)[1:]
    late[0] = first.later()
    return first, arrival_p_values(late, dims, copies)


@pytest.mark.parametrize("steps", [64, 10**9])
def test_arrivals_are_sums_of_products(monkeypatch, steps):
    """Written out, with shifted clocks, missing rows and windows of any length."""
    monkeypatch.setattr(arrivals_module, "STEPS_AT_ONCE", steps)
    monkeypatch.setattr(whitening, "STEPS_AT_ONCE", steps)
    T, dims, shifts = 300, (2, 1), np.array([40, 170])
    observed = np.ones((T, 2), dtype=bool)
    observed[50:60, 1] = False
    source = source_of(series(T, 1, (3,)), dims, observed=observed, own_lags=(2, 1))
    whitened = whiten(tabulate(source))
    residuals = np.random.default_rng(2).standard_normal((T, 3))
    residuals[200:220, :2] = 0
    found = arrivals(residuals.copy(), whitened, dims, 4, shifts)
    rows = np.r_[0:200, 220:T]
    r = np.zeros((T, 2))
    r[rows] = bounded(residuals[rows, :2])
    for lag in range(1, 5):
        t = np.arange(lag, T)
        before = (t - lag - shifts[1]) % T
        n = (np.isin(t, rows) & whitened.known[before, 1]).sum()
        product = r[t].T @ whitened.bounded[before, 2:]
        assert found[lag - 1, 0, 1] == pytest.approx((product**2).sum() / n / 2, rel=1e-10)


def test_what_the_own_past_leaves_vs_least_squares():
    x = series(500, 3, (2,))
    whitened = whiten(tabulate(source_of(x, (2,), own_lags=(3,))))
    t = np.arange(3, 500)
    X = np.column_stack([np.ones(len(t)), *(x[t - k] for k in (1, 2, 3))])
    e = x[t] - X @ np.linalg.lstsq(X, x[t], rcond=None)[0]
    np.testing.assert_allclose(whitened.covs[0], e.T @ e / len(t), rtol=1e-10)
    unit = whitened.values[3:].T @ whitened.values[3:] / len(t)
    np.testing.assert_allclose(unit, np.eye(2), atol=1e-10)
    assert not whitened.values[:3].any()


@pytest.mark.parametrize("delay", [2, 6])
def test_a_dead_time_is_seen_and_is_the_edges_delay(delay):
    """Two steps too, although the lag that is in the regression but not tested would take them."""
    x = series(1500, seed=3, dims=(1, 1))
    x[delay:, 1] += 0.4 * x[:-delay, 0]
    source = source_of(x, (1, 1))
    first, p = later_arrivals(source)
    assert first.statistic(1, 0)[0] < 4
    chosen = choose_cause_lags(p, (1, 1), 1500)
    assert chosen[1, 0] >= delay
    assert chosen[0, 1] == 1
    again = regress(source, chosen)
    assert again.statistic(1, 0)[0] > 20
    assert again.delay(1, 0) == delay


def test_one_event_of_each_is_no_arrival():
    """Two events seven steps apart: as large as they come in recordings of servers."""
    x = series(1500, seed=4, dims=(1, 1))
    x[700, 0] += 40
    x[707, 1] += 40
    source = source_of(x, (1, 1))
    chosen = choose_cause_lags(later_arrivals(source)[1], (1, 1), 1500)
    assert (chosen[0, 1], chosen[1, 0]) == (1, 1)


def test_arrivals_are_compared_with_those_of_copies():
    """Residuals with a rhythm of their own look like arrivals by formula, not beside copies."""
    rng = np.random.default_rng(5)
    dims = (1, 2)
    copies = 6 * rng.chisquare(2, (60, 9, 2, 2)) / 2
    found = copies[0].copy()
    found[4, 1, 0] = 160.0
    formula, calibrated = arrival_p_values(found, dims), arrival_p_values(found, dims, copies)
    assert calibrated[4, 1, 0] < 1e-5
    calibrated[4, 1, 0] = formula[4, 1, 0] = 1.0
    assert formula[:, [0, 1], [1, 0]].min() < 1e-4
    assert calibrated[:, [0, 1], [1, 0]].min() > 1e-3


@pytest.mark.slow  # Monte Carlo over many data sets; parts of it are tested by formula
def test_where_nothing_arrives_the_p_values_are_even():
    """400 panels, ten lags, two pairs: share below 5 % within four Monte Carlo errors."""
    found = []
    for seed in range(400):
        x = series(300, seed, (1, 1))
        source = source_of(x, (1, 1))
        found.append(later_arrivals(source)[1][:, [0, 1], [1, 0]])
    share = np.mean(np.array(found) < 0.05)
    assert abs(share - 0.05) < 4 * np.sqrt(0.05 * 0.95 / np.size(found))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_an_offset_of_the_states_hides_no_arrival(offset):
    x = series(1500, seed=3, dims=(1, 1))
    x[6:, 1] += 0.4 * x[:-6, 0]
    chosen = choose_cause_lags(later_arrivals(source_of(x + offset, (1, 1)))[1], (1, 1), 1500)
    assert chosen[1, 0] >= 6


def test_news_of_a_slow_cause_are_not_heard_for_ever():
    """s_m hears what was new in a slow s_n one step before: two lags, not seven."""
    rng = np.random.default_rng(6)
    news, x = rng.standard_normal((3000, 2)), np.zeros((3000, 2))
    for t in range(1, 3000):
        x[t, 0] = 0.95 * x[t - 1, 0] + news[t, 0]
        x[t, 1] = 0.5 * news[t - 1, 0] + news[t, 1]
    source = source_of(x, (1, 1))
    chosen = choose_cause_lags(later_arrivals(source)[1], (1, 1), 3000)
    assert 2 <= chosen[1, 0] <= 3


def test_a_window_without_a_row_is_passed_over():
    x = series(4097, dims=(1, 1))
    observed = np.ones((4097, 2), dtype=bool)
    observed[-1, 0] = False
    source = source_of(x, (1, 1), observed=observed, chunk=1024)
    found = regress(source, lags(1, (1, 1)))
    assert found.num_rows.tolist() == [4094, 4095]


def test_runs_no_longer_than_the_past_will_do():
    """A client that is seen twice in three steps never has a present after its two lags."""
    x = series(900, dims=(1, 1))
    observed = np.ones((900, 2), dtype=bool)
    observed[2::3, 0] = False
    found = regress(source_of(x, (1, 1), observed=observed), lags(1, (1, 1)))
    assert np.isfinite(found.statistic(1, 0)[0])


def test_own_lags_that_depend_only_on_common_rows():
    """Own coefficients are least squares too where an own column is left out."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((900, 2))
    for t in range(2, 450):
        x[t, 0] += 0.6 * x[t - 1, 0]
    x[450:, 0] = np.cos(0.7 * np.arange(450))  # two lags of it tell the rest
    observed = np.ones((900, 2), dtype=bool)
    observed[:455, 1] = False
    found = regress(source_of(x, (1, 1), observed=observed, own_lags=(3, 1)), lags(1, (1, 1)))
    assert found.num_columns.tolist() == [5, 4]  # of 6 and 4
    t = np.arange(457, 900)
    columns = [np.ones(len(t)), x[t - 1, 0], x[t - 2, 0], x[t - 1, 1], x[t - 2, 1]]
    b = np.linalg.lstsq(np.column_stack(columns), x[t, 0], rcond=None)[0]
    np.testing.assert_allclose(found.transition[0, [0, 2]], b[1:3], atol=1e-6)


def test_auto_with_one_lag_at_most_and_with_dependent_states():
    """Copies at the data's k, although shifting clocks makes states independent again."""
    rng = np.random.default_rng(2)
    a, noise = series(500, 7, (2,)), rng.standard_normal((500, 2))
    x = np.concatenate([a, a @ np.array([[1.0, 2.0], [3.0, 1.0]]), noise], axis=1)
    source = source_of(x, (2, 3, 1))
    config = RunConfig(test="readings", copies=20, max_lags=1)
    audit = infer(source, config).audit
    assert audit.found.df[2, 1] == 1
    known = audit.statistics[:, 2, 1]
    assert known.var() > 0.5  # of W/1, not of W/3


@pytest.mark.parametrize("kept", [0, 10**9])
@pytest.mark.parametrize("steps", [300, 280])
def test_a_copy_is_the_regression_of_shifted_series_written_out(monkeypatch, kept, steps):
    """Missing rows, a break in the data, cut records; columns kept or made again, and one QR."""
    monkeypatch.setattr(lag_columns, "KEPT_VALUES", kept)
    monkeypatch.setattr(lag_bases, "CHUNK_VALUES", 0)
    monkeypatch.setattr(lag_bases, "LEAST_STEPS", 64)
    x = series(300, 5, (1, 1))
    observed = np.ones((300, 2), dtype=bool)
    observed[[40, 41, 170], [0, 0, 1]] = False
    own, K, row = (3, 2), lags(2, (1, 1)), np.array([0, 95])
    table = tabulate(source_of(x, (1, 1), observed=observed, starts=(0, 120), own_lags=own))
    lagged = lag_columns.LagColumns(table.shifted(np.zeros(2, dtype=int), steps), K)
    found = regress(table.shifted(row, steps), K, lagged=lagged, shifts=row)
    whole = [np.where(seen, v, np.nan) for v, seen in zip(x.T, observed.T, strict=True)]
    rows = []
    for t in range(steps):
        place = [(t - shift) % steps for shift in row]

        def past(m, count, place=place):
            """Lags of a client on its own clock, None where they cross a break."""
            steps_back = [(place[m] - k) % steps for k in range(1, count + 1)]
            later = [place[m], *steps_back]
            crossed = any(later[k] in (0, 120) for k in range(1, count))
            values = [whole[m][at] for at in steps_back]
            return None if crossed or np.isnan(values).any() else values

        mine, theirs = past(0, own[0]), past(1, 3)
        begins = place[0] in (0, 120)
        if mine is None or theirs is None or begins or np.isnan(whole[0][place[0]]):
            continue
        rows.append([whole[0][place[0]], 1.0, *mine, *theirs])
    y, X = np.array(rows)[:, 0], np.array(rows)[:, 1:]
    assert found.num_rows[0] == len(y)
    fit = sm.OLS(y, X).fit(cov_type="HC3")
    tested = [4, 5]
    a, V = fit.params[tested], fit.cov_params()[np.ix_(tested, tested)]
    assert found.statistic(0, 1)[0] == pytest.approx(a @ np.linalg.solve(V, a) / 2, rel=1e-8)


def test_columns_of_other_data_are_refused():
    x = series(200, 1, (1, 1))
    lagged = lag_columns.LagColumns(source_of(x[:150], (1, 1)), lags(1, (1, 1)))
    with pytest.raises(RuntimeError, match="other data"):
        regress(source_of(x, (1, 1)), lags(1, (1, 1)), lagged=lagged)


def two_steps_later():
    """White noise: with a rhythm of its own the effect would show something at lag 3 as well."""
    x = np.random.default_rng(3).standard_normal((1500, 3))
    x[2:, 1] += 0.4 * x[:-2, 0]
    return source_of(x, (1, 1, 1))


def test_what_arrives_at_lag_two_only_is_found():
    """The first test has this lag among its columns, so its residuals show nothing of it."""
    found = infer(two_steps_later(), RunConfig(test="readings", copies=60))
    edge = found.edges.set_index(["cause", "effect"]).loc["c0", "c1"]
    assert edge["p_value"] < 1e-3
    assert edge["delay"] == 2
    (late,) = found.facts["late_arrivals"]
    assert (late["cause"], late["effect"], late["steps"]) == ("c0", "c1", 2)


def test_every_copy_is_tested_at_the_lags_of_the_data():
    """Copies that were looked at for lags, and the others: effects have one law in both."""
    audit = infer(two_steps_later(), RunConfig(test="readings", copies=40)).audit
    source, shifts = two_steps_later(), draw_shifts(3, 1500, 40, 0, 1)
    late = audit.found.df > 1
    assert late[1, 0]
    assert not late[[0, 2]].any()
    chosen = np.where(np.isnan(audit.found.df), 1, audit.found.df).astype(int)
    for copy in (0, 29, 30, 39):
        shifted = tabulate(source).shifted(shifts[copy], 1500)
        wanted = regress(shifted, chosen)
        for pair in wanted.blocks:
            value = wanted.statistic(*pair)[0]
            assert audit.statistics[copy][pair] == pytest.approx(value, rel=1e-8)


@pytest.mark.slow  # 200 data sets
def test_a_lag_is_chosen_by_chance_no_more_often_than_stated():
    """200 panels without links, with bursts; a chance of 1 % each: at most 6 (p = 0.0043)."""
    chosen = 0
    for seed in range(200):
        x = series(400, seed, (1, 1))
        rng = np.random.default_rng(seed)
        x[rng.integers(0, 400, 4), rng.integers(0, 2, 4)] += 15
        found = infer(source_of(x, (1, 1)), RunConfig(test="readings", copies=20, seed=seed))
        chosen += bool((found.edges["df"] > 1).any())
    assert chosen <= 6


@pytest.mark.parametrize("kept_values", [10**9, 0])
def test_coefficients_without_a_block_vs_numpy(monkeypatch, kept_values):
    monkeypatch.setattr(lag_columns, "KEPT_VALUES", kept_values)
    x = series(300)
    found = [*readings_without_blocks(source_of(x, DIMS, own_lags=OWN), lags(1), 4)]
    t = np.arange(3, len(x))
    columns = [np.ones(len(t)), *(x[t - k, 0] for k in (1, 2, 3))]
    columns += [x[t - k, j] for k in (1, 2) for j in (1, 2)] + [x[t - k, 3] for k in (1, 2)]
    X, places = np.column_stack(columns), [0, 4, 8, 1, 2, 5, 6, 3, 7]
    for block, transition in enumerate(found):
        rows = t * 4 // 300 != block
        expected = np.linalg.lstsq(X[rows], x[t, 0][rows])[0]
        np.testing.assert_allclose(transition[0, places], expected[1:], atol=1e-10)
    few = source_of(x[:12], DIMS, own_lags=OWN)
    assert None in [*readings_without_blocks(few, lags(1), 4)]


def test_a_block_without_rows_takes_nothing_out():
    """A record of fewer steps than blocks: `fit` with 18 rows ended in a traceback."""
    x = series(18, dims=(1, 1))
    source = source_of(x, (1, 1), own_lags=np.array([1, 1]))
    every = [*readings_without_blocks(source, lags(1, (1, 1)), 40)]
    whole = regress(source, lags(1, (1, 1))).transition
    unchanged = [np.allclose(one, whole, rtol=1e-12, atol=0) for one in every]
    assert sum(unchanged) == 40 - 16  # two rows are only the past of others
