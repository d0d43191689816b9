import jax
import jax.numpy as jnp
import networkx
import numpy as np
import pytest
from scipy.linalg import expm

from fedgranger_research.baselines.graphs import (
    closed_walks,
    cyclicity,
    drop_until_acyclic,
    is_acyclic,
    walks_of,
)
from tests.graph_samples import random_graph, random_weights


@pytest.mark.parametrize("scale", [0.0, 1e-4, 0.3, 1.0, 3.0])
def test_cyclicity_vs_matrix_exponential(scale):
    W = scale * np.random.default_rng(0).normal(size=(7, 7))
    h, slope = cyclicity(W)
    E = expm(W * W)
    np.testing.assert_allclose(h, np.trace(E) - 7, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(slope, 2 * W * E.T, rtol=1e-10)
    with jax.enable_x64(True):
        value, change = jax.value_and_grad(closed_walks)(jnp.asarray(W * W))
    np.testing.assert_allclose(value, h, rtol=1e-12)
    np.testing.assert_allclose(change, E.T, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(walks_of(W * W), h, rtol=1e-12)


def test_cyclicity_gradient_vs_finite_differences():
    rng = np.random.default_rng(1)
    W, direction = rng.normal(size=(2, 5, 5)) * 0.6
    step = 1e-6
    change = (cyclicity(W + step * direction)[0] - cyclicity(W - step * direction)[0]) / (2 * step)
    np.testing.assert_allclose(change, np.sum(cyclicity(W)[1] * direction), rtol=1e-7)


def test_a_small_cycle_keeps_its_digits():
    W = np.array([[0.0, 1e-3], [2e-3, 0.0]])
    # two closed walks of two steps, each (w₁w₂)² / 2!
    np.testing.assert_allclose(cyclicity(W)[0], 4e-12, rtol=1e-6)


def test_cyclicity_is_zero_exactly_without_cycles():
    rng = np.random.default_rng(2)
    for _ in range(20):
        edges, _ = random_graph(rng, 6, 8)
        W = random_weights(rng, edges, 1.0, 50.0)
        assert is_acyclic(edges)
        assert cyclicity(W)[0] == 0.0
        cause, effect = np.argwhere(edges)[0]
        W[effect, cause] = 1.0
        assert cyclicity(W)[0] > 1e-2


def test_is_acyclic_vs_networkx():
    rng = np.random.default_rng(3)
    answers = set()
    for _ in range(200):
        edges = (rng.uniform(size=(5, 5)) < 0.2) & ~np.eye(5, dtype=bool)
        graph = networkx.from_numpy_array(edges, create_using=networkx.DiGraph)
        answers.add(is_acyclic(edges))
        assert is_acyclic(edges) == networkx.is_directed_acyclic_graph(graph)
    assert answers == {True, False}


def test_drop_until_acyclic_vs_one_by_one():
    rng = np.random.default_rng(4)
    for _ in range(30):
        W = rng.normal(size=(6, 6)) * ~np.eye(6, dtype=bool)
        edges = np.abs(W) > 0.3
        for place in np.argsort(np.abs(W), axis=None):
            if is_acyclic(edges):
                break
            edges.flat[place] = False
        np.testing.assert_array_equal(drop_until_acyclic(W, 0.3), edges)


def test_drop_until_acyclic_of_nothing():
    assert not drop_until_acyclic(np.zeros((3, 3)), 0.3).any()
