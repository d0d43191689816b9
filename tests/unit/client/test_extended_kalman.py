"""Extended Kalman filter: the Kalman filter when f and g are linear, missing sensors, segments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger.client import kalman
from fedgranger.client.extended_kalman import NonlinearModel, filter_nonlinear
from fedgranger.client.params import LocalModel
from fedgranger.data.client_data import ClientData
from fedgranger.errors import DataError, ModelError
from tests.unchecked import unchecked

P, D, T = 2, 5, 60


def random_linear(seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((P, P))
    A *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
    factors = [rng.standard_normal((k, k + 2)) for k in (P, D)]
    Q, R = (F @ F.T / F.shape[1] for F in factors)
    return LocalModel(A, rng.standard_normal((D, P)), Q, R, np.zeros(D), np.ones(D)), rng


def as_nonlinear(model, mean, cov):
    A, C = jnp.array(model.self_transition), jnp.array(model.observation_matrix)
    Q, R = model.process_cov, model.measurement_cov
    return NonlinearModel(lambda h: A @ h, lambda h: C @ h, Q, R, mean, cov)


def textbook_filter(model, mean, cov, y, observed, starts):
    """Kalman filter in information form, on the sensors that are there."""
    A, C, Q, R = (
        model.self_transition,
        model.observation_matrix,
        model.process_cov,
        model.measurement_cov,
    )
    h, V, states, covs = mean, cov, [], []
    for t in range(len(y)):
        h, V = (mean, cov) if t == 0 or starts[t] else (A @ h, A @ V @ A.T + Q)
        seen = observed[t]
        weights = C[seen].T @ np.linalg.inv(R[np.ix_(seen, seen)])
        information = np.linalg.inv(V)
        V_new = np.linalg.inv(information + weights @ C[seen])
        h = V_new @ (information @ h + weights @ y[t, seen])
        V = V_new
        states.append(h)
        covs.append(V)
    return np.array(states), np.array(covs)


@pytest.fixture(scope="module")
def record():
    model, rng = random_linear(0)
    observed = rng.random((T, D)) < 0.7
    observed[[10, 11, 30]] = False
    starts = np.zeros(T, dtype=bool)
    starts[[0, 25, 31]] = True
    return model, rng.standard_normal((T, D)), observed, starts


def test_linear_functions_give_the_kalman_filter(record):
    """Missing sensors, missing rows and segments; against the information form in NumPy."""
    model, y, observed, starts = record
    mean, cov = np.array([0.5, -1.0]), np.array([[2.0, 0.3], [0.3, 1.0]])
    with_gaps = jnp.array(np.where(observed, y, np.nan))
    found = filter_nonlinear(
        as_nonlinear(model, mean, cov), with_gaps, jnp.array(observed), jnp.array(starts)
    )
    states, covs = textbook_filter(model, mean, cov, y, observed, starts)
    np.testing.assert_allclose(found.filtered_states, states, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.filtered_covs, covs, rtol=0, atol=1e-10)
    A, C = model.self_transition, model.observation_matrix
    np.testing.assert_allclose(found.transition_jacobians, np.tile(A, (T, 1, 1)), atol=1e-14)
    np.testing.assert_allclose(found.observation_jacobians, np.tile(C, (T, 1, 1)), atol=1e-14)
    onwards = states[:-1] @ A.T
    np.testing.assert_allclose(found.predicted_states[1:][~starts[1:]], onwards[~starts[1:]])
    np.testing.assert_allclose(found.predicted_states[starts], np.tile(mean, (3, 1)))
    np.testing.assert_allclose(found.predicted_covs[starts], np.tile(cov, (3, 1, 1)))
    empty = ~observed.any(axis=1)
    np.testing.assert_array_equal(found.filtered_states[empty], found.predicted_states[empty])
    np.testing.assert_allclose(found.filtered_covs[empty], found.predicted_covs[empty])


def test_started_in_the_steady_state_it_is_the_filter_of_the_linear_client(record):
    """The steady filter keeps its gain after a missing row, so rows are complete or unseen."""
    model, y, _, starts = record
    steady = kalman.steady_gain(model)
    observed = np.ones((T, D), dtype=bool)
    client = ClientData("a", tuple("abcde"), y, observed)
    linear = kalman.filter_data(client, model, starts)
    extended = as_nonlinear(model, np.zeros(P), steady.predicted_cov)
    found = filter_nonlinear(extended, jnp.array(y), jnp.array(observed), jnp.array(starts))
    np.testing.assert_allclose(found.filtered_states, linear.filtered_states, rtol=0, atol=1e-10)
    until = 20  # rows missing at the end of a segment are predicted by both
    observed[until:25] = False
    client = ClientData("a", tuple("abcde"), y, observed)
    linear = kalman.filter_data(client, model, starts)
    found = filter_nonlinear(extended, jnp.array(y), jnp.array(observed), jnp.array(starts))
    np.testing.assert_allclose(found.filtered_states, linear.filtered_states, rtol=0, atol=1e-10)


def nonlinear_model(process_cov=None):
    def transition(h):
        return jnp.array([0.8, 0.6]) * h + 0.3 * jnp.sin(h[::-1])

    def observation(h):
        return jnp.stack([h[0], h[1], h[0] * h[1], jnp.tanh(h[0])])

    Q = 0.1 * np.eye(2) if process_cov is None else process_cov
    return NonlinearModel(transition, observation, Q, 0.2 * np.eye(4), np.zeros(2), np.eye(2))


def naive_extended_filter(model, y, observed, starts):
    """The paper's equations, with Jacobians by differences and P = (I - K J) P."""

    def jacobian(function, at):
        steps = 1e-6 * np.eye(2)
        return np.array([(function(at + e) - function(at - e)) / 2e-6 for e in steps]).T

    h, V, states, covs = None, None, [], []
    for t in range(len(y)):
        if t == 0 or starts[t]:
            h, V = np.zeros(2), np.eye(2)
        else:
            F = jacobian(model.transition, h)
            Q = np.asarray(model.process_cov_at(jnp.array(h)))
            h, V = np.asarray(model.transition(h)), F @ V @ F.T + Q
        seen = observed[t]
        J = jacobian(model.observation, h)[seen]
        S = J @ V @ J.T + np.asarray(model.measurement_cov)[np.ix_(seen, seen)]
        K = V @ J.T @ np.linalg.inv(S)
        h = h + K @ (y[t, seen] - np.asarray(model.observation(h))[seen])
        V = (np.eye(2) - K @ J) @ V
        states.append(h)
        covs.append(V)
    return np.array(states), np.array(covs)


