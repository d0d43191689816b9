"""Steady-state Kalman filter against textbook forms in measurement space."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from fedgranger.client import kalman
from fedgranger.client.params import LocalModel
from fedgranger.data.client_data import ClientData
from fedgranger.errors import ModelError

SHAPES = [(1, 1), (1, 4), (2, 2), (2, 6), (3, 5)]


def random_model(seed, p, d, radius=0.9, noise=1.0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((p, p))
    A *= radius / np.abs(np.linalg.eigvals(A)).max()
    factors = [rng.standard_normal((k, k + 2)) for k in (p, d)]
    Q, R = (F @ F.T / F.shape[1] for F in factors)
    return LocalModel(A, rng.standard_normal((d, p)), Q, noise * R, np.zeros(d), np.ones(d))


def unpack(model):
    return (
        model.self_transition,
        model.observation_matrix,
        model.process_cov,
        model.measurement_cov,
    )


def naive_filter(model, K, y, observed, starts):
    A, C = model.self_transition, model.observation_matrix
    h, states = np.zeros(len(A)), []
    for t in range(len(y)):
        h = np.zeros(len(A)) if starts[t] else A @ h
        if observed[t]:
            h = h + K @ (y[t] - C @ h)
        states.append(h)
    return np.array(states)


@pytest.mark.parametrize(("p", "d"), SHAPES)
def test_gain_solves_riccati_equation_in_measurement_space(p, d):
    model = random_model(p * 10 + d, p, d)
    A, C, Q, R = unpack(model)
    K, P = kalman.steady_gain(model)
    S, filtered = C @ P @ C.T + R, (np.eye(p) - K @ C) @ P
    np.testing.assert_allclose(K, P @ C.T @ np.linalg.inv(S), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(P, A @ filtered @ A.T + Q, rtol=1e-8, atol=1e-10)
    assert np.abs(np.linalg.eigvals(A - A @ K @ C)).max() < 1


@pytest.mark.parametrize(("p", "d"), SHAPES)
def test_gain_is_limit_of_time_varying_recursion(p, d):
    model = random_model(p * 10 + d + 1, p, d)
    A, C, Q, R = unpack(model)
    P = 10.0 * np.eye(p)
    for _ in range(500):
        K = P @ C.T @ np.linalg.inv(C @ P @ C.T + R)
        filtered = (np.eye(p) - K @ C) @ P
        P = A @ filtered @ A.T + Q
    got = kalman.steady_gain(model)
    np.testing.assert_allclose(got.gain, K, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(got.predicted_cov, P, rtol=1e-8)


@pytest.mark.parametrize(("a", "c", "q", "r"), [(0.8, 1.0, 1.0, 0.5), (0.99, 2.0, 0.1, 4.0)])
def test_scalar_closed_form(a, c, q, r):
    """c²P² + (r(1 − a²) − c²q)P − qr = 0."""
    one = np.ones((1, 1))
    model = LocalModel(a * one, c * one, q * one, r * one, np.zeros(1), np.ones(1))
    b = r * (1 - a**2) - c**2 * q
    P = (-b + np.sqrt(b**2 + 4 * c**2 * q * r)) / (2 * c**2)
    got = kalman.steady_gain(model)
    assert got.predicted_cov[0, 0] == pytest.approx(P, rel=1e-10)
    assert got.gain[0, 0] == pytest.approx(P * c / (c**2 * P + r), rel=1e-10)


def test_unstable_model_still_has_a_stable_filter():
    model = random_model(3, 2, 4, radius=1.05)
    K = kalman.steady_gain(model).gain
    A, C = model.self_transition, model.observation_matrix
    assert np.abs(np.linalg.eigvals(A - K @ C @ A)).max() < 1


def test_vanishing_measurement_noise_is_continuous():
    """R → 0 with every direction of R shrinking alike tends to the noiseless readout."""
    model = random_model(4, 2, 5, noise=1e-9)
    _, C, Q, R = unpack(model)
    W = np.linalg.solve(C.T @ np.linalg.solve(R, C), np.linalg.solve(R, C).T)
    got = kalman.steady_gain(model)
    np.testing.assert_allclose(got.gain, W, atol=1e-6)
    np.testing.assert_allclose(got.predicted_cov, Q, atol=1e-6)


def test_no_measurement_noise_sees_the_state_exactly():
    model = random_model(5, 2, 4)
    A, C, Q, _ = unpack(model)
    model = LocalModel(A, C, Q, np.zeros((4, 4)), np.zeros(4), np.ones(4))
    got = kalman.steady_gain(model)
    np.testing.assert_allclose(got.gain, np.linalg.pinv(C), atol=1e-12)
    np.testing.assert_array_equal(got.predicted_cov, Q)
    states = np.random.default_rng(0).standard_normal((50, 2))
    always, never = jnp.ones(50, dtype=bool), jnp.zeros(50, dtype=bool)
    y = jnp.asarray(states @ C.T)
    filtered = kalman.run(kalman.filter_params(model), jnp.zeros(2), y, always, never)
    np.testing.assert_allclose(filtered, states, atol=1e-10)


def test_run_vs_naive_loop_with_gaps_and_restarts():
    rng = np.random.default_rng(6)
    model = random_model(6, 2, 4)
    observed, starts = rng.random(120) > 0.25, np.zeros(120, dtype=np.bool_)
    starts[[0, 31, 77]] = True
    observed[31], observed[77] = False, True  # a segment may start with a missing row
    y = rng.standard_normal((120, 4)) * observed[:, None]
    expected = naive_filter(model, kalman.steady_gain(model).gain, y, observed, starts)
    args = (jnp.asarray(y), jnp.asarray(observed), jnp.asarray(starts))
    got = kalman.run(kalman.filter_params(model), jnp.zeros(2), *args)
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_run_continues_from_the_given_state():
    model = random_model(7, 2, 3)
    h0 = np.array([2.0, -1.0])
    nothing, never = jnp.zeros(1, dtype=bool), jnp.zeros(1, dtype=bool)
    y = jnp.zeros((1, 3))
    got = kalman.run(kalman.filter_params(model), jnp.asarray(h0), y, nothing, never)
    np.testing.assert_allclose(got[0], model.self_transition @ h0, rtol=1e-12)


def test_filtered_mean_vs_conditional_expectation():
    """E[h_T | y_1..T] from the joint Gaussian of all states and measurements."""
    p, d, T = 2, 3, 60
    model = random_model(8, p, d, radius=0.8)
    A, C, Q, R = unpack(model)
    K, P = kalman.steady_gain(model)
    assert np.abs(np.linalg.eigvals((np.eye(p) - K @ C) @ A)).max() ** T < 1e-11
    V = scipy.linalg.solve_discrete_lyapunov(A, Q)
    powers = [np.linalg.matrix_power(A, k) for k in range(T)]
    state_cov = np.block(
        [[powers[s - t] @ V if s >= t else V @ powers[t - s].T for t in range(T)] for s in range(T)]
    )
    C_all = np.kron(np.eye(T), C)
    y_cov = C_all @ state_cov @ C_all.T + np.kron(np.eye(T), R)
    cross = state_cov[-p:] @ C_all.T
    y = np.linalg.cholesky(y_cov) @ np.random.default_rng(9).standard_normal(T * d)
    weights = np.linalg.solve(y_cov, cross.T).T
    always, starts = jnp.ones(T, dtype=bool), jnp.arange(T) == 0
    args = (jnp.asarray(y.reshape(T, d)), always, starts)
    got = kalman.run(kalman.filter_params(model), jnp.zeros(p), *args)
    np.testing.assert_allclose(got[-1], weights @ y, atol=1e-8)
    np.testing.assert_allclose((np.eye(p) - K @ C) @ P, V - weights @ cross.T, atol=1e-8)


@pytest.mark.parametrize("chunk", [1, 7, 40])
def test_chunked_filter_is_the_filter_in_one_piece(monkeypatch, chunk):
    rng = np.random.default_rng(10)
    model = random_model(10, 2, 3)
    values, starts = rng.standard_normal((40, 3)), np.zeros(40, dtype=np.bool_)
    starts[[0, 14, 21]] = True
    observed = np.repeat(rng.random(40)[:, None] > 0.2, 3, axis=1)
    client = ClientData("pump", ("a", "b", "c"), np.where(observed, values, 0.0), observed)
    monkeypatch.setattr(kalman, "CHUNK_STEPS", chunk)
    got = kalman.filter_data(client, model, starts).filtered_states
    K = kalman.steady_gain(model).gain
    expected = naive_filter(model, K, client.values, observed[:, 0], starts)
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_gain_follows_a_change_of_state_coordinates():
    """h → T h: the gain becomes T K, the predicted measurements stay."""
    model = random_model(11, 2, 4)
    A, C, Q, R = unpack(model)
    T = np.array([[2.0, 1.0], [0.5, -1.0]])
    T_inv = np.linalg.inv(T)
    moved = LocalModel(T @ A @ T_inv, C @ T_inv, T @ Q @ T.T, R, np.zeros(4), np.ones(4))
    np.testing.assert_allclose(
        kalman.steady_gain(moved).gain, T @ kalman.steady_gain(model).gain, rtol=1e-8, atol=1e-10
    )


def test_failing_riccati_solver_is_one_sentence(monkeypatch):
    def fail(*_):
        raise np.linalg.LinAlgError("singular pencil")

    monkeypatch.setattr(scipy.linalg, "solve_discrete_are", fail)
    with pytest.raises(ModelError, match=r"no stabilising solution.*fewer states"):
        kalman.steady_gain(random_model(12, 2, 3))
