"""Step sizes of a client: formulas, and stability of the recursion they give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client import augment
from fedgranger.client.kalman import filter_data, measured_moments, state_moments
from fedgranger.client.params import LocalModel, known_models
from fedgranger.client.prepared_client import choose_step_sizes
from fedgranger.config import RunConfig
from fedgranger.errors import UnstableRecursionError
from fedgranger.messages import ServerMessage
from fedgranger.server.row_setup import choose_step_size

A = np.array([[0.8, 0.3], [0.0, 0.5]])
C = np.array([[1.0, 0.2], [0.0, 1.0], [-1.0, 2.0]])
MODEL = LocalModel(A, C, np.eye(2), np.eye(3), np.zeros(3), np.ones(3))
S, S_FEEDBACK = (C @ A).T @ (C @ A), A.T @ A
GAIN = 7.0


def largest(matrix):
    return np.linalg.eigvalsh(matrix)[-1]


def choose(model=MODEL, gain=GAIN, local="auto", feedback="auto", safety=0.5):
    sizes = {"local_step_size": local, "feedback_step_size": feedback}
    return choose_step_sizes(model, gain, RunConfig(**sizes, step_safety=safety), "pump")


def test_both_automatic_are_equal_and_use_the_budget():
    sizes = choose(safety=0.6)
    assert sizes.local == sizes.feedback
    assert sizes.local == pytest.approx(0.6 / (2 * GAIN * largest(S + S_FEEDBACK)), rel=1e-12)
    assert sizes.gain == pytest.approx(0.6, rel=1e-12)


def test_automatic_feedback_follows_the_given_local():
    sizes = choose(local=0.003)
    assert (sizes.local, sizes.feedback) == (0.003, 0.003)
    assert sizes.gain == pytest.approx(2 * GAIN * 0.003 * largest(S + S_FEEDBACK), rel=1e-12)


def test_automatic_local_uses_what_the_given_feedback_leaves():
    feedback = 0.2 / (2 * GAIN * largest(S_FEEDBACK))
    sizes = choose(feedback=feedback)
    assert sizes.feedback == feedback
    assert sizes.local == pytest.approx(0.3 / (2 * GAIN * largest(S)), rel=1e-12)
    assert 0.3 < sizes.gain <= 0.5 + 1e-12


def test_given_step_sizes_are_taken():
    sizes = choose(local=0.01, feedback=0.0)
    assert (sizes.local, sizes.feedback) == (0.01, 0.0)
    assert sizes.gain == pytest.approx(2 * GAIN * 0.01 * largest(S), rel=1e-12)


def test_feedback_that_uses_up_the_budget_is_refused():
    limit = 0.5 / (2 * GAIN * largest(S_FEEDBACK))
    choose(feedback=0.99 * limit)
    with pytest.raises(
        UnstableRecursionError,
        match=rf"client 'pump': feedback_step_size .* use at most {limit:.3g}",
    ):
        choose(feedback=1.01 * limit)


def test_nothing_to_learn_from():
    assert choose(gain=0.0) == (0.0, 0.0, 0.0)
    still = LocalModel(np.zeros((2, 2)), C, np.eye(2), np.eye(3), np.zeros(3), np.ones(3))
    assert choose(still) == (0.0, 0.0, 0.0)
    assert choose(still, local=0.1, feedback=0.2) == (0.1, 0.2, 0.0)


def test_twice_the_data_scale_needs_a_quarter_of_the_step():
    assert choose(gain=4 * GAIN).local == pytest.approx(choose().local / 4, rel=1e-12)


@pytest.fixture(scope="module")
def streams():
    panel, truth = fg.simulate(2, 400, sensor_dims=[3, 4], edges=1, seed=3)
    models = known_models(truth)
    return [filter_data(c, models[c.name], panel.segment_starts) for c in panel]


def test_gain_is_largest_eigenvalue_of_the_kronecker_product(streams):
    """Full window: K's block is E[y yᵀ] ⊗ N11 with N11 = 2η1 (CA)ᵀCA + 2η2 AᵀA."""
    stream = streams[0]
    moments = measured_moments(stream, 399)
    model = stream.model
    CA, A_mm = model.predicted_observation, model.self_transition
    sizes = choose(model, moments.gain, local=0.004, feedback=0.02)
    N11 = 2 * 0.004 * CA.T @ CA + 2 * 0.02 * A_mm.T @ A_mm
    assert sizes.gain == pytest.approx(largest(np.kron(moments.mean, N11)), rel=1e-10)


