"""From panels to state sources: what the server works on is what the clients send."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.params import known_models
from fedgranger.client.state_noise import state_hello, state_message, state_readout
from fedgranger.federation import exchanges
from fedgranger.federation.direct import state_source


@pytest.fixture(scope="module")
def panel_and_models():
    """Clients out of order, ragged, with gaps, and models in other units than the sensors."""
    panel, truth = fg.simulate(
        clients=["pump", "boiler", "valve"],
        num_steps=300,
        state_dims=[2, 1, 3],
        sensor_dims=[4, 3, 6],
        missing_share=0.1,
        seed=4,
    )
    rng = np.random.default_rng(0)
    models = {
        name: fg.LocalModel(
            model.self_transition,
            model.observation_matrix,
            model.process_cov,
            model.measurement_cov * np.outer(*2 * [rng.uniform(0.5, 2, model.num_sensors)]),
            rng.normal(size=model.num_sensors),
            rng.uniform(0.5, 2.0, size=model.num_sensors),
        )
        for name, model in known_models(truth).items()
    }
    return panel, models


def generalised_least_squares(model, y):
    """s that minimises (y − C s)ᵀ R⁻¹ (y − C s), one step at a time in whitened units."""
    chol = np.linalg.cholesky(model.measurement_cov)
    C, y = np.linalg.solve(chol, model.observation_matrix), np.linalg.solve(chol, y)
    return np.linalg.lstsq(C, y, rcond=None)[0]


def test_states_vs_generalised_least_squares(panel_and_models):
    panel, models = panel_and_models
    source = state_source(panel, models)
    assert source.names == ("boiler", "pump", "valve")
    assert source.dims == (1, 2, 3)
    assert source.num_steps == 300
    (chunk,) = source.chunks()
    offset = 0
    for m, name in enumerate(source.names):
        model, client = models[name], panel[name]
        scaled = (client.values - model.centre) / model.scale
        own = chunk.states[:, offset : offset + model.state_dim]
        offset += model.state_dim
        complete = client.observed.all(axis=1)
        np.testing.assert_array_equal(chunk.observed[:, m], complete)
        assert 0 < (~complete).sum() < 60
        assert (own[~complete] == 0).all()
        for t in np.flatnonzero(complete)[:20]:
            np.testing.assert_allclose(
                own[t], generalised_least_squares(model, scaled[t]), rtol=1e-8, atol=1e-10
            )


def test_error_cov_vs_covariance_of_weighted_noise(panel_and_models):
    """E = W R Wᵀ and W C = I: the states are unbiased and E is what the noise leaves in them."""
    panel, models = panel_and_models
    source = state_source(panel, models)
    for name, E in zip(source.names, source.error_covs, strict=True):
        model = models[name]
        W = state_readout(model.observation_matrix, model.measurement_cov).weights
        np.testing.assert_allclose(W @ model.measurement_cov @ W.T, E, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(W @ model.observation_matrix, np.eye(len(E)), atol=1e-10)


def test_readout_without_noise_is_the_pseudo_inverse():
    C = np.random.default_rng(1).normal(size=(5, 2))
    W, E = state_readout(C, np.zeros((5, 5)))
    np.testing.assert_allclose(W, np.linalg.solve(C.T @ C, C.T), rtol=1e-10)
    assert not E.any()


def test_readout_meets_the_limit_of_small_noise():
    C = np.random.default_rng(2).normal(size=(5, 2))
    W, E = state_readout(C, 1e-12 * np.eye(5))
    np.testing.assert_allclose(W, np.linalg.pinv(C), rtol=1e-8)
    np.testing.assert_allclose(E, 1e-12 * np.linalg.inv(C.T @ C), rtol=1e-8)


def test_error_covariance_does_not_depend_on_the_units_of_sensors():
    rng = np.random.default_rng(3)
    C, unit = rng.normal(size=(5, 2)), 10.0 ** rng.uniform(-6, 6, size=5)
    R = np.diag(rng.uniform(0.5, 2, size=5))
    W, E = state_readout(C, R)
    W_other, E_other = state_readout(C * unit[:, None], R * np.outer(unit, unit))
    np.testing.assert_allclose(E_other, E, rtol=1e-9)
    np.testing.assert_allclose(W_other * unit, W, rtol=1e-8)


def test_messages_hold_what_the_source_shows(panel_and_models):
    panel, models = panel_and_models
    (chunk,) = state_source(panel, models).chunks()
    message = state_message(panel["pump"], models["pump"], 50, 90)
    np.testing.assert_array_equal(np.asarray(message.states), chunk.states[50:90, 1:3])
    np.testing.assert_array_equal(np.asarray(message.is_observed), chunk.observed[50:90, 1])
    whole = state_message(panel["pump"], models["pump"], 0, panel.num_steps)
    none = np.zeros(0, dtype=np.int64)
    E = state_readout(models["pump"].observation_matrix, models["pump"].measurement_cov).error_cov
    told = state_hello(whole, E, panel.segment_starts, none, 1.0, is_declared=True)
    np.testing.assert_array_equal(told.error_cov, state_source(panel, models).error_covs[1])


@pytest.mark.parametrize("steps", [1, 7, 100, 299])
def test_chunks_do_not_matter(panel_and_models, monkeypatch, steps):
    panel, models = panel_and_models
    (whole,) = state_source(panel, models).chunks()
    monkeypatch.setattr(exchanges, "CHUNK_STEPS", steps)
    parts = list(state_source(panel, models).chunks())
    assert len(parts) == -(-300 // steps)
    for name in ("states", "observed", "starts"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_allclose(joined, getattr(whole, name), rtol=1e-12, atol=1e-14)


def test_source_can_be_read_again(panel_and_models):
    source = state_source(*panel_and_models)
    (first,), (second,) = source.chunks(), source.chunks()
    np.testing.assert_array_equal(first.states, second.states)


def test_gap_in_time_starts_a_segment(panel_and_models):
    panel, models = panel_and_models
    time = panel.time.copy()
    time[120:] += 40
    (chunk,) = state_source(fg.Panel(panel.clients, time), models).chunks()
    np.testing.assert_array_equal(np.flatnonzero(chunk.starts), [0, 120])
