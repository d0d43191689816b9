"""The server's step in its limits; equality with a loop and with autodiff is in tests/reference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger.messages import ClientMessage
from fedgranger.server import granger
from fedgranger.server.granger import ServerParams, ServerState

W, P, TOTAL = 5, 2, 6
step = jax.jit(granger.step)
RNG = np.random.default_rng(1)
A = RNG.standard_normal((P, P))
COUPLING = np.array([0.0, 0.0, 1.0, 1.0, 0.0, 0.0])  # listens to the second client only
ROW = RNG.standard_normal((P, TOTAL)) * COUPLING
STATES = RNG.standard_normal((W, TOTAL))
H_A = RNG.standard_normal((W, P))
H_C = STATES[:, :P]
OBSERVED = np.array([True, True, False, True, True])


def params(gamma=0.05, ridge=0.0):
    return ServerParams(*map(jnp.asarray, (A, gamma, ridge, COUPLING)))


def run(parameters, observed=OBSERVED, row=ROW):
    message = ClientMessage(*map(jnp.asarray, (H_C, H_A, observed)))
    state, reply, info = step(
        parameters, ServerState(jnp.asarray(row)), message, jnp.asarray(STATES)
    )
    return np.asarray(state.granger_row), np.asarray(reply.gradients), info


def residual(t):
    return A @ (H_A[t] - H_C[t]) - ROW @ STATES[t]


def test_zero_step_size_leaves_row_but_still_replies():
    row, gradients, _ = run(params(gamma=0.0, ridge=0.5))
    np.testing.assert_array_equal(row, ROW)
    for t in np.flatnonzero(OBSERVED):
        np.testing.assert_allclose(gradients[t], 2 * A.T @ residual(t), rtol=1e-12)
    assert not gradients[2].any()


def test_window_without_data_leaves_row_despite_ridge():
    row, gradients, info = run(params(ridge=0.5), observed=np.zeros(W, dtype=np.bool_))
    np.testing.assert_array_equal(row, ROW)
    assert not gradients.any()
    assert float(info.num_steps) == 0
    assert float(info.server_loss) == 0


def test_ridge_alone_shrinks():
    """h_a chosen so that the residual vanishes: only (1 − 2γλ) is left."""
    h_a = H_C + np.linalg.solve(A, ROW @ STATES.T).T
    message = ClientMessage(*map(jnp.asarray, (H_C, h_a, OBSERVED)))
    state, reply, info = step(
        params(0.05, 2.0), ServerState(jnp.asarray(ROW)), message, jnp.asarray(STATES)
    )
    np.testing.assert_allclose(state.granger_row, (1 - 2 * 0.05 * 2.0) * ROW, atol=1e-12)
    np.testing.assert_allclose(reply.gradients, 0.0, atol=1e-10)
    assert float(info.server_loss) == pytest.approx(0.0, abs=1e-12)


def test_update_and_loss_written_out():
    row, _, info = run(params(0.05, 0.3))
    steps = np.flatnonzero(OBSERVED)
    pull = sum(np.outer(residual(t), STATES[t]) for t in steps) / len(steps)
    expected = (1 - 2 * 0.05 * 0.3) * ROW + 2 * 0.05 * pull * COUPLING
    np.testing.assert_allclose(row, expected, rtol=1e-12, atol=1e-14)
    loss = np.mean([residual(t) @ residual(t) for t in steps])
    assert float(info.server_loss) == pytest.approx(loss, rel=1e-12)
    assert float(info.num_steps) == 4


def test_absent_couplings_stay_exactly_zero():
    row, _, _ = run(params(0.05, 0.3))
    assert not row[:, COUPLING == 0].any()
    assert (row[:, COUPLING == 1] != ROW[:, COUPLING == 1]).all()


def test_small_step_lowers_the_loss():
    row, _, before = run(params(gamma=0.001))
    _, _, after = run(params(gamma=0.001), row=row)
    assert float(after.server_loss) < float(before.server_loss)
