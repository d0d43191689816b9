"""The client's step in its limits; equality with a loop and with autodiff is in tests/reference."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger.client import augment
from fedgranger.client.augment import AugmentParams, AugmentState, ClientWindow
from fedgranger.messages import ServerMessage

W, P, D = 6, 2, 3
step = jax.jit(augment.step)
RNG = np.random.default_rng(0)
CA = RNG.standard_normal((D, P))
THETA = RNG.standard_normal((P, D))
Y, Y_NEXT = RNG.standard_normal((2, W, D))
H_C = RNG.standard_normal((W, P))
GRADIENTS = RNG.standard_normal((W, P))


def params(eta1=0.01, eta2=0.02, ridge=0.0):
    numbers = (jnp.asarray(x) for x in (eta1, eta2, ridge))
    return AugmentParams(jnp.asarray(CA.T @ CA), *numbers)


def window(observed=None, paired=None):
    observed = np.ones(W, dtype=np.bool_) if observed is None else np.array(observed)
    paired = observed if paired is None else np.array(paired)
    nu = (Y_NEXT - H_C @ CA.T) * paired[:, None]
    arrays = (Y * observed[:, None], H_C, nu @ CA, (nu**2).sum(axis=1), observed, paired)
    return ClientWindow(*map(jnp.asarray, arrays))


def run(parameters, data, gradients=GRADIENTS):
    reply = ServerMessage(jnp.asarray(gradients))
    state, info = step(parameters, AugmentState(jnp.asarray(THETA)), data, reply)
    return np.asarray(state.augmentation), info


NONE = [False] * W


def test_zero_step_sizes_leave_theta():
    theta, _ = run(params(0.0, 0.0, ridge=0.5), window())
    np.testing.assert_array_equal(theta, THETA)


def test_window_without_data_leaves_theta_despite_ridge():
    theta, info = run(params(ridge=0.5), window(NONE))
    np.testing.assert_array_equal(theta, THETA)
    assert float(info.num_steps) == 0
    assert float(info.local_loss) == 0


def test_ridge_alone_shrinks():
    """No pair and no gradient: only (1 − 2η1λ) is left."""
    theta, _ = run(params(0.01, 0.02, ridge=3.0), window(paired=NONE), np.zeros((W, P)))
    np.testing.assert_allclose(theta, (1 - 2 * 0.01 * 3.0) * THETA, rtol=1e-12)


def test_feedback_alone_is_the_mean_over_observed_steps():
    observed = [True, False, True, True, False, True]
    theta, _ = run(params(0.0, 0.02), window(observed))
    pull = sum(np.outer(GRADIENTS[t], Y[t]) for t in range(W) if observed[t]) / 4
    np.testing.assert_allclose(theta, THETA - 0.02 * pull, rtol=1e-12)


def test_local_loss_alone_is_the_mean_over_pairs():
    observed = [True, False, True, True, False, True]
    paired = [False, False, True, True, False, False]
    theta, info = run(params(0.01, 0.0), window(observed, paired))
    pull, loss = np.zeros((P, D)), 0.0
    for t in (2, 3):
        u = Y_NEXT[t] - CA @ (H_C[t] + THETA @ Y[t])
        pull += np.outer(CA.T @ u, Y[t]) / 2
        loss += u @ u / 2
    np.testing.assert_allclose(theta, THETA + 2 * 0.01 * pull, rtol=1e-12)
    assert float(info.local_loss) == pytest.approx(loss, rel=1e-12)
    assert float(info.num_steps) == 2


def test_perfect_prediction_does_not_move():
    """y⁺ = CA(h_c + θy): u = 0, so the loss and the local pull vanish."""
    nu = Y @ THETA.T @ CA.T
    everywhere = jnp.ones(W, dtype=bool)
    data = ClientWindow(
        *map(jnp.asarray, (Y, H_C, nu @ CA, (nu**2).sum(axis=1))), everywhere, everywhere
    )
    theta, info = run(params(0.1, 0.0), data)
    np.testing.assert_allclose(theta, THETA, atol=1e-12)
    assert float(info.local_loss) == pytest.approx(0.0, abs=1e-12)


def test_small_step_lowers_the_local_loss():
    theta, before = run(params(0.001, 0.0), window())
    reply = ServerMessage(jnp.asarray(GRADIENTS))
    _, after = step(params(0.001, 0.0), AugmentState(jnp.asarray(theta)), window(), reply)
    assert float(after.local_loss) < float(before.local_loss)


def test_message_is_state_plus_correction():
    message = augment.send(AugmentState(jnp.asarray(THETA)), window([True] * 5 + [False]))
    np.testing.assert_array_equal(message.filtered_states, H_C)
    for t in range(5):
        np.testing.assert_allclose(
            message.augmented_states[t], H_C[t] + THETA @ Y[t], rtol=1e-12, atol=1e-14
        )
    np.testing.assert_array_equal(message.augmented_states[5], H_C[5])
    assert message.is_observed.tolist() == [True] * 5 + [False]


def test_padding_stays_zero():
    """A state and a sensor that do not exist: their entries of θ never leave zero."""

    def pad(x, *widths):
        return jnp.pad(x, widths)

    parameters = params(ridge=0.1)
    padded_params = eqx.tree_at(
        lambda p: p.prediction_gram, parameters, pad(parameters.prediction_gram, (0, 1), (0, 1))
    )
    w = window()
    padded = ClientWindow(
        pad(w.measurements, (0, 0), (0, 1)),
        pad(w.filtered_states, (0, 0), (0, 1)),
        pad(w.local_targets, (0, 0), (0, 1)),
        w.local_energies,
        w.is_observed,
        w.has_next,
    )
    state = AugmentState(pad(jnp.asarray(THETA), (0, 1), (0, 1)))
    reply = ServerMessage(pad(jnp.asarray(GRADIENTS), (0, 0), (0, 1)))
    got, info = step(padded_params, state, padded, reply)
    expected, expected_info = run(parameters, w)
    np.testing.assert_allclose(got.augmentation[:P, :D], expected, rtol=1e-12)
    assert not np.asarray(got.augmentation[P:]).any()
    assert not np.asarray(got.augmentation[:, D:]).any()
    assert float(info.local_loss) == pytest.approx(float(expected_info.local_loss), rel=1e-12)