@pytest.mark.parametrize("process_cov", [None, lambda h: (0.1 + h @ h) * jnp.eye(2)])
def test_nonlinear_functions_follow_the_papers_equations(process_cov):
    rng = np.random.default_rng(1)
    y, observed = rng.standard_normal((20, 4)), rng.random((20, 4)) < 0.8
    observed[5], starts = False, np.arange(20) == 12
    model = nonlinear_model(process_cov)
    states, covs = naive_extended_filter(model, y, observed, starts)
    found = filter_nonlinear(model, jnp.array(y), jnp.array(observed), jnp.array(starts))
    np.testing.assert_allclose(found.filtered_states, states, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(found.filtered_covs, covs, rtol=1e-7, atol=1e-7)


@pytest.mark.slow  # compiles for shapes of its own
def test_record_can_be_filtered_under_a_gradient():
    """Other modules descend through the filter."""
    y = jnp.ones((5, 4))
    observed, starts = jnp.ones((5, 4), dtype=bool), jnp.zeros(5, dtype=bool)

    def loss(scale):
        model = NonlinearModel(
            lambda h: scale * h,
            nonlinear_model().observation,
            0.1 * jnp.eye(2),
            0.2 * jnp.eye(4),
            jnp.zeros(2),
            jnp.eye(2),
        )
        return (filter_nonlinear(model, y, observed, starts).filtered_states ** 2).sum()

    slope = jax.grad(loss)(0.5)
    step = 1e-6
    assert slope == pytest.approx(float(loss(0.5 + step) - loss(0.5 - step)) / (2 * step), rel=1e-6)


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ModelError, match="observation gives shape"):
        NonlinearModel(lambda h: h, lambda h: h, np.eye(2), np.eye(3), np.zeros(2), np.eye(2))
    with pytest.raises(ModelError, match="transition gives shape"):
        NonlinearModel(lambda h: h[:1], lambda h: h, np.eye(2), np.eye(2), np.zeros(2), np.eye(2))


