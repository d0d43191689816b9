"""Σ∞ against Lyapunov solvers, dense linear systems and closed forms."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.signal

import fedgranger as fg
from fedgranger.linalg.time_weights import Weighting
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.row_inputs import row_params, row_windows, run_noise
from fedgranger.runtime.setup import set_up
from fedgranger.uncertainty.inputs import RowParams
from fedgranger.uncertainty.steady_state import scores, solve_steady_state
from fedgranger.uncertainty.update_moments import gain_noise, update_moments
from tests.one_row import Row, dense_rounds, make_row, make_windows

SIZES = (0.02, 0.03, 0.05)


def scaled_sizes(factor):
    return tuple(factor * size for size in SIZES)


def close(found, expected, share):
    """Largest difference as a share of the largest entry."""
    return np.abs(found - expected).max() <= share * np.abs(expected).max()


def test_cov_vs_lyapunov_at_tiny_step_sizes():
    """White data: S is the noise's covariance, and the random gain adds O(step size)."""
    row = make_row(num_rounds=2000, memory=0.0, sizes=scaled_sizes(1e-4))
    found = solve_steady_state(*row, client="c")
    F = np.eye(10) - dense_rounds(row)[0].mean(axis=0)
    expected = scipy.linalg.solve_discrete_lyapunov(F, found.noise_cov)
    assert close(found.cov, expected, 1e-3)
    noise = scores(*row, found.augmentation, found.granger)
    white = np.diag(np.cov(noise.T, bias=True))
    # each lag adds twice a sample autocorrelation of s.d. 1/sqrt(n)
    share = 5 * 2 * np.sqrt(found.hac_lag / len(noise))
    np.testing.assert_allclose(np.diag(found.noise_cov), white, rtol=share)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"W": 3},
        {"missing": True},
        {"ridge": (0.0, 0.0)},
        {"p": 1, "d": 1, "q": 1},
        {"p": 1, "d": 2, "q": 4},
    ],
    ids=["one-step", "three-steps", "missing", "no-ridge", "scalar", "wide"],
)
def test_cov_vs_dense_linear_system(options):
    """vec Σ = (I − E[F ⊗ F])⁻¹ vec S, in plain coordinates, where the gain's noise matters."""
    row = make_row(num_rounds=200, sizes=SIZES, **options)
    found = solve_steady_state(*row, client="c")
    gains, pulls = dense_rounds(row)
    n = gains.shape[1]
    F = np.eye(n) - gains
    square = np.mean([np.kron(f, f) for f in F], axis=0)
    expected = np.linalg.solve(np.eye(n * n) - square, found.noise_cov.reshape(-1)).reshape(n, n)
    assert close(found.cov, expected, 2e-5)
    without = scipy.linalg.solve_discrete_lyapunov(F.mean(axis=0), found.noise_cov)
    assert not close(found.cov, without, 0.02)
    np.testing.assert_allclose(
        np.concatenate([found.augmentation.ravel(), found.granger.ravel()]),
        np.linalg.solve(gains.mean(axis=0), pulls.mean(axis=0)),
        rtol=1e-8,
    )


def test_covs_are_symmetric_and_positive():
    found = solve_steady_state(*make_row(num_rounds=400, sizes=scaled_sizes(0.3)), client="c")
    for cov in (found.cov, found.trained_cov):
        np.testing.assert_allclose(cov, cov.T, rtol=0, atol=1e-14 * np.abs(cov).max())
        assert np.linalg.eigvalsh(cov)[0] > 0


def constant_gain_row(memory, num_rounds=60_000):
    """y = g = 1, so that the gain is not random; the target is AR(1) of variance 1."""
    rng = np.random.default_rng(5)
    shocks = rng.standard_normal(num_rounds) * np.sqrt(1 - memory**2)
    target = scipy.signal.lfilter([1.0], [1.0, -memory], shocks)
    params = RowParams(
        jnp.array([[0.7]]),
        jnp.array([[1.1]]),
        *(jnp.asarray(value) for value in (0.1, 0.08, 0.12, 0.0, 0.0)),
        jnp.ones(1),
    )
    ones, flags = np.ones((num_rounds, 1, 1)), np.ones((num_rounds, 1), bool)
    windows = make_windows(
        ones,
        ones,
        target[:, None, None],
        np.zeros((num_rounds, 1, 1)),
        flags,
        flags,
        params.coupling,
    )
    return Row(params, windows), target


