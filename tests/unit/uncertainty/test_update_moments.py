"""Averages over rounds against matrices formed with kron, and against the learner itself."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedgranger as fg
from fedgranger import rounds
from fedgranger.client.augment import AugmentState
from fedgranger.errors import UnstableRecursionError
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.runtime.inprocess import stack_windows
from fedgranger.runtime.row_inputs import row_params, row_windows, run_noise
from fedgranger.runtime.setup import set_up
from fedgranger.server.granger import ServerState
from fedgranger.uncertainty import update_moments as module
from fedgranger.uncertainty.steady_state import scores
from fedgranger.uncertainty.update_moments import gain_noise, split_parameters, update_moments
from tests.one_row import dense_rounds, make_row
from tests.reference.linear_equations import solve

VARIANTS = {
    "one-step": {},
    "three-steps": {"W": 3},
    "missing": {"missing": True},
    "three-steps-missing": {"W": 3, "missing": True},
    "no-ridge": {"ridge": (0.0, 0.0)},
    "scalar": {"p": 1, "d": 1, "q": 1},
    "wide": {"p": 1, "d": 2, "q": 4, "num_rounds": 60},
}
every_variant = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())


@every_variant
def test_averages_vs_kron(options):
    row = make_row(**options)
    found = update_moments(*row)
    gains, pulls = dense_rounds(row)
    scale = found.scale
    np.testing.assert_allclose(
        found.gain, scale[:, None] * gains.mean(axis=0) / scale, rtol=1e-12, atol=1e-15
    )
    np.testing.assert_allclose(found.drift, scale * pulls.mean(axis=0), rtol=1e-12, atol=1e-15)
    assert found.num_rounds == len(gains)


@pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])
def test_noise_enters_the_gain_as_its_second_moment(full):
    """E over ±σ_j on each sensor of the dense gain: exact, since it is quadratic in the noise."""
    row = make_row(noise=0.4, num_rounds=5)
    sigma = np.sqrt(np.asarray(row.windows.noise)[0, 0])
    gains = [
        dense_rounds(row, noise=(np.array(signs) * sigma)[None])[0]
        for signs in np.ndindex(2, 2, 2)
        for signs in [2 * np.array(signs) - 1]
    ]
    if full:
        as_matrix = row.windows.noise[..., None] * jnp.eye(3)[None, None]
        row = row._replace(windows=dataclasses.replace(row.windows, noise=as_matrix))
    found = update_moments(*row)
    expected = np.mean(gains, axis=(0, 1))
    scaled = found.scale[:, None] * expected / found.scale
    np.testing.assert_allclose(found.gain, scaled, rtol=1e-12, atol=1e-15)


@every_variant
def test_gain_is_symmetric_and_positive_semidefinite(options):
    gain = update_moments(*make_row(**options)).gain
    np.testing.assert_allclose(gain, gain.T, rtol=0, atol=1e-16)
    assert np.linalg.eigvalsh(gain)[0] > -1e-15


@every_variant
def test_scores_vs_kron(options):
    row = make_row(**options)
    p, d, q = update_moments(*row).shape
    rng = np.random.default_rng(3)
    theta, granger = rng.standard_normal((p, d)), rng.standard_normal((p, q))
    gains, pulls = dense_rounds(row)
    expected = pulls - gains @ np.concatenate([theta.ravel(), granger.ravel()])
    found = scores(*row, theta, granger)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


@every_variant
def test_scores_average_to_zero_at_the_fixed_point(options):
    row = make_row(**options)
    averages = update_moments(*row)
    x = np.linalg.solve(averages.gain, averages.drift) / averages.scale
    found = scores(*row, *split_parameters(x, averages.shape))
    assert np.abs(found).max() > 1e-3
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-14)


def test_parameters_are_ordered_row_by_row():
    x = np.arange(10.0)
    theta, granger = split_parameters(x, (2, 3, 2))
    np.testing.assert_array_equal(theta, [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(np.concatenate([theta.ravel(), granger.ravel()]), x)


@every_variant
def test_gain_noise_vs_dense_map(options):
    row = make_row(**options)
    averages = update_moments(*row)
    scaled = averages.scale[:, None] * dense_rounds(row)[0] / averages.scale
    delta = scaled - scaled.mean(axis=0)
    root = np.random.default_rng(1).standard_normal((len(delta[0]), len(delta[0])))
    sigma = root @ root.T
    expected = np.mean([change @ sigma @ change for change in delta], axis=0)
    found = gain_noise(*row, averages)(sigma)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max())
    assert np.linalg.eigvalsh(found)[0] > -1e-12


# slow: windows of 3 compile shapes of their own
@pytest.mark.parametrize("W", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_sampled_rounds_are_near_all_rounds(W, monkeypatch):
    row = make_row(num_rounds=1500, W=W)
    averages = update_moments(*row)
    all_rounds = gain_noise(*row, averages)(np.eye(10))
    monkeypatch.setattr(module, "MAX_ROUNDS", 500)
    monkeypatch.setattr(module, "MAX_LONG_ROUNDS", 500)
    sampled = gain_noise(*row, averages)(np.eye(10))
    assert not np.array_equal(all_rounds, sampled)
    assert np.trace(sampled) == pytest.approx(np.trace(all_rounds), rel=0.25)
    assert np.linalg.eigvalsh(sampled)[0] > 0  # a variance, not a difference of two estimates


@pytest.mark.parametrize("window", [1, 7, "full"])
def test_fixed_point_vs_learner(window):
    """K̄⁻¹b̄ solves the reference equations, and a full-batch round of the learner stays there."""
    ridge = 0.05
    panel, _ = fg.simulate(3, 211, state_dims=2, sensor_dims=4, measurement_var=2.0, seed=2)
    config = fg.RunConfig(
        window=window,
        state_dim=2,
        local_step_size=1e-3,
        feedback_step_size=2e-3,
        server_step_size=3e-3,
        augmentation_ridge=ridge,
        granger_ridge=ridge,
    )
    setup = set_up(panel, config)
    none = run_noise(setup, dict.fromkeys(setup.names, 0.0))
    params = row_params(setup, config, none)
    windows = jax.device_get(row_windows(setup, none, 0, setup.num_rounds, np.arange(3)))
    params = jax.device_get(params)
    thetas, rows = [], []
    for m in range(3):
        averages = update_moments(
            jax.tree.map(lambda leaf, m=m: jax_array(leaf[m]), params),
            jax.tree.map(lambda leaf, m=m: jax_array(leaf[:, m]), windows),
        )
        x = np.linalg.solve(averages.gain, averages.drift) / averages.scale
        theta, granger = split_parameters(x, averages.shape)
        expected = solve(setup, m, ridge)
        np.testing.assert_allclose(theta.T.reshape(-1), expected[:8], rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(granger.T.reshape(-1), expected[8:], rtol=1e-8, atol=1e-12)
        thetas.append(theta)
        rows.append(np.insert(granger, [2 * m, 2 * m], 0.0, axis=1))
    state = rounds.RoundState(
        AugmentState(jnp.asarray(np.stack(thetas))), ServerState(jnp.asarray(np.stack(rows)))
    )
    whole = set_up(panel, dataclasses.replace(config, window="full"))
    batch = jax.tree.map(
        lambda leaf: jax_array(leaf[0]), jax.device_get(stack_windows(whole, 0, 1))
    )
    moved, _ = jax.jit(rounds.step)(whole.params, state, batch)
    np.testing.assert_allclose(
        moved.clients.augmentation, state.clients.augmentation, rtol=0, atol=1e-14
    )
    np.testing.assert_allclose(
        moved.server.granger_row, state.server.granger_row, rtol=0, atol=1e-14
    )


@pytest.mark.parametrize(
    ("sizes", "name"),
    [((0.02, 0.0, 0.05), "feedback_step_size"), ((0.02, 0.03, 0.0), "server_step_size")],
)
def test_zero_step_size_is_refused(sizes, name):
    with pytest.raises(UnstableRecursionError, match=f"{name} is 0.*use a positive one"):
        update_moments(*make_row(sizes=sizes))