def numpy_only(h):
    return 0.9 * np.tanh(np.asarray(h))


def with_if(h):
    return h if h[0] > 0 else -h


@pytest.mark.parametrize("function", [numpy_only, with_if])
@pytest.mark.parametrize("name", ["transition", "observation", "process_cov"])
def test_functions_that_jax_cannot_trace_are_one_sentence(name, function):
    rest = [np.eye(2), np.zeros(2), np.eye(2)]
    parts = {"transition": lambda h: h, "observation": lambda h: h, "process_cov": np.eye(2)}
    parts[name] = function
    with pytest.raises(ModelError, match=f"write the {name} with jax.numpy instead of numpy"):
        NonlinearModel(*parts.values(), *rest)


def test_a_function_that_gives_no_array_is_refused():
    with pytest.raises(ModelError, match="transition gives a list; one array"):
        NonlinearModel(lambda h: [h], lambda h: h, np.eye(2), np.eye(2), np.zeros(2), np.eye(2))


RECORD = {
    "measurements": np.zeros((6, 4)),
    "is_observed": np.ones((6, 4), dtype=bool),
    "starts": np.arange(6) == 0,
}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("measurements", np.zeros((6, 3)), r"shape \(6, 3\); the model has 4 sensors"),
        ("measurements", np.zeros(6), r"shape \(6,\)"),
        ("is_observed", np.ones((5, 4), dtype=bool), r"is_observed is bool of shape \(5, 4\)"),
        ("is_observed", np.ones(6, dtype=bool), r"for each of the measurements' values, \(6, 4\)"),
        ("is_observed", np.ones((6, 4)), "is_observed is float64"),
        ("starts", np.zeros(5, dtype=bool), r"starts is bool of shape \(5,\); .* time steps, \(6,"),
        ("starts", np.array([0, 3]), "starts is int64"),
        (
            "measurements",
            np.where(np.arange(24) == 9, np.nan, 0.0).reshape(6, 4),
            "step 2, sensor 1",
        ),
    ],
)
def test_records_that_do_not_fit_are_one_sentence(name, value, words):
    """Without the tests' own checks of shapes, as in a program."""
    with unchecked(), pytest.raises(DataError, match=words):
        filter_nonlinear(nonlinear_model(), **{**RECORD, name: value})


def test_a_value_that_is_not_observed_may_be_anything():
    y, observed = RECORD["measurements"].copy(), RECORD["is_observed"].copy()
    y[2, 1], observed[2, 1] = np.nan, False
    found = filter_nonlinear(nonlinear_model(), y, observed, RECORD["starts"])
    assert np.isfinite(found.filtered_states).all()


def test_precision_does_not_depend_on_the_settings_of_jax():
    y, starts = np.random.default_rng(2).standard_normal((10, 4)), np.arange(10) == 0
    observed = np.ones((10, 4), dtype=bool)
    whole = filter_nonlinear(nonlinear_model(), y, observed, starts)
    with jax.enable_x64(False):
        found = filter_nonlinear(nonlinear_model(), y, observed, starts)
        with pytest.raises(DataError, match="measurements: float32"):
            filter_nonlinear(nonlinear_model(), y.astype(np.float32), observed, starts)
    np.testing.assert_array_equal(found.filtered_states, whole.filtered_states)
