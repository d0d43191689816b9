"""A client's noise floor: what of the scatter among its sensors can be white."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.identify import identify
from fedgranger.client.kalman import filter_data, steady_gain
from fedgranger.client.noise_limit import (
    client_noise_floor,
    limited_noise,
    noise_share,
    share_in_words,
    state_lag_moments,
)
from fedgranger.client.params import known_models
from fedgranger.client.present_sensors import fill_rows, sensor_model
from fedgranger.client.quality import local_fit
from fedgranger.client.state_noise import state_hello, state_message, state_readout
from fedgranger.linalg.spectral import spectral_radius
from tests.slow_sensors import first_only, make, slow_sensors


def test_moments_vs_loop_over_unbroken_windows():
    rng = np.random.default_rng(0)
    states, complete = rng.normal(size=(60, 2)), rng.random(60) > 0.1
    starts = np.isin(np.arange(60), [0, 20, 45])
    segment, lags = np.cumsum(starts), 3
    windows = [
        np.concatenate([states[t - k] for k in range(lags + 1)])
        for t in range(lags, 60)
        if complete[t - lags : t + 1].all() and segment[t] == segment[t - lags]
    ]
    total = np.mean([np.outer(x, x) for x in windows], axis=0)
    got = state_lag_moments(states, complete, starts, lags)
    assert got.num_windows == len(windows)
    np.testing.assert_allclose(got.after, total[:2, :2])
    np.testing.assert_allclose(got.lag, total[:2, 2:])
    np.testing.assert_allclose(got.before, total[2:, 2:])


def test_limited_noise_keeps_the_states_and_scales_their_error():
    rng = np.random.default_rng(1)
    C, R = rng.normal(size=(6, 2)), np.diag(rng.uniform(0.5, 2.0, 6))
    W, E = state_readout(C, R)
    for share in (0.3, 1e-6):
        W_limited, E_limited = state_readout(C, limited_noise(C, R, share))
        np.testing.assert_allclose(W_limited, W, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(E_limited, share * E, rtol=1e-7, atol=1e-9 * share)
    assert limited_noise(C, R, 1.0) is R


def test_slow_sensors_are_no_white_noise():
    """Without the limit the model explodes; with it the model is stable and fits the sensors."""
    y = slow_sensors()
    model = identify(make(y), first_only(2000), state_dim=1)
    assert model.noise_share < 0.3
    assert spectral_radius(model.self_transition) < 1
    assert sum("of the scatter among boiler's sensors" in note for note in model.notes) == 1
    W, E = state_readout(model.observation_matrix, model.measurement_cov)
    s = model.scaled(y) @ W.T
    naive = (s[1:].T @ s[:-1] / 1999) @ np.linalg.inv(
        s[:-1].T @ s[:-1] / 1999 - E / model.noise_share
    )
    assert spectral_radius(naive) > 1
    message = state_message(make(y), model, 0, 2000)
    none = np.zeros(0, dtype=np.int64)
    rows = fill_rows(make(y), sensor_model(model))
    share = noise_share(rows, first_only(2000), model)
    told = state_hello(message, rows.error_cov, first_only(2000), none, share, is_declared=False)
    assert told.noise_share == model.noise_share
    np.testing.assert_allclose(told.error_cov, E)


def test_implied_covariance_of_the_sensors_is_kept():
    """C (E[ssᵀ] − cE) Cᵀ + R_c does not depend on c."""
    y = slow_sensors(2)
    model = identify(make(y), first_only(2000), method="factor", state_dim=1)
    assert model.noise_share < 1
    C, R = model.observation_matrix, model.measurement_cov
    W, E = state_readout(C, R)
    s = model.scaled(y) @ W.T
    implied = C @ (s.T @ s / 2000 - E) @ C.T + R
    np.testing.assert_allclose(np.diag(implied), 1.0, atol=0.02)
    fit = local_fit(filter_data(make(y), model, first_only(2000)), make(y))
    assert fit["innovation_variance"] < 1.2  # with cR it would be about 1/c
    assert np.isfinite(steady_gain(model).gain).all()


@pytest.mark.parametrize("noise", [0.1, 20.0])
def test_simulated_data_keep_all_of_their_noise(noise):
    for seed in range(7):
        panel, truth = fg.simulate(6, 600, seed=seed, measurement_var=noise)
        known = known_models(truth)
        for name in panel.names:
            model = identify(panel[name], panel.segment_starts, state_dim=2)
            assert model.noise_share == 1.0
            given = known[name]
            sensors = sensor_model(given)
            rows = fill_rows(panel[name], sensors)
            floor = client_noise_floor(rows, panel.segment_starts, sensors)
            assert floor.share == 1.0


def test_gaps_shorten_the_autoregression_and_end_it():
    y, observed = slow_sensors(), np.ones((2000, 6), dtype=np.bool_)
    observed[::4] = False  # no stretch of more than three steps
    limited = identify(make(y, observed), first_only(2000), state_dim=1)
    assert limited.noise_share < 0.5
    observed[::2] = False  # no two steps in a row
    sensors = sensor_model(limited)
    rows = fill_rows(make(y, observed), sensors)
    floor = client_noise_floor(rows, first_only(2000), sensors)
    assert floor.share == 1.0


def test_near_unit_root_is_not_called_growth():
    """A random walk that ends high: least squares puts its root above one by less than 4/T."""
    found = 0
    for seed in range(60):
        walk = np.cumsum(np.random.default_rng(seed).standard_normal(300))[:, None]
        centred = walk - walk.mean()
        root = (centred[1:].T @ centred[:-1]).item() / (centred[:-1] ** 2).sum()
        model = identify(make(walk), first_only(300), state_dim=1)
        found += root >= 1
        assert model.self_transition[0, 0] < 1
    assert found > 0


def test_words():
    assert share_in_words("boiler", 0.12).startswith(
        "of the scatter among boiler's sensors 12 % can be white noise"
    )
    assert "less than 1 %" in share_in_words("boiler", 1e-5)
