"""Trace, QQ, calibration and root causes show what their numbers say."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from scipy import stats

import fedgranger as fg
from fedgranger.errors import ConfigError, DataError, RunError
from fedgranger.plot.canvas import BLUE, ORANGE


def line_named(ax, label):
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return line


def band(area):
    """Lower and upper end of a filled area at each of its places."""
    vertices = area.get_paths()[0].vertices
    x = np.unique(vertices[:, 0])
    ends = [vertices[vertices[:, 0] == place, 1] for place in x]
    return x, np.array([e.min() for e in ends]), np.array([e.max() for e in ends])


def area_named(ax, label):
    (area,) = [c for c in ax.collections if label in c.get_label()]
    return area


@pytest.mark.parametrize("client", [None, "plant03"])
def test_trace_draws_mean_losses_over_passes(result, client):
    ax = fg.plot.trace(result, client=client)
    table = result.trace if client is None else result.trace.query("client == @client")
    means = table.groupby("pass_index")[["local_loss", "server_loss"]].mean()
    for label, column in (("local loss (clients)", "local_loss"), ("server loss", "server_loss")):
        x, y = line_named(ax, label).get_data()
        np.testing.assert_array_equal(x, means.index)
        np.testing.assert_allclose(y, means[column], rtol=1e-12)
    assert ax.get_yscale() == "log"


@pytest.mark.parametrize("client", [None, "plant03"])
def test_trace_splits_a_covariance_into_prior_and_data(result, client):
    ax = fg.plot.trace(result, quantity="granger_cov", client=client)
    table = result.uncertainty.table.query("quantity == 'granger_cov'")
    table = table if client is None else table.query("client == @client")
    sums = table.groupby("round")[["total", "prior", "data"]].sum()
    np.testing.assert_allclose(line_named(ax, "total").get_ydata(), sums["total"])
    rounds, middle, top = band(area_named(ax, "epistemic"))
    np.testing.assert_array_equal(rounds, sums.index)
    np.testing.assert_allclose(top, sums["total"], rtol=1e-12)
    later = rounds > 0  # no data's part at the start: the lower end is the border
    np.testing.assert_allclose(middle[later], sums["data"][later], rtol=1e-12)
    _, floor, below = band(area_named(ax, "aleatoric"))
    np.testing.assert_allclose(below, middle)
    np.testing.assert_allclose(floor, ax.get_ylim()[0])
    assert middle[0] == floor[0]
    assert ax.get_yscale() == "log"


def test_trace_of_norms_draws_lines_that_need_not_add_up(result):
    ax = fg.plot.trace(result, quantity="granger_state_cov", client="plant00")
    assert not ax.collections
    np.testing.assert_allclose(line_named(ax, "total").get_ydata(), np.sqrt(5 * 3.0**2))
    np.testing.assert_allclose(line_named(ax, "prior alone").get_ydata(), np.sqrt(5 * 2.0**2))


def test_trace_of_an_unsplit_quantity_draws_the_total(result):
    ax = fg.plot.trace(result, quantity="state_cov")
    assert not ax.collections
    np.testing.assert_allclose(line_named(ax, "total").get_ydata(), 6 * 0.7)


def test_trace_refuses_what_is_not_there(result, make_result):
    with pytest.raises(
        ConfigError, match=r"quantity is 'granger'; choose one of loss, granger_cov"
    ):
        fg.plot.trace(result, quantity="granger")
    with pytest.raises(RunError, match=r"no client 'nobody'; the run has plant00"):
        fg.plot.trace(result, client="nobody")
    with pytest.raises(RunError, match=r"'granger_cov' needs covariances.*uncertainty='joint'"):
        fg.plot.trace(make_result(has_uncertainty=False), quantity="granger_cov")


@pytest.mark.parametrize("distribution", ["normal", "uniform"])
def test_qq_draws_ordered_values_against_order_statistics(distribution):
    rng = np.random.default_rng(1)
    values = rng.normal(size=40) if distribution == "normal" else rng.uniform(size=40)
    ax = fg.plot.qq(np.append(values, np.nan).reshape(-1, 1), distribution=distribution)
    x, y = line_named(ax, "40 values").get_data()
    middle = stats.beta.ppf(0.5, np.arange(1, 41), np.arange(40, 0, -1))
    if distribution == "normal":
        np.testing.assert_array_equal(y, np.sort(values))
        np.testing.assert_allclose(x, stats.norm.ppf(middle))
    else:
        np.testing.assert_array_equal(y, -np.log10(np.sort(values)))
        np.testing.assert_allclose(x, -np.log10(middle))


@pytest.mark.parametrize("distribution", ["normal", "uniform"])
def test_qq_band_holds_each_point_with_95_percent(distribution):
    """Monte Carlo: 4000 samples of 25 values; 25 shares, each within 4.5 standard errors."""
    count, repeats = 25, 4000
    rng = np.random.default_rng(2)
    if distribution == "normal":
        samples = np.sort(rng.normal(size=(repeats, count)), axis=1)
    else:
        samples = np.sort(-np.log10(rng.uniform(size=(repeats, count))), axis=1)
    ax = fg.plot.qq(np.full(count, 0.5), distribution=distribution)
    _, low, high = band(area_named(ax, "band"))
    share = ((low <= samples) & (samples <= high)).mean(axis=0)
    np.testing.assert_allclose(share, 0.95, atol=4.5 * np.sqrt(0.95 * 0.05 / repeats))


def test_qq_of_many_values_thins_the_band_only():
    values = np.random.default_rng(3).uniform(size=5000)
    ax = fg.plot.qq(values, distribution="uniform")
    line = line_named(ax, "5000 values")
    assert len(line.get_xdata()) == 5000
    assert line.get_rasterized()
    x, low, high = band(area_named(ax, "band"))
    assert len(x) < 500
    assert x.min() == line.get_xdata().min()
    assert x.max() == line.get_xdata().max()
    outside = stats.beta.ppf(0.975, 5000, 1)
    np.testing.assert_allclose(low[0], -np.log10(outside), rtol=1e-6)
    assert (low <= high).all()


def test_qq_draws_p_values_too_small_for_a_float():
    _, y = line_named(fg.plot.qq([0.0, 0.5], distribution="uniform"), "2 values").get_data()
    assert np.isfinite(y).all()
    assert y.max() > 300


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([0.1, 1.2], {"distribution": "uniform"}, r"values: 1.2 is no p-value"),
        ([0.1, -0.2], {"distribution": "uniform"}, r"values: -0.2 is no p-value"),
        ([], {}, r"values: there are no numbers in it"),
        ([np.nan], {}, r"values: there are no numbers in it"),
        (["a"], {}, r"values: list cannot be read as numbers"),
        ([np.inf, 1.0], {}, r"values: some are infinite"),
        ([1.0], {"distribution": "uniforn"}, r"did you mean 'uniform'"),
    ],
)
def test_qq_refuses_what_it_cannot_draw(values, options, message):
    with pytest.raises((DataError, ConfigError), match=message):
        fg.plot.qq(values, **options)


def test_calibration_draws_rejection_rates():
    p = np.array([0.001, 0.01, 0.05, 0.05, 0.2, 0.8, 0.9, 1.0, np.nan])
    ax = fg.plot.calibration(p)
    (line,) = [line for line in ax.lines if "at 5 %" in line.get_label()]
    levels, rates = line.get_data()
    wanted = np.array([(p[:-1] <= level).mean() for level in levels])
    np.testing.assert_allclose(rates, wanted)
    assert line.get_label() == "50.0 % at 5 %"


def test_calibration_band_is_binomial():
    ax = fg.plot.calibration(np.linspace(0, 1, 200))
    levels, low, high = band(area_named(ax, "95 % band, n = 200"))
    for level, a, b in zip(levels[::10], low[::10], high[::10], strict=True):
        a, b = np.round([a * 200, b * 200]).astype(int)
        inside = stats.binom.cdf(b, 200, level) - stats.binom.cdf(a - 1, 200, level)
        assert inside >= 0.95 - 1e-9
        tighter = stats.binom.cdf(b - 1, 200, level) - stats.binom.cdf(a, 200, level)
        assert tighter < 0.95 or a == b


def test_calibration_takes_a_mapping(hostile):
    rng = np.random.default_rng(4)
    groups = {name: rng.uniform(size=30 * (k + 1)) for k, name in enumerate(hostile.clients)}
    ax = fg.plot.calibration(groups)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(labels) == len(groups) + 2
    assert labels[0].startswith("$x_{1}$: ")
    assert labels[2].startswith("_hidden: ")
    assert labels[-1] == "95 % band, n = 30 to 180"


def test_calibration_refuses_what_it_cannot_draw():
    with pytest.raises(DataError, match=r"null_p: 3 is no p-value; give numbers between 0 and 1"):
        fg.plot.calibration([0.5, 3.0])
    with pytest.raises(DataError, match=r"null_p\['a'\]: there are no numbers"):
        fg.plot.calibration({"a": []})
    with pytest.raises(DataError, match=r"null_p is an empty mapping"):
        fg.plot.calibration({})


@pytest.fixture
def ranking():
    return pd.DataFrame(
        {
            "client": ["pump", "$valve$", "boiler", "fan"],
            "score": [4.0, 3.0, 1.5, 0.5],
            "probability": [0.6, 0.25, 0.1, 0.05],
            "ci_low": [3.5, 2.0, -0.5, np.nan],
            "ci_high": [4.75, 3.5, 2.0, np.nan],
        }
    )


def test_rca_bars_are_probabilities(ranking):
    ax = fg.plot.rca(ranking)
    bars = ax.patches
    assert [bar.get_width() for bar in bars] == list(ranking["probability"])
    assert [text.get_text() for text in ax.get_yticklabels()] == list(ranking["client"])
    scores = ["4 [3.5, 4.75]", "3 [2, 3.5]", "1.5 [-0.5, 2]", "0.5 [–, –]"]
    assert [text.get_text() for text in ax.texts] == scores
    colours = [to_hex(bar.get_facecolor()) for bar in bars]
    assert colours == [ORANGE, BLUE, BLUE, BLUE]
    assert list(line_named(ax, "guessing, 1/4").get_xdata()) == [0.25, 0.25]
    low, high = ax.get_ylim()
    assert low > high  # the first bar is on top


def test_rca_guessing_counts_clients_that_are_not_drawn(ranking):
    ax = fg.plot.rca(ranking[["client", "score", "probability"]], max_clients=2)
    assert len(ax.patches) == 2
    assert [text.get_text() for text in ax.texts] == ["4", "3"]
    assert line_named(ax, "guessing, 1/4").get_xdata()[0] == 0.25
    assert "first 2 of 4" in ax.get_title(loc="left")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="score"), r"column\(s\) score missing"),
        (lambda t: t.drop(columns="ci_low"), r"column\(s\) ci_low missing"),
        (lambda t: t.head(0), r"ranking has no rows"),
        (
            lambda t: t.assign(probability=[0.5, 1.7, 0.1, 0.1]),
            r"client '\$valve\$' has prob.* 1.7",
        ),
        (lambda t: t.assign(probability=[0.5, 0.2, np.nan, 0]), r"client 'boiler' .* nan; give a"),
        (lambda t: t.assign(score=list("abcd")), r"column score holds text"),
        (lambda t: SimpleNamespace(table=t), r"ranking is SimpleNamespace; give its .table"),
        (lambda t: t.to_dict(), r"ranking is dict; give a table"),
    ],
)
def test_rca_refuses_what_it_cannot_draw(ranking, change, message):
    with pytest.raises(DataError, match=message):
        fg.plot.rca(change(ranking))
    with pytest.raises(ConfigError, match=r"max_clients is 0"):
        fg.plot.rca(ranking, max_clients=0)


@pytest.fixture(scope="module")
def two_edges():
    edges = [("client1", "client2"), ("client1", "client3")]
    panel, _ = fg.simulate(3, 500, edges=edges, seed=1, state_dims=[1, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fg.fit(panel, test="debiased", lags=1, state_dim=1, solver="none")


def test_responses_are_curves_with_their_bands(two_edges):
    table = two_edges.responses()
    ax = fg.plot.responses(two_edges)
    names = {line.get_label() for line in ax.lines if line.get_label().startswith("client")}
    assert len(names) == table[["cause", "effect"]].drop_duplicates().shape[0] == 2
    own = table.loc[table["effect"] == "client2"]
    sensors = own["cause_sensor"].iloc[0], own["effect_sensor"].iloc[0]
    line = line_named(ax, f"client1.{sensors[0]} → client2.{sensors[1]}")
    np.testing.assert_allclose(line.get_ydata(), own["change"])
    alone = fg.plot.responses(two_edges, effect="client2")
    steps, low, high = band(alone.collections[0])
    np.testing.assert_allclose(steps, own["step"])
    np.testing.assert_allclose(low, own["low"], atol=1e-12)
    np.testing.assert_allclose(high, own["high"], atol=1e-12)
    assert "of 2 edges" in fg.plot.responses(two_edges, max_edges=1).get_title()


def test_responses_refuse_what_they_cannot_draw(two_edges):
    with pytest.raises(RunError, match="no edge was found here"):
        fg.plot.responses(two_edges, cause="client2")
    with pytest.raises(RunError, match="client2 -> client1 has no response"):
        fg.plot.responses(two_edges, cause="client2", effect="client1")
    with pytest.raises(RunError, match="result is str"):
        fg.plot.responses("run")
