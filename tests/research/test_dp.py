"""The figure `dp`: its loop is the learner's, its private edges are those of a run."""

import dataclasses
import warnings

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.linalg

import fedgranger as fg
from fedgranger.inference.infer import infer
from fedgranger.runtime.fitting import fit_panel
from fedgranger.runtime.inprocess import run_rounds, stack_windows
from fedgranger.runtime.setup import initial_state
from fedgranger_research.reproduction import dp
from fedgranger_research.reproduction.noisy_training import (
    NoiseSizes,
    block_21,
    prepare,
    train_with_noise,
)
from fedgranger_research.reproduction.private_edges import (
    PrivateEdges,
    client_sides,
    own_models,
    sent_states,
)


def test_without_noise_it_is_the_learner():
    setup, config, _ = prepare(0, 50)
    windows = stack_windows(setup, 0, setup.num_rounds)
    none = NoiseSizes(jnp.zeros(1), jnp.zeros(1))
    found = train_with_noise(setup, config, windows, none, 2, seed=0)
    expected, _ = run_rounds(setup.params, initial_state(setup, config), windows)
    for draw in range(2):
        np.testing.assert_allclose(
            found.server.granger_row[0, draw], expected.server.granger_row, rtol=1e-12
        )
        np.testing.assert_allclose(
            found.clients.augmentation[0, draw], expected.clients.augmentation, rtol=1e-12
        )


@pytest.mark.parametrize("way", ["up", "down"])
def test_noise_goes_where_it_is_said(way):
    """One round: noise up moves both, noise down moves θ alone; draws differ."""
    setup, config, _ = prepare(0, 50)
    windows = stack_windows(setup, 0, 1)
    sizes = NoiseSizes(*(jnp.array([0.0, 1.0 if way == name else 0.0]) for name in ("up", "down")))
    found = train_with_noise(setup, config, windows, sizes, 3, seed=0)
    blocks, theta = block_21(found), np.asarray(found.clients.augmentation)[:, :, 1]
    assert (blocks[0] == blocks[0, 0]).all()
    assert len(np.unique(theta[1, :, 0, 0])) == 3
    assert len(np.unique(blocks[1, :, 0, 0])) == (3 if way == "up" else 1)


def test_declared_states_have_their_true_size():
    _, truth = fg.simulate(6, 10, edges=9, seed=0)
    P = scipy.linalg.solve_discrete_lyapunov(truth.transition, truth.process_cov)
    for name, model in own_models(truth).items():
        found = scipy.linalg.solve_discrete_lyapunov(model.self_transition, model.process_cov)
        np.testing.assert_allclose(found, P[truth.rows(name), truth.rows(name)], rtol=1e-8)


def test_states_look_small_to_a_model_that_knows_no_others():
    """So more of them are clipped; sizes that are declared as well would hide it."""
    clipped = {
        models: PrivateEdges(1, 400, models, "debiased", (3000.0,), ("event",)).run()
        for models in ("declared", "declared, A_mm alone")
    }
    shares = [table["clipped_share"].max() for table in clipped.values()]
    assert shares[0] < 0.01 < shares[1]


@pytest.mark.parametrize("privacy", ["none", "to-server"])
def test_tests_are_those_of_a_run(privacy):
    panel, truth = fg.simulate(6, 400, edges=9, seed=5)
    options = {"solver": "none", "test": "debiased", "period": "none", "privacy": privacy}
    config = fg.RunConfig(**options, epsilon=3000.0, seed=2)
    models = own_models(truth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = fit_panel(panel, config, models=models).inference
        found = infer(sent_states(panel, client_sides(panel, config, models)), config)
    assert expected is not None
    keys = ["cause", "effect"]
    np.testing.assert_array_equal(
        found.edges.sort_values(keys)["p_value"], expected.edges.sort_values(keys)["p_value"]
    )


def test_too_much_noise_is_refused_and_counted():
    found = PrivateEdges(0, 400, "declared", "debiased", (0.1,), ("event",)).run()
    clean, noisy = (found[found["epsilon"] == value].iloc[0] for value in (np.inf, 0.1))
    assert not clean["refused"]
    assert noisy["refused"]
    assert noisy["reason"]
    assert np.isnan(noisy["edge_power"])
    assert noisy["added_noise"] > 100


def made_up(setting):
    """Tables like the settings' own."""
    if isinstance(setting, PrivateEdges):
        cells = [("none", np.inf)]
        cells += [(near, eps) for near in setting.neighbours for eps in setting.epsilons]
        rows = []
        for neighbours, epsilon in cells:
            refused = epsilon < 10 or (epsilon < 30 and setting.seed % 2 == 0)
            value = np.nan if refused else 0.25
            rows.append(
                {
                    **{name: getattr(setting, name) for name in ("seed", "num_steps", "models")},
                    "test": setting.test,
                    "neighbours": neighbours,
                    "epsilon": epsilon,
                    "added_noise": 0.0 if epsilon == np.inf else 1 / epsilon,
                    "clipped_share": 0.0,
                    "refused": refused,
                    "reason": "",
                    **dict.fromkeys(("edge_size", "edge_power", "f1", "fdr", "untested"), value),
                }
            )
        return pd.DataFrame(rows)
    rows = [
        (setting.seed, way, sd, name, (setting.seed + 1) * (1 + sd**2))
        for way in ("up", "down")
        for sd in (0.0, *setting.noise_sds)
        for name in (*dp.INFLATED, "trained_granger_cov", "granger_error", "limit_error")
    ]
    rows += [
        (setting.seed, way, sd, name, (setting.seed + 1) * sd**2)
        for name in ("drawn_granger_cov", "given_granger_cov")
        for way in ("up", "down")
        for sd in (0.0, *setting.noise_sds)
    ]
    return pd.DataFrame(rows, columns=["seed", "direction", "noise_sd", "quantity", "value"])


@pytest.mark.slow  # a whole study, 4 s
def test_table_counts_refusals_and_lists_inflation(tmp_path):
    table = dp.collect([made_up(setting) for setting in dp.settings()])
    text = dp.markdown(table)
    assert "nan" not in text
    lines = text.splitlines()
    (refused,) = [x for x in lines if x.startswith("| 2000, declared, debiased, event | 25 |")]
    assert "| 10 of 20 |" in refused
    assert "0.250 ± 0.000" in refused
    (none,) = [x for x in lines if x.startswith("| 2000, declared, debiased, event | 4 |")]
    assert "| - | - | - | 20 of 20 |" in none
    up = [x for x in lines if x.startswith("| 0.3 |")]
    assert up[0].split(" | ")[2:8] == ["1.09", "0.09", "0.09", "1.09", "1.09", "1.09"]
    dp.ITEM.draw(tmp_path, table)
    assert (tmp_path / "dp.png").exists()


def test_settings_are_the_study():
    sigmas = dp.training_settings()[0].noise_sds
    assert (min(sigmas), max(sigmas)) == (1e-6, 1.0)
    private = dp.private_settings()
    assert {setting.num_steps for setting in private} == {2000, 50_000}
    assert len({dataclasses.astuple(setting) for setting in private}) == len(private)
    for setting in private:
        assert (
            setting.test == "auto"
            or sum(
                dataclasses.replace(other, seed=0) == dataclasses.replace(setting, seed=0)
                for other in private
            )
            >= 20
        )
