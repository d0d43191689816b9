"""A client's network: the same loss as the linear learner, gradients equal finite differences."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger.client import neural_augment
from fedgranger.client.neural_augment import SequenceWindow
from fedgranger.client.neural_learner import LinearPrediction
from fedgranger.recurrent import NetworkShape, Trained, untrained

SHAPE = NetworkShape(3, 4, 2)
S, L = 2, 5


class Bent(eqx.Module):
    """A nonlinear g(f(h))."""

    matrix: jnp.ndarray

    def __call__(self, state):
        return jnp.tanh(self.matrix @ state)


@pytest.fixture(scope="module")
def window():
    rng = np.random.default_rng(0)
    observed = np.ones((S, L), dtype=bool)
    observed[0, 2] = False
    y = rng.standard_normal((S, L, 3)) * observed[..., None]
    has_next = observed & np.roll(observed, -1, axis=1)
    parts = (y, rng.standard_normal((S, L, 3)), rng.standard_normal((S, L, 2)))
    return SequenceWindow(*map(jnp.array, (*parts, observed, has_next, np.zeros((S, L), bool))))


def test_where_nothing_was_measured_the_state_is_the_filtered_one(window):
    weights = jnp.array(np.random.default_rng(1).standard_normal(SHAPE.num_weights))
    h_a = np.asarray(neural_augment.augmented_states(SHAPE, weights, window))
    same = np.all(h_a == np.asarray(window.filtered_states), axis=2)
    np.testing.assert_array_equal(same, ~np.asarray(window.is_observed))


def test_local_loss_of_a_linear_model_is_the_linear_learners(window):
    CA = np.random.default_rng(2).standard_normal((3, 2))
    loss = neural_augment.local_loss(
        LinearPrediction(jnp.array(CA)), window.filtered_states, window
    )
    u = np.asarray(window.next_measurements) - np.asarray(window.filtered_states) @ CA.T
    expected = (u**2).sum(axis=2)[np.asarray(window.has_next)].mean()
    assert float(loss) == pytest.approx(expected)


# both compile; the bent one holds the linear one
@pytest.mark.parametrize("kind", [pytest.param(LinearPrediction, marks=pytest.mark.slow), Bent])
def test_gradient_vs_finite_differences(window, kind):
    """Of the local loss plus the server's, whose derivative by h_a is all that is known of it."""
    rng = np.random.default_rng(3)
    predict = kind(jnp.array(rng.standard_normal((3, 2))))
    weights = rng.standard_normal(SHAPE.num_weights)
    reply = rng.standard_normal((S, L, 2))
    observed = np.asarray(window.is_observed)

    def loss(w):
        h_a = neural_augment.augmented_states(SHAPE, jnp.array(w), window)
        own = float(neural_augment.local_loss(predict, h_a, window))
        return own + float((reply * np.asarray(h_a))[observed].sum()) / observed.sum()

    found, _ = neural_augment.weights_gradient(
        SHAPE, predict, jnp.array(weights), window, jnp.array(reply)
    )
    for k in rng.choice(SHAPE.num_weights, 8, replace=False):
        moved = 1e-6 * np.eye(SHAPE.num_weights)[k]
        slope = (loss(weights + moved) - loss(weights - moved)) / 2e-6
        assert float(found[k]) == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_a_window_without_measurements_changes_nothing(window):
    weights = np.random.default_rng(4).standard_normal(SHAPE.num_weights)
    empty = eqx.tree_at(
        lambda w: (w.is_observed, w.has_next), window, (jnp.zeros((S, L), bool),) * 2
    )
    before = Trained(*map(jnp.array, untrained(weights)))
    predict = LinearPrediction(jnp.ones((3, 2)))
    after, _ = neural_augment.step(SHAPE, predict, 0.1, before, empty, jnp.ones((S, L, 2)))
    for one, other in zip(after, before, strict=True):
        np.testing.assert_array_equal(one, other)
