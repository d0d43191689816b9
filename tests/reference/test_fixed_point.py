"""Training ends where the linear equations of the theory notes, section 3, say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import fedgranger as fg
from fedgranger import rounds
from fedgranger.runtime.inprocess import stack_windows, train
from fedgranger.runtime.setup import initial_state, set_up
from tests.configs import formula_config
from tests.reference import numpy_fedgc
from tests.reference.linear_equations import per_step_equations, solve

RIDGE = 0.05


def as_vector(setup, state, m):
    thetas, rows = numpy_fedgc.state_to_plain(setup, state)
    return np.concatenate([thetas[m].T.reshape(-1), rows[m].T.reshape(-1)])


@pytest.mark.parametrize(
    "system",
    [
        {"num_clients": 2, "state_dims": 2, "sensor_dims": 4},
        {"num_clients": 3, "state_dims": [1, 2, 2], "sensor_dims": [3, 4, 5]},
    ],
    ids=["two", "ragged"],
)
def test_full_batch_vs_linear_solve(system):
    panel, truth = fg.simulate(num_steps=400, measurement_var=3.0, seed=2, **system)
    config = formula_config(
        window="full",
        passes=40_000,
        tolerance=1e-8,
        state_dim=truth.state_dims,
        augmentation_ridge=RIDGE,
        granger_ridge=RIDGE,
    )
    setup = set_up(panel, config)
    *_, (snapshot, _) = train(setup, config)
    assert snapshot.progress.distance <= 1e-8
    for m in range(len(setup.client_data)):
        x_star = solve(setup, m, RIDGE)
        error = np.abs(as_vector(setup, snapshot.state, m) - x_star).max()
        assert error < 1e-6 * np.abs(x_star).max()


def test_step_wise_average_within_predicted_spread():
    """W = 1: the average over the last passes lies within the stationary spread Σ∞ of x*."""
    panel, _ = fg.simulate(2, 600, state_dims=1, sensor_dims=3, measurement_var=2.0, seed=4)
    config = formula_config(
        state_dim=1,
        step_safety=0.005,
        augmentation_ridge=RIDGE,
        granger_ridge=RIDGE,
        augmentation_prior_scale=1.0,
        granger_prior_scale=1.0,
    )
    setup = set_up(panel, config)
    windows = stack_windows(setup, 0, setup.num_rounds)

    @jax.jit
    def one_pass(state):
        def advance(now, window):
            new, _ = rounds.step(setup.params, now, window)
            return new, new

        last, all_states = jax.lax.scan(advance, state, windows)
        return last, jax.tree.map(lambda x: jnp.mean(x, axis=0), all_states)

    state, averages = initial_state(setup, config), []
    for k in range(520):
        state, average = one_pass(state)
        if k >= 500:
            averages.append(average)
    mean_state = jax.tree.map(lambda *x: jnp.stack(x).mean(axis=0), *averages)
    for m in range(2):
        gains, pulls = (np.array(x) for x in zip(*per_step_equations(setup, m, RIDGE), strict=True))
        x_star = solve(setup, m, RIDGE)
        noise = pulls - gains @ x_star
        S = long_run_cov(noise, lag=30)
        F = np.eye(len(x_star)) - gains.mean(axis=0)
        spread = np.sqrt(np.diag(scipy.linalg.solve_discrete_lyapunov(F, S)))
        deviation = np.abs(as_vector(setup, mean_state, m) - x_star)
        assert (deviation < 2 * spread).all()
        start = np.abs(as_vector(setup, initial_state(setup, config), m) - x_star)
        assert start.max() > 10 * spread.max()  # the bound says something


def long_run_cov(noise, lag):
    noise = noise - noise.mean(axis=0)
    S = noise.T @ noise / len(noise)
    for k in range(1, lag + 1):
        cross = noise[k:].T @ noise[:-k] / len(noise)
        S += (1 - k / (lag + 1)) * (cross + cross.T)
    return S