@pytest.mark.parametrize("memory", [0.0, 0.5, -0.5, 0.8])
def test_autocorrelated_noise_vs_augmented_lyapunov(memory):
    """(x, target) is a VAR(1) here, so Σ∞ is known: S must weigh lag h by powers of F̄."""
    row, target = constant_gain_row(memory)
    found = solve_steady_state(*row, client="c")
    F = np.eye(2) - dense_rounds(Row(row.params, jax.tree.map(lambda x: x[:1], row.windows)))[0][0]
    push = np.array([[2 * 0.1], [0.0]])
    joint = np.block([[F, push], [np.zeros((1, 2)), np.array([[memory]])]])
    shocks = np.zeros((3, 3))
    shocks[2, 2] = (1 - memory**2) * target.var()
    expected = scipy.linalg.solve_discrete_lyapunov(joint, shocks)[:2, :2]
    # autocovariances of 60 000 steps are known to about 1 % each
    assert close(found.cov, expected, 0.06)
    plain = scipy.linalg.solve_discrete_lyapunov(F, push @ push.T)
    assert close(found.cov, plain, 0.06) == (memory == 0)


def test_one_long_pass_is_the_steady_state():
    row = make_row(num_rounds=1500, sizes=scaled_sizes(0.3))
    found = solve_steady_state(*row, client="c")
    assert found.moments.num_rounds > 20 * found.stability.time_constant
    assert close(found.trained_cov, found.cov, 1e-10)


def test_a_short_pass_adds_up_its_noise():
    """Few rounds of one pass: S per round, added up."""
    row = make_row(num_rounds=20, sizes=scaled_sizes(1e-6))
    found = solve_steady_state(*row, client="c")
    assert close(found.trained_cov, 20 * found.noise_cov, 1e-3)
    assert np.trace(found.trained_cov) < 1e-3 * np.trace(found.cov)


def test_many_passes_tend_to_the_full_batch_sandwich():
    """Tiny steps, many passes: the full-batch fixed point, whose covariance is K̄⁻¹ S K̄⁻¹ / T."""
    row = make_row(num_rounds=300, sizes=scaled_sizes(1e-6))
    found = solve_steady_state(*row, client="c", passes=10**9)
    # plain coordinates: x* = K⁻¹ b with K not symmetric
    inverse = np.linalg.inv(dense_rounds(row)[0].mean(axis=0))
    expected = inverse @ found.noise_cov @ inverse.T / 300
    assert close(found.trained_cov, expected, 1e-3)
    # an iterate on fresh data would average over far more than 300 rounds at these step sizes
    assert np.trace(found.trained_cov) > 10 * np.trace(found.cov)


def test_passes_vs_simulated_repetition():
    """P passes over the same white noise, linear recursion: exact by summing the filter."""
    row, _ = constant_gain_row(0.0, num_rounds=40)
    F, passes = np.eye(2) - dense_rounds(row)[0][0], 3
    found = solve_steady_state(*row, client="c", passes=passes)
    total = np.zeros((2, 2))
    for age in range(40):  # the noise of one time step enters once per pass
        response = sum(np.linalg.matrix_power(F, age + 40 * k) for k in range(passes))
        total += response @ found.noise_cov @ response.T
    assert close(found.trained_cov, total, 1e-8)


def test_shapes_and_blocks_of_the_covariances():
    p, d, q = 2, 3, 4
    row = make_row(p=p, d=d, q=q, num_rounds=300, sizes=scaled_sizes(0.2))
    found = solve_steady_state(*row, client="c")
    split = p * d
    assert found.augmentation.shape == (p, d)
    assert found.granger.shape == (p, q)
    assert found.cov.shape == found.trained_cov.shape == (p * (d + q), p * (d + q))
    np.testing.assert_array_equal(found.granger_cov(), found.cov[split:, split:])
    np.testing.assert_array_equal(
        found.granger_cov(trained=True), found.trained_cov[split:, split:]
    )


