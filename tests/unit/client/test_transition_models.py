"""Fitted transitions: better than a line where there is a bend, the line where there is none."""

import builtins

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger.client import gaussian_process
from fedgranger.client.gaussian_process import StateDependentCov
from fedgranger.client.transition_models import fit_transition
from fedgranger.errors import ConfigError, DataError
from tests.nonlinear_systems import curved, straight, trajectory

T = 700
STARTS = np.arange(T) == 0
ALL = np.ones(T, dtype=bool)


def fit(kind, states, starts=STARTS, observed=ALL):
    return fit_transition(kind, states, starts, observed, jax.random.key(1))


def error(found, truth, states):
    """Root mean squared error of a function on states that it has not seen."""
    return float(np.sqrt(((np.asarray(jax.vmap(found)(states)) - truth(states)) ** 2).mean()))


@pytest.fixture(scope="module")
def bent():
    return trajectory(curved, T, 0.1, 0), trajectory(curved, 1000, 0.1, 1)


# a network is slow, 3 s
@pytest.mark.parametrize("kind", [pytest.param("network", marks=pytest.mark.slow), "gp"])
def test_known_bend_is_recovered(bent, kind):
    """Held-out error of f at most a third of the line's; 0.10 for the line."""
    states, unseen = bent
    line = error(fit("linear", states), curved, unseen)
    assert line > 0.08
    assert error(fit(kind, states), curved, unseen) < line / 3


@pytest.mark.parametrize("kind", ["network", "gp"])
def test_linear_data_keep_the_linear_fit(kind):
    states = trajectory(straight, T, 0.5, 2)
    found, line = fit(kind, states), fit("linear", states)
    at = jnp.array(states[::50])
    np.testing.assert_allclose(jax.vmap(found)(at), jax.vmap(line)(at), atol=1e-12)


@pytest.mark.slow  # compiles for shapes of its own
def test_process_of_few_pairs_is_tinygps(bent):
    """Posterior mean and variance against the library's own, on at most 500 pairs."""
    from tinygp import GaussianProcess

    few = 120
    found = fit("gp", bent[0][:few], STARTS[:few], ALL[:few])
    output = found.outputs[1]
    assert len(output.points) == few - 1
    K = np.asarray(output.kernel(output.points, output.points))
    noise_var = np.trace(np.linalg.inv(np.asarray(output.explained)) - K) / len(K)
    values = np.linalg.solve(np.asarray(output.explained), np.asarray(output.weights))
    process = GaussianProcess(output.kernel, output.points, diag=noise_var)
    places = jnp.array(np.random.default_rng(0).standard_normal((5, 2)))
    theirs = process.condition(jnp.array(values), places).gp
    ours = np.asarray(jax.vmap(output.moments)(places))
    np.testing.assert_allclose(ours[:, 0], theirs.mean, atol=1e-7)
    np.testing.assert_allclose(ours[:, 1], theirs.variance, atol=1e-7)


@pytest.mark.slow  # compiles for shapes of its own
def test_inducing_points_stand_for_all_pairs(bent, monkeypatch):
    """With more pairs than are used exactly, mean and variance hardly change."""
    sparse = fit("gp", bent[0])
    monkeypatch.setattr(gaussian_process, "EXACT_PAIRS", 10_000)
    exact = fit("gp", bent[0])
    assert len(sparse.outputs[1].points) <= gaussian_process.MOST_INDUCING
    at = jnp.array(bent[0][::20])
    np.testing.assert_allclose(jax.vmap(sparse)(at), jax.vmap(exact)(at), atol=2e-4)
    np.testing.assert_allclose(
        jax.vmap(sparse.variances)(at), jax.vmap(exact.variances)(at), atol=2e-5
    )
    far = jnp.array([10.0, 10.0])
    near_var, far_var = sparse.variances(at[0])[1], sparse.variances(far)[1]
    assert far_var > 10 * near_var  # far from the data it knows that it does not know
    cov = StateDependentCov(0.01 * jnp.eye(2), sparse)(far)
    np.testing.assert_allclose(cov[1, 1], 0.01 + far_var)


def test_only_consecutive_observed_steps_are_used():
    states = trajectory(straight, T, 0.5, 3)
    whole = fit("linear", states[:300], STARTS[:300], ALL[:300])
    broken, starts, observed = states.copy(), STARTS.copy(), ALL.copy()
    broken[301:] = 1e6
    starts[302], observed[[301]] = True, False
    observed[303:] = False
    found = fit("linear", broken[:400], starts[:400], observed[:400])
    np.testing.assert_allclose(found.matrix, whole.matrix, atol=0.02)


def test_targets_free_the_fit_from_noise_in_the_states():
    """Noisy second states do not flatten f; noisy first ones do."""
    states = trajectory(straight, T, 0.5, 4)
    noisy = states + 0.5 * np.random.default_rng(0).standard_normal(states.shape)
    clean = fit_transition("linear", states, STARTS, ALL, targets=noisy)
    flattened = fit("linear", noisy)
    truth = np.array([[0.7, 0.3], [-0.2, 0.6]])
    assert np.abs(np.asarray(clean.matrix) - truth).max() < 0.12
    assert float(flattened.matrix[0, 0]) < 0.6


def test_what_cannot_be_fitted_is_refused(monkeypatch):
    states = trajectory(straight, T, 0.5, 5)
    with pytest.raises(ConfigError, match="unknown transition 'trees'"):
        fit("trees", states)
    with pytest.raises(DataError, match="4 pairs of consecutive complete rows"):
        fit("linear", states[:5], STARTS[:5], ALL[:5])
    with pytest.raises(ConfigError, match="random key"):
        fit_transition("network", states, STARTS, ALL)
    whole = builtins.__import__

    def without(name, *others, **named):
        if name in ("optax", "tinygp"):
            raise ModuleNotFoundError(name)
        return whole(name, *others, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    for kind in ("network", "gp"):
        with pytest.raises(ConfigError, match=r"pip install 'fedgranger\[nonlinear\]'"):
            fit(kind, states)
