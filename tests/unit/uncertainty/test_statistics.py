"""Averages over rounds against matrices formed with kron, and against the learner itself."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedgranger as fg
from fedgranger import rounds
from fedgranger.client.augment import AugmentState
from fedgranger.errors import UnstableRecursionError
from fedgranger.runtime.inprocess import stack_windows
from fedgranger.runtime.rows import row_params, row_windows
from fedgranger.runtime.setup import set_up
from fedgranger.server.granger import ServerState
from fedgranger.uncertainty.inputs import RowParams, RowWindow, row_window
from fedgranger.uncertainty.noise import noise_of
from fedgranger.uncertainty.statistics import collect, flatten, scores, unflatten
from tests.reference import test_fixed_point


class Row(NamedTuple):
    params: RowParams
    windows: RowWindow


def make_row(
    seed=0,
    *,
    p=2,
    d=3,
    q=2,
    num_rounds=40,
    W=1,
    sizes=(0.02, 0.03, 0.05),
    ridge=(0.1, 0.2),
    missing=False,
    noise=0.0,
    memory=0.6,
):
    """One row of autocorrelated, uncentred random data; `missing` takes out a y⁺ and a y."""
    rng = np.random.default_rng(seed)
    params = RowParams(
        jnp.asarray(0.6 * np.eye(p) + 0.2 * rng.standard_normal((p, p))),
        jnp.asarray(rng.standard_normal((d, p))),
        *(jnp.asarray(value) for value in (*sizes, *ridge)),
        jnp.ones(q),
    )
    steps = num_rounds * W

    def series(size, mean):
        out = rng.standard_normal((steps, size))
        for t in range(1, steps):
            out[t] = memory * out[t - 1] + np.sqrt(1 - memory**2) * out[t]
        return out + mean

    y, g = series(d, 0.3 * np.arange(d)), series(q, 0.1)
    targets = 0.5 * y[:, :p] + rng.standard_normal((steps, p))
    is_observed, has_next = np.ones(steps, bool), np.ones(steps, bool)
    if missing:  # step 4 has no y, so step 3 has no y⁺; step 7 has no y⁺ only
        is_observed[4] = has_next[3] = has_next[4] = has_next[7] = False
        y[4] = 0.0
        targets[~has_next] = 0.0
    variances = noise * (1 + np.arange(d))

    def by_round(array):
        return jnp.asarray(array.reshape(num_rounds, W, *array.shape[1:]))

    windows = jax.vmap(row_window, in_axes=(0, 0, 0, 0, 0, 0, None))(
        by_round(y),
        by_round(g),
        by_round(targets),
        by_round(np.tile(variances, (steps, 1))),
        by_round(has_next),
        by_round(is_observed),
        params.coupling,
    )
    return Row(params, windows)


def dense_rounds(row, noise=None):
    """(K, b) of every active round in plain coordinates: x⁺ = x − K x + b, entries row by row.

    `noise` (W, d) is added to the measurements of every round, for quadrature.
    """
    params, windows = row
    A, CA = np.asarray(params.self_transition), np.asarray(params.predicted_observation)
    eta1, eta2, gamma, ridge_theta, ridge_granger = (
        float(value)
        for value in (
            params.local_step_size,
            params.feedback_step_size,
            params.server_step_size,
            params.augmentation_ridge,
            params.granger_ridge,
        )
    )
    p, d = CA.T.shape
    q = len(params.coupling)
    identity = np.eye(p)
    gains, pulls = [], []
    for window in zip(*(np.asarray(leaf) for leaf in jax.tree.leaves(windows)), strict=True):
        y, g, targets, _, paired, observed = window
        if observed.sum() == 0:
            continue
        y = y if noise is None else y + noise
        K = np.diag(np.repeat([2 * eta1 * ridge_theta, 2 * gamma * ridge_granger], [p * d, p * q]))
        b = np.zeros(p * (d + q))
        for t in range(len(y)):
            L = np.zeros((p * (d + q), 2 * p))
            L[: p * d, :p] = np.kron(identity, y[t][:, None])
            L[p * d :, p:] = np.kron(identity, g[t][:, None])
            own, seen = 2 * eta1 * paired[t], 2 * eta2 * observed[t]
            served = 2 * gamma * observed[t]
            N = np.block(
                [[own * CA.T @ CA + seen * A.T @ A, -seen * A.T], [-served * A, served * identity]]
            )
            K = K + L @ N @ L.T
            b[: p * d] += own * np.kron(targets[t], y[t])
        gains.append(K)
        pulls.append(b)
    return np.array(gains), np.array(pulls)


VARIANTS = {
    "one-step": {},
    "three-steps": {"W": 3},
    "missing": {"missing": True},
    "three-steps-missing": {"W": 3, "missing": True},
    "no-ridge": {"ridge": (0.0, 0.0)},
    "scalar": {"p": 1, "d": 1, "q": 1},
}
every_variant = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())


@every_variant
def test_averages_vs_kron(options):
    row = make_row(**options)
    found = collect(*row)
    gains, pulls = dense_rounds(row)
    scale = found.scale
    np.testing.assert_allclose(
        found.gain, scale[:, None] * gains.mean(axis=0) / scale, rtol=1e-12, atol=1e-15
    )
    np.testing.assert_allclose(found.drift, scale * pulls.mean(axis=0), rtol=1e-12, atol=1e-15)
    assert found.num_rounds == len(gains)
    weights = np.asarray(row.windows.observed_weights)
    y, g = np.asarray(row.windows.measurements), np.asarray(row.windows.causes)
    expected = [
        sum(w * np.outer(v, v) for w, v in zip(weights.ravel(), z, strict=True)) / len(gains)
        for z in (y.reshape(-1, y.shape[-1]), g.reshape(-1, g.shape[-1]))
    ]
    np.testing.assert_allclose(found.measurement_moment, expected[0], rtol=1e-12)
    np.testing.assert_allclose(found.cause_moment, expected[1], rtol=1e-12)
    mean = (weights[..., None] * y).sum(axis=(0, 1)) / len(gains)
    np.testing.assert_allclose(found.measurement_mean, mean, rtol=1e-12)


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
    found = collect(*row)
    expected = np.mean(gains, axis=(0, 1))
    scaled = found.scale[:, None] * expected / found.scale
    np.testing.assert_allclose(found.gain, scaled, rtol=1e-12, atol=1e-15)


@every_variant
def test_gain_is_symmetric_and_positive_semidefinite(options):
    gain = collect(*make_row(**options)).gain
    np.testing.assert_allclose(gain, gain.T, rtol=0, atol=1e-16)
    assert np.linalg.eigvalsh(gain)[0] > -1e-15


@every_variant
def test_scores_vs_kron(options):
    row = make_row(**options)
    p, d, q = collect(*row).shape
    rng = np.random.default_rng(3)
    theta, granger = rng.standard_normal((p, d)), rng.standard_normal((p, q))
    gains, pulls = dense_rounds(row)
    expected = pulls - gains @ flatten(theta, granger)
    found = scores(*row, theta, granger)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


@every_variant
def test_scores_average_to_zero_at_the_fixed_point(options):
    row = make_row(**options)
    averages = collect(*row)
    x = np.linalg.solve(averages.gain, averages.drift) / averages.scale
    found = scores(*row, *unflatten(x, averages.shape))
    assert np.abs(found).max() > 1e-3
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-14)


def test_flatten_round_trip():
    x = np.arange(10.0)
    theta, granger = unflatten(x, (2, 3, 2))
    np.testing.assert_array_equal(theta, [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(flatten(theta, granger), x)


@pytest.mark.parametrize("window", [1, 7, "full"])
def test_fixed_point_vs_learner(window):
    """K̄⁻¹b̄ solves the reference equations, and a full-batch round of the learner stays there."""
    ridge = test_fixed_point.RIDGE
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
    none = noise_of(dict.fromkeys(setup.names, np.zeros(4)), setup.names, [4] * 3, 211)
    params = row_params(setup, config, none)
    windows = row_windows(setup, none, 0, setup.num_rounds, np.arange(3))
    thetas, rows = [], []
    for m in range(3):
        averages = collect(
            jax.tree.map(lambda leaf, m=m: leaf[m], params),
            jax.tree.map(lambda leaf, m=m: leaf[:, m], windows),
        )
        x = np.linalg.solve(averages.gain, averages.drift) / averages.scale
        theta, granger = unflatten(x, averages.shape)
        expected = test_fixed_point.solve(setup, m)  # columns stacked
        np.testing.assert_allclose(theta.T.reshape(-1), expected[:8], rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(granger.T.reshape(-1), expected[8:], rtol=1e-8, atol=1e-12)
        thetas.append(theta)
        rows.append(np.insert(granger, [2 * m, 2 * m], 0.0, axis=1))
    state = rounds.RoundState(
        AugmentState(jnp.asarray(np.stack(thetas))), ServerState(jnp.asarray(np.stack(rows)))
    )
    whole = set_up(panel, dataclasses.replace(config, window="full"))
    batch = jax.tree.map(lambda leaf: leaf[0], stack_windows(whole, 0, 1))
    moved, _ = rounds.step(whole.params, state, batch)
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
        collect(*make_row(sizes=sizes))