@pytest.mark.slow  # two recursions over 4000 rounds
def test_propagation_forgets_the_prior():
    """Prior variances 1e-6 and 1 end within 1 % of each other after 10 time constants."""
    panel, _ = fg.simulate(2, 4001, state_dims=1, sensor_dims=2, measurement_var=1.0, seed=1)
    config = fg.RunConfig(
        state_dim=1,
        state_model="ppca",
        local_step_size=0.02,
        feedback_step_size=0.02,
        server_step_size=0.02,
        augmentation_ridge=0.05,
        granger_ridge=0.05,
    )
    setup = set_up(panel, config)
    none = run_noise(setup, dict.fromkeys(setup.names, 0.0))
    params = row_params(setup, config, none)
    windows = row_windows(setup, none, 0, setup.num_rounds, np.arange(2))
    for m in range(2):
        own = solve_steady_state(
            jax.tree.map(lambda leaf, m=m: leaf[m], params),
            jax.tree.map(lambda leaf, m=m: leaf[:, m], windows),
            client=setup.names[m],
        )
        assert 10 * own.stability.time_constant < setup.num_rounds
    ends, starts = [], []
    for scale in (1e-3, 1.0):
        priors = {"augmentation_prior_scale": scale, "granger_prior_scale": scale}
        run = propagate(setup, dataclasses.replace(config, **priors), num_checkpoints=1)
        ends.append(run.final)
        starts.append(run.table["total"].to_numpy()[0])
    assert starts[1] > 1e5 * starts[0]
    for name in setup.names:
        for quantity in ("augmentation_cov", "granger_cov", "granger_augmentation_cov"):
            small, large = (getattr(end[name], quantity) for end in ends)
            assert close(small, large, 0.01), (name, quantity)
            assert np.abs(large).max() > 0


def test_equal_weights_are_the_stationary_state():
    """With λ → 0 the tracked moments are the stationary ones."""
    for row in (make_row(num_rounds=60), make_row(num_rounds=40, W=3, missing=True)):
        num_rounds = len(row.windows.measurements)
        plain = solve_steady_state(*row, client="c")
        slow = Weighting("ewma", 1e14).weights(np.arange(num_rounds), num_rounds - 1)
        found = solve_steady_state(*row, client="c", weights=slow)
        for name in ("augmentation", "granger", "cov", "trained_cov", "noise_cov"):
            expected = getattr(plain, name)
            assert close(getattr(found, name), expected, 1e-10), name


def test_moments_of_a_window_are_those_of_its_rounds():
    row = make_row(num_rounds=80)
    weights = Weighting("window", 30).weights(np.arange(80), 79)
    inside = Row(row.params, jax.tree.map(lambda leaf: leaf[50:], row.windows))
    found, expected = update_moments(*row, weights), update_moments(*inside)
    np.testing.assert_allclose(found.gain, expected.gain, atol=1e-13)
    np.testing.assert_allclose(found.drift, expected.drift, atol=1e-13)
    assert found.num_rounds == expected.num_rounds == 30
    sigma = np.cov(np.random.default_rng(0).normal(size=(10, 40)))
    whole = gain_noise(*row, found, weights)(sigma)
    np.testing.assert_allclose(whole, gain_noise(*inside, expected)(sigma), atol=1e-12)


def test_tracked_steady_state_follows_a_change():
    """Where the causes double, Â* halves; a window after the change shows it, the record not."""
    row = make_row(num_rounds=400, memory=0.0)
    doubled = np.where(np.arange(400) >= 200, 2.0, 1.0)[:, None, None]
    windows = dataclasses.replace(row.windows, causes=row.windows.causes * doubled)
    inside = jax.tree.map(lambda leaf: leaf[250:], windows)
    weights = Weighting("window", 150).weights(np.arange(400), 399)
    found = solve_steady_state(row.params, windows, client="c", weights=weights)
    alone = solve_steady_state(row.params, inside, client="c")
    assert close(found.granger, alone.granger, 1e-10)
    assert not close(
        solve_steady_state(row.params, windows, client="c").granger, alone.granger, 0.1
    )
