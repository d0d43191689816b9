"""The scanned learner equals a plain NumPy loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedgranger as fg
from fedgranger import rounds
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.runtime.inprocess import run_rounds, stack_windows
from fedgranger.runtime.setup import initial_state, set_up
from fedgranger.server.granger import stack_states
from tests.configs import formula_config
from tests.reference import numpy_fedgc

EQUAL = {"num_clients": 3, "state_dims": 2, "sensor_dims": 8}
RAGGED = {"num_clients": 4, "state_dims": [1, 3, 2, 2], "sensor_dims": [3, 12, 5, 8]}


@pytest.mark.parametrize("window", [1, 50])
@pytest.mark.parametrize("missing_share", [0.0, 0.1])
@pytest.mark.parametrize("system", [EQUAL, RAGGED], ids=["equal", "ragged"])
def test_scan_vs_numpy_loop(system, missing_share, window):
    panel, truth = fg.simulate(num_steps=501, missing_share=missing_share, seed=3, **system)
    config = formula_config(
        window=window, augmentation_ridge=0.01, granger_ridge=0.02, state_dim=truth.state_dims
    )
    setup = set_up(panel, config)
    state = initial_state(setup, config)
    thetas, rows = numpy_fedgc.run(
        numpy_fedgc.from_setup(setup),
        *numpy_fedgc.state_to_plain(setup, state),
        window=window,
        num_steps=500,
        ridge_theta=0.01,
        ridge_granger=0.02,
    )
    final, _ = run_rounds(setup.params, state, stack_windows(setup, 0, setup.num_rounds))
    got_thetas, got_rows = numpy_fedgc.state_to_plain(setup, final)
    for got, expected in zip(got_thetas, thetas, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-10)
    for got, expected in zip(got_rows, rows, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-10)
    assert all(np.abs(theta).max() > 1e-3 for theta in thetas)


def test_python_loop_vs_scan():
    panel, _ = fg.simulate(3, 60, seed=5)
    config = formula_config(window=7, state_dim=2)
    setup = set_up(panel, config)
    windows = stack_windows(setup, 0, setup.num_rounds)
    scanned, _ = run_rounds(setup.params, initial_state(setup, config), windows)
    looped, windows = initial_state(setup, config), jax.device_get(windows)
    step = jax.jit(rounds.step)
    for k in range(setup.num_rounds):
        looped, _ = step(setup.params, looped, jax.tree.map(lambda x: jax_array(x[k]), windows))  # noqa: B023
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-13), scanned, looped)


def test_gradients_vs_autodiff():
    """Client and server steps descend the printed losses; the reply is the loss's derivative."""
    panel, _ = fg.simulate(3, 40, seed=7)
    config = formula_config(window="full", state_dim=2, augmentation_ridge=0.0, granger_ridge=0.0)
    setup = set_up(panel, config)
    state = initial_state(setup, config)
    windows = jax.tree.map(lambda x: jax_array(x[0]), jax.device_get(stack_windows(setup, 0, 1)))
    message = jax.jit(rounds.send)(state.clients, windows)
    _, reply, _ = jax.jit(rounds.answer)(setup.params.server, state.server, message)
    after, _ = jax.jit(rounds.step)(setup.params, state, windows)

    stacked = stack_states(windows.filtered_states)
    for m, stream in enumerate(setup.client_data):
        A = jnp.asarray(stream.model.self_transition)
        C = jnp.asarray(stream.model.observation_matrix)
        y = jnp.asarray(stream.scaled(0, 40))
        h_c = jnp.asarray(stream.filtered_states[:-1])
        row = state.server.granger_row[m]

        def local_loss(theta, A=A, C=C, y=y, h_c=h_c):
            h_a = h_c + y[:-1] @ theta.T
            return jnp.mean(jnp.sum((y[1:] - h_a @ (C @ A).T) ** 2, axis=1))

        def server_loss(h_a, row, A=A, h_c=h_c):
            residual = h_a @ A.T - (h_c @ A.T + stacked @ row.T)
            return jnp.sum(residual**2, axis=1)

        h_a = message.augmented_states[m]
        d_state = jax.grad(lambda h, row=row: jnp.sum(server_loss(h, row)))(h_a)
        np.testing.assert_allclose(reply.gradients[m], d_state, rtol=1e-10, atol=1e-12)

        theta = state.clients.augmentation[m]
        d_local = jax.grad(local_loss)(theta)
        d_server = jax.grad(
            lambda th, h_c=h_c, y=y, row=row: jnp.mean(server_loss(h_c + y[:-1] @ th.T, row))
        )(theta)
        params = jax.tree.map(lambda x: x[m], setup.params)  # noqa: B023
        expected = (
            theta
            - params.clients.local_step_size * d_local
            - params.clients.feedback_step_size * d_server
        )
        np.testing.assert_allclose(after.clients.augmentation[m], expected, rtol=1e-10)

        d_row = jax.grad(lambda a, h_a=h_a: jnp.mean(server_loss(h_a, a)))(row)
        expected = row - params.server.step_size * d_row * params.server.coupling[None, :]
        np.testing.assert_allclose(after.server.granger_row[m], expected, rtol=1e-10, atol=1e-14)
