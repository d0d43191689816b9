"""What must not change the result."""

import jax
import numpy as np
import pytest

import fedgranger as fg
from fedgranger import rounds
from fedgranger.errors import ConvergenceWarning
from fedgranger.runtime.inprocess import stack_windows, train
from fedgranger.runtime.setup import initial_state, set_up
from tests.configs import formula_config


@pytest.fixture(scope="module")
def ragged_panel():
    return fg.simulate(
        4, 400, state_dims=[1, 2, 3, 2], sensor_dims=[3, 6, 9, 5], missing_share=0.05, seed=1
    )


@pytest.mark.filterwarnings("ignore::fedgranger.errors.InferenceWarning")
@pytest.mark.parametrize("order", [(3, 1, 0, 2), (1, 0, 3, 2)])
def test_permuting_clients_permutes_result_exactly(ragged_panel, order):
    panel, truth = ragged_panel
    config = formula_config(passes=3, tolerance=0, state_dim=truth.state_dims)
    base = fg.fit(panel, config)
    other = fg.fit(panel.select([panel.names[k] for k in order]), config)
    assert other.clients == base.clients == tuple(sorted(panel.names))
    for effect in panel.names:
        np.testing.assert_array_equal(base.augmentations[effect], other.augmentations[effect])
        for cause in panel.names:
            for estimate in ("fedgc", "debiased"):
                np.testing.assert_array_equal(
                    base.block(effect, cause, estimate), other.block(effect, cause, estimate)
                )
    merged = base.edges().merge(other.edges(), on=["cause", "effect"], how="outer")
    for column in ("strength", "statistic", "p_value", "q_value"):
        assert (merged[f"{column}_x"] == merged[f"{column}_y"]).all()
    strengths = [np.linalg.norm(other.block(e, c, "debiased")) for c, e in pairs_of(other)]
    np.testing.assert_allclose(other.edges()["strength"], strengths)
    assert base.manifest["data"]["hash"] == other.manifest["data"]["hash"]


@jax.jit
def one_pass(params, state, windows):
    """The state after a pass, and every message of it."""

    def advance(now, window):
        up = rounds.send(now.clients, window)
        server, down, _ = rounds.answer(params.server, now.server, up)
        clients, _ = rounds.learn(params.clients, now.clients, window, down)
        return rounds.RoundState(clients, server), (up, down)

    return jax.lax.scan(advance, state, windows)


def messages_of(panel, config):
    """Every message up and down of three passes, per client name."""
    setup = set_up(panel, config)
    state = initial_state(setup, config)
    windows = stack_windows(setup, 0, setup.num_rounds)
    passes = []
    for _ in range(3):
        state, exchanged = one_pass(setup.params, state, windows)
        passes.append(jax.device_get(exchanged))
    return {
        name: [leaf[:, m] for leaf in jax.tree.leaves(passes)] for m, name in enumerate(setup.names)
    }


@pytest.mark.parametrize("newcomer", ["a_first", "z_last"])
def test_uncoupled_client_changes_no_message(newcomer):
    panel, _ = fg.simulate(3, 300, seed=2)
    extra, _ = fg.simulate(clients=["x"], num_steps=300, edges=0, seed=9)
    arrays = {client.name: client.values for client in panel}
    larger = fg.Panel.from_arrays({**arrays, newcomer: extra["x"].values})
    pairs = tuple((a, b) for a in panel.names for b in panel.names if a != b)
    config = formula_config(state_dim=2, couplings=pairs)
    before, after = messages_of(panel, config), messages_of(larger, config)
    for name in panel.names:
        for old, new in zip(before[name], after[name], strict=True):
            np.testing.assert_array_equal(old, new)
    assert np.isfinite(after[newcomer][0]).all()


def test_restricted_couplings_stay_zero_and_others_learn():
    panel, _ = fg.simulate(3, 300, seed=3)
    config = fg.RunConfig(state_dim=2, passes=2, couplings=(("client1", "client2"),), test="none")
    with pytest.warns(ConvergenceWarning):
        result = fg.fit(panel, config)
    strengths = result.edges(estimate="fedgc").set_index(["cause", "effect"])["strength"]
    assert strengths[("client1", "client2")] > 0
    assert (strengths.drop(("client1", "client2")) == 0).all()


@pytest.mark.slow  # 40 000 passes over the data
def test_seed_and_prior_matter_only_at_the_start():
    """Different priors end in the same place: the limit does not depend on them."""
    panel, _ = fg.simulate(2, 300, sensor_dims=4, measurement_var=3.0, seed=4)
    common = {
        "state_dim": 2,
        "window": "full",
        "passes": 20_000,
        "tolerance": 1e-7,
        "augmentation_ridge": 0.05,
        "granger_ridge": 0.05,
        "test": "none",
    }
    runs = [
        fg.fit(panel, formula_config(seed=seed, prior=prior, granger_prior_scale=scale, **common))
        for seed, prior, scale in ((0, "normal", 0.1), (1, "laplace", 1.0))
    ]
    first = fg.fit(panel, formula_config(**{**common, "passes": 1, "tolerance": 0}, seed=0))
    assert np.abs(first.granger - runs[0].granger).max() > 1e-3
    for run in runs[1:]:
        np.testing.assert_allclose(run.granger, runs[0].granger, atol=1e-6)


def test_segments_are_never_joined():
    """Two segments in one panel: no pair across the gap, and the filter starts anew."""
    panel, _ = fg.simulate(2, 200, seed=5)
    time = np.arange(200)
    time[120:] += 50
    gapped = fg.Panel(panel.clients, time)
    setup = set_up(gapped, formula_config(state_dim=2))
    for stream in setup.client_data:
        assert not stream.has_next[119]
        assert stream.has_next[:119].all()
        tail = stream._replace(values=stream.values[120:])
        alone = set_up(gapped.slice(120, 200), formula_config(state_dim=2), models_of(setup))
        restarted = next(s for s in alone.client_data if s.name == tail.name)
        np.testing.assert_allclose(stream.filtered_states[120:], restarted.filtered_states)


def test_training_is_deterministic():
    panel, _ = fg.simulate(2, 200, seed=6)
    config = formula_config(state_dim=2, passes=2)
    setup = set_up(panel, config)
    finals = [list(train(setup, config))[-1][0].state for _ in range(2)]
    jax.tree.map(np.testing.assert_array_equal, finals[0], finals[1])


def pairs_of(result):
    return zip(result.edges()["cause"], result.edges()["effect"], strict=True)


def models_of(setup):
    return {stream.name: stream.model for stream in setup.client_data}
