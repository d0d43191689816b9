"""The server's recurrent rows: loss, replies and Jacobians against plain computations."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger.config import RunConfig
from fedgranger.recurrent import NetworkShape, Trained, read_sequences, untrained
from fedgranger.server import neural_rows
from fedgranger.server.granger import ServerParams, ServerState, stack_states
from fedgranger.server.granger import step as linear_step
from fedgranger.server.jacobian_trace import JacobianTrace
from fedgranger.server.neural_rows import NeuralParams, SequenceMessages
from fedgranger.server.neural_trainer import NeuralTrainer
from fedgranger.server.round_messages import RoundMessages, Rows

M, p, S, L = 2, 2, 2, 4
SHAPE = NetworkShape(M * p, 3, p)


@pytest.fixture(scope="module")
def world():
    """Constants, weights and messages of two clients; the first cannot see the second."""
    rng = np.random.default_rng(0)
    A = 0.5 * rng.standard_normal((M, p, p))
    coupling = np.array([[1.0, 1, 0, 0], [1, 1, 1, 1]])
    params = NeuralParams(jnp.array(A), jnp.array([10.0, 10.0]), jnp.array(coupling))
    weights = rng.standard_normal((M, SHAPE.num_weights))
    h_c, h_a, ahead = rng.standard_normal((3, M, S, L, p))
    observed = np.ones((M, S, L), dtype=bool)
    observed[1, 0, 1] = False
    has_next = np.ones((M, S, L), dtype=bool)
    has_next[:, :, -1] = False
    messages = SequenceMessages(*map(jnp.array, (h_c, h_a, ahead, observed, has_next)))
    return params, weights, messages, jnp.zeros((S, L), bool)


def row(params, weights, messages, m):
    """Params, weights and message of one row."""
    pick = lambda tree: type(tree)(*(leaf[m] for leaf in vars(tree).values()))  # noqa: E731
    return pick(params), jnp.array(weights[m]), pick(messages)


def test_loss_by_hand(world):
    params, weights, messages, is_start = world
    states = stack_states(messages.filtered_states)
    for m in range(M):
        own, w, message = row(params, weights, messages, m)
        found = neural_rows.row_loss(
            SHAPE, own, w, message.augmented_states, message, states, is_start
        )
        H = np.asarray(read_sequences(SHAPE, w, states * own.coupling[None, None, :], is_start))
        A, h_c = np.asarray(own.self_transition), np.asarray(message.filtered_states)
        r = (np.asarray(message.augmented_states) - h_c) @ A.T - H
        error = np.asarray(message.next_states) - h_c @ A.T - H
        flags = [np.asarray(flag)[..., None] for flag in (message.is_observed, message.has_next)]
        expected = (flags[0] * r**2).sum() + 10 * (flags[1] * error**2).sum()
        assert float(found) == pytest.approx(expected)


def test_reply_is_the_linear_methods_with_the_same_prediction(world):
    """2 Aᵀr: a linear row that predicts the same gets the same residual and sends the same."""
    params, weights, messages, is_start = world
    weights = 0 * weights  # H = 0, as Â = 0
    trained = Trained(*map(jnp.array, untrained(weights)))
    _, replies, _ = neural_rows.answer(SHAPE, 0.01, params, trained, messages, is_start)
    for m in range(M):
        own, _, message = row(params, weights, messages, m)
        flat = lambda x: jnp.reshape(x, (S * L, *x.shape[2:]))  # noqa: E731
        constants = ServerParams(
            own.self_transition, jnp.array(0.1), jnp.array(0.0), jnp.ones(M * p)
        )
        from fedgranger.messages import ClientMessage

        sent = ClientMessage(
            flat(message.filtered_states), flat(message.augmented_states), flat(message.is_observed)
        )
        states = flat(stack_states(messages.filtered_states))
        _, expected, _ = linear_step(constants, ServerState(jnp.zeros((p, M * p))), sent, states)
        np.testing.assert_allclose(flat(replies[m]), expected.gradients, atol=1e-12)


def test_reply_and_update_vs_finite_differences(world):
    params, weights, messages, is_start = world
    states = stack_states(messages.filtered_states)
    trained = Trained(*map(jnp.array, untrained(weights)))
    after, replies, _ = neural_rows.answer(SHAPE, 0.01, params, trained, messages, is_start)
    own, w, message = row(params, weights, messages, 1)
    h_a = np.asarray(message.augmented_states)

    def loss(w, h_a):
        value = neural_rows.row_loss(
            SHAPE, own, jnp.array(w), jnp.array(h_a), message, states, is_start
        )
        return float(value)

    rng, w = np.random.default_rng(1), np.asarray(w)
    for _ in range(4):
        place = tuple(rng.integers(size) for size in h_a.shape)
        moved = np.zeros_like(h_a)
        moved[place] = 1e-6
        slope = (loss(w, h_a + moved) - loss(w, h_a - moved)) / 2e-6
        assert float(replies[1][place]) == pytest.approx(slope, rel=1e-5, abs=1e-6)
    num_steps = int(np.asarray(message.is_observed).sum())
    for k in rng.choice(len(w), 4, replace=False):  # Adam's first moment is a tenth of it
        moved = 1e-6 * np.eye(len(w))[k]
        slope = (loss(w + moved, h_a) - loss(w - moved, h_a)) / 2e-6 / num_steps
        assert 10 * float(after.first_moment[1, k]) == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_jacobian_vs_finite_differences(world):
    params, weights, messages, is_start = world
    states = np.asarray(stack_states(messages.filtered_states))
    found = np.asarray(
        neural_rows.jacobians(SHAPE, params, jnp.array(weights), jnp.array(states), is_start)
    )
    assert found.shape == (M, S, L, p, M * p)
    assert not found[0, ..., p:].any()  # it cannot see the second client
    coupling = params.coupling[1][None, None, :]
    for t in range(L):
        for j in range(M * p):
            moved = np.zeros_like(states)
            moved[:, t, j] = 1e-6
            ends = [
                read_sequences(
                    SHAPE,
                    jnp.array(weights[1]),
                    jnp.array(states + sign * moved) * coupling,
                    is_start,
                )[:, t]
                for sign in (1, -1)
            ]
            slope = (np.asarray(ends[0]) - np.asarray(ends[1])) / 2e-6
            np.testing.assert_allclose(found[1, :, t, :, j], slope, rtol=1e-5, atol=1e-8)


def test_trace_of_jacobians_over_ragged_clients_and_a_short_last_window():
    """Means over sequences, time steps at their places, A_mm on the diagonal."""
    dims, T = (1, 2), 11
    rng = np.random.default_rng(2)
    A = tuple(0.3 * np.eye(dim) for dim in dims)
    config = RunConfig(
        solver="neural", network_passes=1, batch_steps=8, sequence_steps=4, server_hidden_dim=3
    )
    trainer = NeuralTrainer(Rows(("a", "b"), A, np.ones(2), T), config)
    states = [rng.standard_normal((T, dim)) for dim in dims]
    memory = trainer.initial()
    for k in range(trainer.most_rounds):
        rows = slice(k % 2 * 8, k % 2 * 8 + trainer.spans(k)[0])
        parts = [part[rows] for part in states]
        flags = [np.ones(len(part), dtype=np.uint8) for part in parts]
        memory, reply = trainer.step(memory, k, RoundMessages(parts, parts, flags, None))
        assert (reply is None) == (k == 3)
    found = memory.jacobian
    assert found.first_steps.tolist() == [0, 4, 8]
    assert found.num_steps.tolist() == [4, 4, 3]
    assert found.blocks.shape == found.squares.shape == (3, 3, 3)
    assert (found.squares >= found.blocks**2 - 1e-15).all()
    granger = trainer.granger(memory)
    assert not granger[0, 0]
    np.testing.assert_allclose(granger[0, 1:], found.mean[0, 1:])


def test_strengths_of_blocks():
    blocks = np.array(
        [[[1.0, 3.0, 4.0], [0, 0, 0], [2, 0, 0]], [[1, -3, -4], [0, 0, 0], [2, 0, 0]]]
    )
    trace = JacobianTrace(np.array([0, 4]), np.array([4, 4]), blocks, blocks**2)
    np.testing.assert_allclose(trace.strengths((1, 2)), [[1, 0], [2, 0]])
    np.testing.assert_allclose(trace.strengths((1, 2), is_mean=False), [[1, 5], [2, 0]])


def test_what_a_window_leaves_out(world):
    """No next state at the end of a window, across a break or without a measurement."""
    config = RunConfig(solver="neural", batch_steps=6, sequence_steps=3, server_hidden_dim=2)
    starts = np.array([True, False, False, True, False, False, False])
    rows = Rows(("a", "b"), (np.eye(1), np.eye(1)), np.ones(2), 6, starts)
    trainer = NeuralTrainer(rows, config)
    observed = [np.array([1, 1, 1, 1, 0, 1], np.uint8), np.ones(6, np.uint8)]
    states = [np.arange(6.0)[:, None]] * 2
    window, is_start = trainer._window(0, RoundMessages(states, states, observed, None))
    assert np.asarray(window.has_next[0]).ravel().tolist() == [1, 1, 0, 0, 0, 0]
    assert np.asarray(window.has_next[1]).ravel().tolist() == [1, 1, 0, 1, 1, 0]
    assert np.asarray(is_start).ravel().tolist() == [1, 0, 0, 1, 0, 0]
    np.testing.assert_array_equal(np.asarray(window.next_states[0]).ravel()[:5], [1, 2, 3, 4, 5])
