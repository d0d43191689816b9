"""Error covariances of a nonlinear client's messages: linear formulas, and Monte Carlo."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger.client.extended_kalman import NonlinearModel, filter_nonlinear
from fedgranger.uncertainty.inputs import RowParams, row_window
from fedgranger.uncertainty.mean_recursion import LastStep
from fedgranger.uncertainty.quantities import quantities
from fedgranger.uncertainty.recursion import advance_rounds, prior_state
from fedgranger.uncertainty.state_errors import augmentation_covs, state_error_covs
from fedgranger.uncertainty.target_noise import target_noise_cov

P, D, Q_DIM = 2, 4, 2
ETA1, ETA2, RIDGE = 0.01, 0.02, 0.1


def row(rng, rounds):
    """One row of the linear recursion with windows of one step: constants, means of y, Â's g."""
    A, C = 0.8 * np.eye(P) + 0.1 * rng.standard_normal((P, P)), rng.standard_normal((D, P))
    numbers = (ETA1, ETA2, 0.0, RIDGE, 0.0)
    params = RowParams(
        *map(jnp.array, (A, C @ A, *numbers, np.ones(Q_DIM))),
    )
    return params, A, C, rng.standard_normal((rounds, D))


def windows(params, y, noise):
    """Rounds of one step each for a single row: leading axes (round, row)."""
    n = len(y)
    flags = jnp.ones((n, 1, 1), dtype=bool)
    return row_window(
        jnp.array(y)[:, None, None],
        jnp.zeros((n, 1, 1, Q_DIM)),
        jnp.zeros((n, 1, 1, P)),
        jnp.broadcast_to(jnp.array(noise), (n, 1, 1, D)),
        flags,
        flags,
        jnp.ones((n, 1, Q_DIM)),
    )


@pytest.fixture(scope="module")
def linear():
    rng = np.random.default_rng(0)
    params, A, C, y = row(rng, 6)
    variances = rng.uniform(0.5, 1.5, (1, P, D))
    theta = rng.standard_normal((P, D))
    state = prior_state(
        jnp.array(theta)[None],
        jnp.zeros((1, P, Q_DIM)),
        jnp.array(variances),
        jnp.zeros((1, P, Q_DIM)),
        groups=1,
        split=False,
    )
    return params, A, C, y, theta, state


def of_rows(params):
    return jax.tree.map(lambda leaf: leaf[None], params)


@pytest.mark.slow  # compiles for shapes of its own
def test_with_the_state_given_it_is_the_linear_formula(linear):
    """P = 0 (assumption A1): Σ_h of `quantities`, noise and prior of θ included."""
    params, _, C, y, theta, state = linear
    noise = np.array([0.1, 0.2, 0.3, 0.4])
    mean, cov = jax.tree.map(lambda leaf: leaf[0], (state.mean, state.cov))
    first = jax.tree.map(lambda leaf: leaf[0, 0], windows(params, y, noise))
    expected = quantities(params, mean, cov, first).state_cov
    found = state_error_covs(
        jnp.zeros((1, P, P)),
        jnp.array(C)[None],
        jnp.diag(jnp.array(noise)),
        jnp.array(y[:1]),
        jnp.ones((1, D), dtype=bool),
        jnp.array(theta),
        cov.augmentation,
    )
    np.testing.assert_allclose(found.augmented_covs[0], expected, rtol=1e-10)


def path(linear, covs, R, initial):
    _, A, C, y, _, _ = linear
    n = len(y)
    stacked = [jnp.broadcast_to(jnp.array(X), (n, *np.shape(X))) for X in (A, C, covs)]
    has_next = jnp.arange(n) < n - 1
    steps = (ETA1, ETA2, RIDGE)
    return augmentation_covs(initial, jnp.array(y), has_next, *stacked, jnp.array(R), *steps)


@pytest.mark.slow  # compiles for shapes of its own
def test_prior_of_the_augmentation_shrinks_as_in_the_linear_recursion(linear):
    """Without noise both are HΣHᵀ; the server's Â stays (its step size is 0)."""
    params, _, _, y, _, state = linear
    end = advance_rounds(of_rows(params), state, windows(params, y[:-1], np.zeros(D)))
    found = path(linear, np.zeros((P, P)), np.zeros((D, D)), state.cov.augmentation[0])
    np.testing.assert_allclose(found[-1], end.cov.augmentation[0], rtol=1e-10, atol=1e-12)