def mean_gain_matrix(stream, other, sizes, gamma):
    """K̄ = E[L N Lᵀ] of one row, dense."""
    model = stream.model
    CA, A_mm, p = model.predicted_observation, model.self_transition, model.state_dim
    N = np.block(
        [
            [
                2 * sizes.local * CA.T @ CA + 2 * sizes.feedback * A_mm.T @ A_mm,
                -2 * sizes.feedback * A_mm.T,
            ],
            [-2 * gamma * A_mm, 2 * gamma * np.eye(p)],
        ]
    )
    y, g = stream.scaled(0, 399), other.filtered_states[:-1]
    K = 0.0
    for y_t, g_t in zip(y, g, strict=True):
        L = np.zeros((p * (len(y_t) + len(g_t)), 2 * p))
        L[: p * len(y_t), :p] = np.kron(y_t[:, None], np.eye(p))
        L[p * len(y_t) :, p:] = np.kron(g_t[:, None], np.eye(p))
        K = K + L @ N @ L.T / len(y)
    return K


@pytest.mark.parametrize("safety", [0.5, 0.95])
def test_automatic_sizes_contract_the_mean(streams, safety):
    for m in range(2):
        stream, other = streams[m], streams[1 - m]
        sizes = choose(stream.model, measured_moments(stream, 399).gain, safety=safety)
        server = choose_step_size(
            np.array([state_moments(other, 399).gain]), server="auto", safety=safety
        )
        K = mean_gain_matrix(stream, other, sizes, server.server)
        eigenvalues = np.linalg.eigvals(K)
        assert np.abs(1 - eigenvalues).max() < 1
        assert np.abs(eigenvalues).max() <= sizes.gain + server.gain + 1e-12
        assert np.abs(eigenvalues).max() >= max(sizes.gain, server.gain) * 0.99
        large = mean_gain_matrix(
            stream, other, sizes._replace(local=5 * sizes.local), server.server
        )
        assert np.abs(np.linalg.eigvals(large)).max() > np.abs(eigenvalues).max()


@pytest.mark.parametrize(("target", "grows"), [(1.9, False), (2.1, True)])
def test_gain_two_is_the_border_when_iterated(streams, target, grows):
    """Full window, no feedback: |θ| grows as |1 − gain|^k beyond 2, stays bounded below."""
    stream = streams[0]
    gain = measured_moments(stream, 399).gain
    unit = choose(stream.model, gain, local=1.0, feedback=0.0).gain
    sizes = choose(stream.model, gain, local=target / unit, feedback=0.0)
    assert sizes.gain == pytest.approx(target, rel=1e-12)
    CA = stream.model.predicted_observation
    window = augment.ClientWindow(*map(jnp.asarray, stream.steps(0, 399)))
    params = augment.AugmentParams(
        jnp.asarray(CA.T @ CA), jnp.asarray(sizes.local), jnp.asarray(0.0), jnp.asarray(0.0)
    )
    reply = ServerMessage(jnp.zeros((399, 2)))

    @jax.jit
    def iterate(theta):
        def body(_, state):
            return augment.step(params, state, window, reply)[0]

        return jax.lax.fori_loop(0, 400, body, augment.AugmentState(theta)).augmentation

    size = float(jnp.abs(iterate(jnp.full((2, stream.model.num_sensors), 0.1))).max())
    assert (size > 1e10) if grows else (size < 100)
