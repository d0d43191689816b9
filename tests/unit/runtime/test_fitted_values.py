"""States, loadings, forecasts and residuals of a result, against computations of their own."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.errors import DataError, RunError

ZONE = "Europe/Berlin"
pytestmark = pytest.mark.filterwarnings("ignore::fedgranger.errors.InferenceWarning")


def plant(num_steps=500, seed=1):
    """Boiler drives turbine two steps later; the boiler has a day and the turbine a counter."""
    rng = np.random.default_rng(seed)
    x, y = np.zeros((2, num_steps))
    for t in range(2, num_steps):
        x[t] = 0.7 * x[t - 1] + rng.normal()
        y[t] = 0.5 * y[t - 1] + 0.6 * x[t - 2] + rng.normal()
    clock = pd.date_range("2026-03-28", periods=num_steps, freq="h", tz=ZONE)
    day = 3 * np.sin(2 * np.pi * clock.hour / 24)
    noise = 0.3 * rng.normal(size=(num_steps, 6))
    boiler = {"P [bar]": 40 + 2 * x + day, "T [°C]": 300 + 5 * x, "F [t/h]": 80 - x}
    turbine = {"N [rpm]": 3000 + 10 * y, "V [mm/s]": 4 + y, "E [MWh]": np.cumsum(20 + y)}
    frames = {}
    for k, (name, columns) in enumerate((("boiler", boiler), ("turbine", turbine))):
        frames[name] = pd.DataFrame(columns, clock)
        frames[name].iloc[:, :2] += noise[:, 3 * k : 3 * k + 2]
        frames[name].iloc[:, 2] += 0.3 * np.abs(noise[:, 3 * k + 2])
    return frames


@pytest.fixture(scope="module")
def frames():
    found = plant()
    found["turbine"].iloc[200:203] = np.nan
    found["turbine"].iloc[300, 0] = np.nan  # the other sensors tell the state
    return found


@pytest.fixture(scope="module", params=["readings", "debiased"])
def result(request, frames):
    options = {"state_dim": 1, "period": 24, "solver": "none", "missing": "mask", "copies": 20}
    return fg.fit(frames, test=request.param, lags=2, **options)


def test_states_have_the_datas_own_clock_and_names(result, frames):
    states = result.states(frames)
    assert states.columns.tolist() == [("boiler", 0), ("turbine", 0)]
    assert states.columns.names == ["client", "state"]
    assert (states.index == frames["boiler"].index).all()
    assert str(states.index.tz) == ZONE
    missing = states["turbine", 0].isna()
    assert np.flatnonzero(missing).tolist() == [200, 201, 202]
    whole = fg.Panel.from_frames(frames, missing="mask")
    pd.testing.assert_frame_equal(result.states(whole), states, check_freq=False, atol=1e-9)


def lagged(states, lags):
    """A constant and the states at all lags, for every step."""
    T, P = states.shape
    columns = [np.vstack([np.full((k, P), np.nan), states[:-k]]) for k in range(1, lags + 1)]
    return np.concatenate([np.ones((T, 1)), *columns], axis=1)


def test_residuals_are_those_of_least_squares(result, frames):
    """Whichever test was chosen: the mean is that of all steps, so not to the last digits."""
    states = result.states(frames).to_numpy()
    X = lagged(states, result.inference.predictor.transition.shape[1] // 2)
    rows = np.isfinite(X).all(axis=1) & np.isfinite(states).all(axis=1)
    by_hand = states[rows] - X[rows] @ np.linalg.lstsq(X[rows], states[rows], rcond=None)[0]
    found = result.residuals(frames).to_numpy()
    assert np.array_equal(np.isfinite(found).all(axis=1), rows)
    np.testing.assert_allclose(found[rows], by_hand, atol=0.02 * by_hand.std())


@pytest.mark.parametrize("test", ["debiased", "readings"])
def test_noisy_sensors_are_predicted_as_well_as_by_a_plain_regression(test):
    """Out of sample, at every number of lags that it may have."""
    rng = np.random.default_rng(1)
    x = np.zeros((4000, 3))
    for t in range(1, 4000):
        x[t] = [0.9, 0.8, 0.85] * x[t - 1] + rng.normal(size=3)
        x[t, 1:] += [0.4, 0.3] * x[t - 1, :2]
    x /= x.std(axis=0)
    seen = {name: x[:, [k] * 3] + rng.normal(size=(4000, 3)) for k, name in enumerate("abc")}
    frames = {n: pd.DataFrame(v, columns=[f"{n}{i}" for i in range(3)]) for n, v in seen.items()}
    halves = (slice(2000), slice(2000, None))
    first, new = ({n: frame.iloc[half] for n, frame in frames.items()} for half in halves)
    result = fg.fit(first, test=test, state_dim=1, solver="none", copies=20)
    known, states = result.states(first).to_numpy(), result.states(new).to_numpy()
    ours = np.sum(result.residuals(new).to_numpy()[10:] ** 2, axis=0)
    for lags in range(1, 11):
        B = np.linalg.lstsq(lagged(known, lags)[lags:], known[lags:], rcond=None)[0]
        theirs = np.sum((states - lagged(states, lags) @ B)[10:] ** 2, axis=0)
        assert np.mean(ours / theirs) < 1.005


@pytest.mark.parametrize("sensors", [False, True])
def test_forecast_and_residual_are_what_was_there(result, frames, sensors):
    forecast = result.forecast(frames, sensors=sensors)
    residuals = result.residuals(frames, sensors=sensors)
    there = result.states(frames)
    if sensors:
        there = pd.concat(frames, axis=1)
        assert forecast.columns.tolist() == there.columns.tolist()
    last = there.index[-1]
    assert forecast.index[-1] == last + pd.Timedelta("1h")
    assert forecast.iloc[-1].notna().all()
    sums = forecast.iloc[:-1] + residuals
    known = residuals.notna().to_numpy()
    assert known[10:190].all()
    np.testing.assert_allclose(sums.to_numpy()[known], there.to_numpy()[known], rtol=1e-9)


def test_sensors_are_predicted_in_their_units(result, frames):
    """Day and counter included: most of the variance is explained, and nothing is shifted."""
    residuals = result.residuals(frames, sensors=True).dropna()
    assert residuals["turbine", "E [MWh]"].std() < 2
    assert residuals["boiler", "P [bar]"].std() < 0.8 * frames["boiler"]["P [bar]"].std()
    assert (residuals.mean().abs() < 0.15 * residuals.std()).all()
    assert (residuals.std() / pd.concat(frames, axis=1).std()).notna().all()


def test_loadings_are_slopes_of_sensors_on_states(result, frames):
    loadings = result.loadings()
    assert loadings.index.names == ["client", "sensor"]
    boiler = result.loadings("boiler")
    pd.testing.assert_frame_equal(loadings.loc["boiler"], boiler)
    states = result.states(frames)["boiler", 0]
    slopes = [np.polyfit(states, frames["boiler"][name], 1)[0] for name in boiler.index]
    np.testing.assert_allclose(boiler[0], slopes, rtol=0.15)


def test_coefficients_are_the_entries_lag_by_lag(result):
    table = result.coefficients("boiler", "turbine")
    assert (table["lag"].min(), table["row"].max(), table["col"].max()) == (1, 0, 0)
    block = result.block("turbine", "boiler")[0]
    np.testing.assert_array_equal(table["estimate"], block[: len(table)])
    assert abs(table["estimate"] / table["std_error"]).idxmax() == 1  # the second lag
    entries = result.entries().query("cause == 'boiler'")
    np.testing.assert_array_equal(table["estimate"][: len(entries)], entries["estimate"])
    np.testing.assert_array_equal(table["p_value"][: len(entries)], entries["p_value"])
    own = result.coefficients(within=True)
    assert own["p_value"].between(0, 1).all()
    assert (own["cause"] == own["effect"]).any()
    assert not (result.coefficients()["cause"] == result.coefficients()["effect"]).any()


def test_a_pair_that_is_no_edge_is_told_how_to_get_its_response():
    panel, _ = fg.simulate(2, 400, edges=[("client1", "client2")], seed=1)
    options = {"test": "debiased", "lags": 1, "state_dim": 1, "solver": "none"}
    result = fg.fit(panel, **options)
    assert len(result.responses("client1", "client2"))
    assert result.responses(cause="client2").empty
    with pytest.raises(RunError, match=r"client2 -> client1 has no response: .* alpha=0.99"):
        result.responses("client2", "client1")
    whole = fg.fit(panel, alpha=0.99, **options)
    assert len(whole.responses("client2", "client1"))
    pd.testing.assert_frame_equal(whole.edges(alpha=0.05), result.edges())
    assert whole.responses("client1", "client2").equals(result.responses())


def test_a_block_is_the_tested_one_unless_fedgc_s_own_is_named():
    panel, _ = fg.simulate(2, 400, edges=[("client1", "client2")], seed=1)
    result = fg.fit(panel, test="debiased", lags=2, state_dim=1, solver="newton")
    tested = result.coefficients("client1", "client2")["estimate"]
    np.testing.assert_array_equal(result.block("client2", "client1"), [tested])
    own = result.block("client2", "client1", "fedgc")
    np.testing.assert_array_equal(own, result.granger[1:, :1])
    with pytest.raises(RunError, match="nothing was tested"):
        replace(result, inference=None).block("client2", "client1")


def test_a_loaded_run_gives_the_same_bits(result, frames, tmp_path):
    result.save(tmp_path / "run")
    again = fg.Result.load(tmp_path / "run")
    for name in ("states", "residuals", "forecast"):
        first, second = (getattr(one, name)(frames) for one in (result, again))
        pd.testing.assert_frame_equal(first, second, check_exact=True)
    exactly = {"check_exact": True}
    pd.testing.assert_frame_equal(again.loadings(), result.loadings(), **exactly)
    pd.testing.assert_frame_equal(again.coefficients(), result.coefficients(), **exactly)
    first, second = (one.forecast(frames, sensors=True) for one in (result, again))
    pd.testing.assert_frame_equal(first, second, **exactly)


def test_a_federated_run_says_where_they_are(result, frames, monkeypatch):
    """And a server never loads a client's code to say so."""
    there = replace(result, monitors={})
    monkeypatch.setattr("fedgranger.results.import_module", None)
    for call in (there.states, there.residuals, there.forecast):
        with pytest.raises(RunError, match="measurements and local models stay at their sites"):
            call(frames)
    with pytest.raises(RunError, match="between parties"):
        there.loadings()
    assert len(there.coefficients())


def test_refusals_are_one_sentence(result, frames):
    with pytest.raises(RunError, match=r"no client 'boilr'; .* \(did you mean 'boiler'\?"):
        result.loadings("boilr")
    with pytest.raises(RunError, match="did you mean 'turbine'"):
        result.coefficients(cause="turbin")
    with pytest.raises(DataError, match="lack sensor 'F \\[t/h\\]'"):
        result.states({**frames, "boiler": frames["boiler"].iloc[:, :2]})
    with pytest.raises(DataError, match="the new data come every 2h"):
        result.forecast({name: frame.iloc[::2] for name, frame in frames.items()})
    with pytest.raises(RunError, match="nothing was tested"):
        replace(result, inference=None).residuals(frames)