def test_noise_of_a_target_enters_as_in_the_linear_recursion(linear):
    """The regressor before it having none."""
    params, _, _, y, _, _ = linear
    V = np.array([0.1, 0.2, 0.3, 0.4])
    last = LastStep(jnp.ones(()), jnp.array(y[0]), jnp.zeros(D))
    expected = target_noise_cov(params, last, jnp.array(V))
    found = path(linear, np.zeros((P, P)), np.diag(V), jnp.zeros((P, D, P, D)))
    np.testing.assert_allclose(found[1], expected, rtol=1e-10, atol=1e-14)


def test_posterior_of_the_state_enters_through_the_innovation(linear):
    """Against Kronecker products, P = 0.3 I."""
    _, A, C, y, _, _ = linear
    R, predicted = 0.2 * np.eye(D), 0.3 * np.eye(P)
    M, S = C @ A, C @ predicted @ C.T + R
    H_N = 2 * ETA1 * M.T @ M + 2 * ETA2 * A.T @ A
    cov = np.zeros((P * D, P * D))  # of vec, columns stacked
    for y_t in y[:-1]:
        H = (1 - 2 * ETA1 * RIDGE) * np.eye(P * D) - np.kron(np.outer(y_t, y_t), H_N)
        G = 2 * ETA1 * np.kron(y_t[:, None], M.T)
        cov = H @ cov @ H.T + G @ S @ G.T
    found = path(linear, predicted, R, jnp.zeros((P, D, P, D)))[-1]
    by_columns = np.asarray(found).transpose(1, 0, 3, 2).reshape(P * D, P * D)
    np.testing.assert_allclose(by_columns, cov, rtol=1e-9, atol=1e-14)


def mild_model():
    def transition(h):
        return jnp.stack([0.8 * h[0] + 0.3 * jnp.sin(h[1]), 0.7 * h[1] - 0.2 * jnp.tanh(h[0])])

    def observation(h):
        return jnp.stack([h[0], h[1] + 0.1 * h[0] ** 2, jnp.sinh(0.5 * h[0]), h[0] - h[1]])

    return NonlinearModel(
        transition, observation, 0.2 * np.eye(2), 0.3 * np.eye(4), np.zeros(2), np.eye(2)
    )


def simulate_and_filter(model, replicas, steps, seed):
    """True states, measurement noise and the filter's answer, for many data sets; 10 % missing."""

    def one(key):
        first, process, sensors, missing = jax.random.split(key, 4)
        w = jnp.sqrt(0.2) * jax.random.normal(process, (steps, 2))
        v = jnp.sqrt(0.3) * jax.random.normal(sensors, (steps, 4))

        def advance(h, w):
            return model.transition(h) + w, h

        _, h = jax.lax.scan(advance, jax.random.normal(first, (2,)), w)
        y = jax.vmap(model.observation)(h) + v
        observed = jax.random.uniform(missing, (steps, 4)) > 0.1
        return h, v, y, observed, filter_nonlinear(model, y, observed, jnp.arange(steps) == 0)

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), replicas))


def test_monte_carlo_of_both_states():
    """A mildly nonlinear system, 4000 data sets of 30 steps, of which five count.

    Sampling errors are 1 % of a variance and 0.0015 of the coverage, a quarter of what is allowed.
    With 10 000 data sets and more systems: `python -m benchmarks.nonlinear_clients states`.
    """
    model, replicas = mild_model(), 4000
    h, v, y, observed, found = simulate_and_filter(model, replicas, 30, 0)
    theta = 0.3 * jnp.array(np.random.default_rng(1).standard_normal((2, 4)))
    covs = jax.vmap(state_error_covs, in_axes=(0, 0, None, 0, 0, None))(
        found.filtered_covs, found.observation_jacobians, model.measurement_cov, y, observed, theta
    )
    error = np.asarray(found.filtered_states - h)
    noise = np.where(np.asarray(observed), np.asarray(v), 0.0) @ np.asarray(theta).T
    for errors, claimed in ((error, covs.filtered_covs), (error + noise, covs.augmented_covs)):
        e, cov = errors[:, 5::5].reshape(-1, 2), np.asarray(claimed)[:, 5::5].reshape(-1, 2, 2)
        seen, mean = e.T @ e / len(e), cov.mean(axis=0)
        scale = np.sqrt(np.outer(np.diag(seen), np.diag(seen)))
        np.testing.assert_array_less(np.abs(seen - mean) / scale, 0.04)
        distance = np.einsum("ti,ti->t", e, np.linalg.solve(cov, e[..., None])[..., 0])
        assert abs((distance < 5.991).mean() - 0.95) < 0.006  # χ² with two degrees of freedom
